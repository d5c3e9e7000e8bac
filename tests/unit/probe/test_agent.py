"""The agent on trees of /proc, /sys and /etc, with each Python that a host may have."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from onecat.facts import Facts, PciDevice, PciPort, from_json
from onecat.probe.agent import core
from onecat.probe.agent.sources import network, system
from onecat.probe.program import program
from tests.testbed.host_tree import GIB, HostTree, PciGpu

OLDEST = "3.6"


def pythons() -> list[str]:
    """This Python, and the oldest that the agent supports where it is installed."""
    oldest = shutil.which(f"python{OLDEST}")
    versions = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    managed = sorted(map(str, versions.glob(f"{OLDEST}.*/bin/python")))
    return [sys.executable, *([oldest] if oldest and not managed else managed[-1:])]


def observe(
    root: Path, *options: str, python: str = sys.executable, environment: dict[str, str] | None = None
) -> Facts:
    argv = [python, "-I", "-S", "-", "--root", str(root), *options]
    done = subprocess.run(argv, input=program(), capture_output=True, check=True, env=environment, timeout=30)
    assert done.stderr == b""
    return from_json(json.loads(done.stdout))


@pytest.mark.parametrize("python", pythons(), ids=lambda path: Path(path).parent.parent.name)
def test_a_v100_host_is_read_from_its_files(python: str, tmp_path: Path) -> None:
    tree = HostTree(
        gpus=(PciGpu("0000:3b:00.0"), PciGpu("0000:af:00.0", width=4, slot_width_max=8)), selinux="enforcing"
    )
    facts = observe(tree.write(tmp_path), python=python)
    assert facts.operating_system is not None
    assert (facts.operating_system.id, facts.operating_system.version_id) == ("ubuntu", "22.04")
    assert facts.operating_system.kernel == "5.15.0-122-generic"
    assert facts.operating_system.container is False
    assert facts.cpu is not None and facts.memory is not None and facts.selinux is not None
    assert (facts.cpu.logical_cores, "avx2" in facts.cpu.flags) == (4, True)
    assert facts.memory.total == 192 * GIB
    assert facts.memory.cgroup_limit is None
    assert facts.selinux.mode == "enforcing"
    assert facts.nvidia is not None
    assert facts.nvidia.kernel_module_version == "580.95.05"
    assert facts.nvidia.kernel_module_open is False
    assert facts.nvidia.nouveau_loaded is False
    assert facts.nvidia.pci_devices[1] == PciDevice(
        address="0000:af:00.0",
        vendor_id="10de",
        device_id="1db6",
        driver="nvidia",
        link_width_current=4,
        link_width_max=16,
        link_speed_current="2.5 GT/s PCIe",
        link_speed_max="8.0 GT/s PCIe",
        path=(PciPort("0000:01:00.0", link_width_max=8, aspm="disabled", acs=()),),
        numa_node=1,
        aspm="disabled",
        errors_correctable=0,
        errors_nonfatal=0,
        errors_fatal=0,
        responds=True,
    )
    assert [(each.address, each.port) for each in facts.listeners or ()] == [("127.0.0.1", 22)]
    assert facts.tools is not None and facts.tools.path("nginx") == "/usr/sbin/nginx"


def test_an_empty_root_gives_notes_and_no_crash(tmp_path: Path) -> None:
    facts = observe(tmp_path)
    kinds = {note.source: note.kind for note in facts.notes}
    assert kinds.items() >= {"os": "absent", "cpu": "absent", "memory": "absent", "pci": "absent"}.items()
    assert facts.listeners is None


def test_the_open_kernel_module_is_told_from_the_proprietary_one(tmp_path: Path) -> None:
    facts = observe(HostTree(driver="580.159.04", driver_is_open=True).write(tmp_path))
    assert facts.nvidia is not None
    assert (facts.nvidia.kernel_module_version, facts.nvidia.kernel_module_open) == ("580.159.04", True)


def test_a_device_that_does_not_answer_has_no_link_width(tmp_path: Path) -> None:
    facts = observe(HostTree(gpus=(PciGpu("0000:3b:00.0", width=63, driver=None),)).write(tmp_path))
    assert facts.nvidia is not None
    assert (facts.nvidia.pci_devices[0].link_width_current, facts.nvidia.pci_devices[0].driver) == (None, None)


@pytest.mark.parametrize(
    ("files", "limit"),
    [
        ({"proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/memory.max": "4096\n"}, 4096),
        ({"proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/b/memory.max": "max\n"}, None),
        (
            {
                "proc/self/cgroup": "0::/a/b\n",
                "sys/fs/cgroup/a/memory.max": "4096\n",
                "sys/fs/cgroup/a/b/memory.max": "8192\n",
            },
            4096,
        ),
        (
            {
                "proc/self/cgroup": "11:cpu,cpuacct:/x\n5:memory:/docker/c\n",
                "sys/fs/cgroup/memory/docker/c/memory.limit_in_bytes": "2048\n",
                "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
            },
            2048,
        ),
        ({"proc/self/cgroup": "5:memory:/\n", "sys/fs/cgroup/memory/memory.limit_in_bytes": f"{2**63 - 4096}\n"}, None),
    ],
)
def test_the_lowest_memory_limit_of_all_groups_above_counts(
    files: dict[str, str], limit: int | None, tmp_path: Path
) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert system.cgroup_memory_limit(core.Machine(str(tmp_path), 1, [])) == limit


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("0100007F", "127.0.0.1"),
        ("00000000", "0.0.0.0"),
        ("00000000000000000000000001000000", "::1"),
        ("00000000000000000000000000000000", "::"),
        ("0000000000000000FFFF00000100007F", "::ffff:127.0.0.1"),
    ],
)
@pytest.mark.skipif(sys.byteorder != "little", reason="the texts are those of a little-endian machine")
def test_addresses_of_listeners_are_decoded(text: str, address: str) -> None:
    assert network.decode_address(text) == address


def docker_facts(root: Path, host: str | None = None) -> Any:
    environment = {key: value for key, value in os.environ.items() if key not in ("DOCKER_HOST", "DOCKER_TLS_VERIFY")}
    facts = observe(root, environment=environment | ({"DOCKER_HOST": host} if host else {}))
    return facts.docker, facts.note("docker")


def test_no_socket_and_no_client_is_no_docker(tmp_path: Path) -> None:
    docker, _ = docker_facts(HostTree().write(tmp_path))
    assert docker.state == "absent"


def test_a_client_without_a_socket_has_an_unreachable_daemon(tmp_path: Path) -> None:
    root = HostTree().write(tmp_path)
    (root / "usr/bin").mkdir()
    (root / "usr/bin/docker").touch(mode=0o755)
    docker, _ = docker_facts(root)
    assert (docker.state, docker.socket) == ("unreachable", f"unix://{root}/var/run/docker.sock")


def test_a_socket_that_a_dead_daemon_left_is_unreachable(tmp_path: Path) -> None:
    path = tmp_path / "d.sock"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
    docker, _ = docker_facts(HostTree().write(tmp_path / "root"), f"unix://{path}")
    assert docker.state == "unreachable"
    assert "refused" in docker.error


def test_a_docker_host_over_ssh_is_said_to_be_unknown_territory(tmp_path: Path) -> None:
    docker, note = docker_facts(HostTree().write(tmp_path), "ssh://gpu1")
    assert docker is None
    assert (note.kind, "DOCKER_HOST is ssh://gpu1" in note.text) == ("error", True)


def test_a_daemon_that_accepts_and_never_answers_costs_the_time_limit_only(tmp_path: Path) -> None:
    path = tmp_path / "d.sock"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen()
        argv = [sys.executable, "-I", "-S", "-", "--timeout", "0.5", "--root", str(HostTree().write(tmp_path / "root"))]
        environment = {**os.environ, "DOCKER_HOST": f"unix://{path}"}
        done = subprocess.run(argv, input=program(), capture_output=True, check=True, env=environment, timeout=10)
    facts = from_json(json.loads(done.stdout))
    docker, note = facts.docker, facts.note("docker")
    assert (docker and docker.state == "unreachable") or (note and note.kind == "timeout")
    assert facts.memory is not None


def test_free_space_is_measured_at_the_nearest_existing_parent(tmp_path: Path) -> None:
    facts = observe(HostTree().write(tmp_path), "--path", "data=/dev/not/yet/there")
    data = facts.filesystem("data")
    assert data is not None
    status = os.statvfs(tmp_path)
    assert (data.path, data.total) == ("/dev/not/yet/there", status.f_blocks * status.f_frsize)


def test_sources_that_hang_die_or_break_cost_only_themselves() -> None:
    def hangs(machine: object, emit: Any) -> None:
        emit(before="the hang")
        emit(doing="sleeping")
        subprocess.run(["sleep", "60"], check=True)

    def dies(machine: object, emit: Any) -> None:
        os.kill(os.getpid(), 9)

    def breaks(machine: object, emit: Any) -> None:
        raise KeyError("gone")

    def works(machine: object, emit: Any) -> None:
        emit(memory={"total": 1})

    sources = {"hangs": hangs, "dies": dies, "breaks": breaks, "works": works}
    document = core.observe(core.Machine("/", 0.5, []), sources)
    *notes, broken = document.pop("notes")
    assert notes == [
        {"source": "hangs", "kind": "timeout", "text": "no answer within 0.5 s while sleeping"},
        {"source": "dies", "kind": "error", "text": "died of signal 9"},
    ]
    assert (broken["source"], broken["kind"]) == ("breaks", "error")
    assert broken["text"].startswith("KeyError: 'gone' (line ")
    assert document == {"before": "the hang", "memory": {"total": 1}, "sources": ["hangs", "works"]}
