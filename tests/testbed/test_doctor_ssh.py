"""Doctor on hosts over real SSH: the real command and agent, real sshd in containers, and an NVML without a GPU."""

from __future__ import annotations

import contextlib
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.testbed.command import Onecat, Result
from tests.testbed.docker_daemon import DockerDaemon
from tests.testbed.host_tree import HostTree, PciGpu
from tests.testbed.nvml import library as nvml
from tests.testbed.operators import Operator, run_on_terminal
from tests.testbed.ssh_host import (
    INNER_PORT,
    NVML_FOLDER,
    USER,
    VISITOR,
    SshHost,
    put_folder,
    run_inside,
    running_ssh_host,
)

TREE = "/srv/tree"
AREAS = ("gpu", "driver", "pcie", "nvlink", "topology", "selinux")
PASSWORD = "of-a-container-that-is-gone-after-the-tests"
PASSPHRASE = "of-a-key-that-is-gone-after-the-tests"
XID_79 = "[ 8123.456789] NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.\n"
DENIAL = (
    '[  612.001122] audit: type=1400 audit(1764000000.123:456): avc:  denied  { read write } for  pid=4321 comm="vllm" '
    'name="nvidia0" dev="devtmpfs" ino=512 scontext=system_u:system_r:container_t:s0:c1,c2 '
    "tcontext=system_u:object_r:device_t:s0 tclass=chr_file permissive=0\n"
)


RELAY = """\
import os, socket, sys, threading
far = socket.create_connection((sys.argv[1], int(sys.argv[2])))
def inward():
    while data := far.recv(65536):
        os.write(1, data)
threading.Thread(target=inward, daemon=True).start()
while data := os.read(0, 65536):
    far.sendall(data)
"""
"""What `nc HOST PORT` does."""


@pytest.fixture(scope="module")
def host(
    docker_client: Any, docker_daemon: DockerDaemon, ssh_image: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SshHost]:
    """gpu1: with Python, with the testbed's Docker daemon, with a visitor who has a password only."""
    volumes = [f"{docker_daemon.socket}:/var/run/docker.sock"]
    with running_ssh_host(docker_client, ssh_image, tmp_path_factory.mktemp("gpu1"), volumes=volumes) as running:
        set_password(docker_client.containers.get(running.container))
        yield running


@pytest.fixture(scope="module")
def bare_host(docker_client: Any, ssh_image: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshHost]:
    """bare1: without Python, with an nvidia-smi that hangs."""
    with running_ssh_host(docker_client, ssh_image, tmp_path_factory.mktemp("bare1")) as running:
        container = docker_client.containers.get(running.container)
        run_inside(container, "sh", "-c", "rm -f /usr/bin/python3* /usr/local/bin/python* /usr/bin/python")
        hangs = "printf '#!/bin/sh\\nsleep 600\\n' > /usr/bin/nvidia-smi && chmod +x /usr/bin/nvidia-smi"
        run_inside(container, "sh", "-c", hangs)
        yield running


@pytest.fixture
def person(host: SshHost, bare_host: SshHost, tmp_path: Path) -> Operator:
    """Someone with gpu1 and bare1 in ~/.ssh/config, and ways to them that need more."""
    person = Operator(tmp_path / "home")
    configuration = f"""\
Host gpu1 slow1
  HostName {host.address}
  User {USER}
  IdentityFile {host.key}
Host bare1
  HostName {bare_host.address}
  User {USER}
  IdentityFile {bare_host.key}
Host inner1
  HostName 127.0.0.1
  Port {INNER_PORT}
  User {USER}
  IdentityFile {host.key}
  ProxyJump gpu1
Host inner2
  HostName 127.0.0.1
  HostKeyAlias gpu1
  User {USER}
  IdentityFile {host.key}
  ProxyJump gpu1,inner1
"""
    known = [
        f"{host.address},gpu1 {host.host_key}",
        f"{bare_host.address} {bare_host.host_key}",
        f"[127.0.0.1]:{INNER_PORT} {host.host_key}",
    ]
    person.write(configuration, "".join(known))
    return person


@pytest.fixture
def doctor(onecat: Onecat, person: Operator) -> Callable[..., Result]:
    """Runs `onecat doctor --json` as that person."""
    return lambda *arguments, **options: onecat(
        "doctor", "--json", *arguments, environment=person.environment, **options
    )


@pytest.fixture
def gpus(
    docker_client: Any, host: SshHost, nvml_library: Path, tmp_path: Path, doctor: Callable[..., Result]
) -> Callable[..., Result]:
    """Runs doctor on gpu1 as a described host: its NVML, and its /proc, /sys, /etc and log."""

    def run(description: nvml.Host, tree: HostTree, *arguments: str, log: str = "") -> Result:
        container = docker_client.containers.get(host.container)
        put_folder(container, nvml.install(nvml_library, tmp_path / "nvml", description).directory, NVML_FOLDER)
        root = tree.write(tmp_path / "tree")
        if log:
            (root / "var/log").mkdir(parents=True, exist_ok=True)
            (root / "var/log/dmesg").write_text(log)
        put_folder(container, root, TREE)
        of_the_gpus = [word for area in AREAS for word in ("--only", f"{area}.*")]
        return doctor("--host", "gpu1", "--profile", "v100x2-pcie", "--root", TREE, *of_the_gpus, *arguments)

    return run


def set_password(container: Any) -> None:
    run_inside(container, "sh", "-c", f"echo '{VISITOR}:{PASSWORD}' | chpasswd")


def found(result: Result, *statuses: str) -> set[tuple[str, str, str]]:
    """Check, status and subject of the findings of these statuses, by default of failures and warnings."""
    (host,) = result.json()["hosts"]
    assert host["reachable"], host
    return {
        (each["check"], each["status"], each["subject"])
        for each in host["findings"]
        if each["status"] in (statuses or ("fail", "warn"))
    }


def the_host(result: Result) -> dict[str, Any]:
    (host,) = result.json()["hosts"]
    assert isinstance(host, dict)
    return host


# --- what is wrong with its GPUs -------------------------------------------------------------------------------------


def test_healthy_v100_have_nothing_to_say(gpus: Callable[..., Result]) -> None:
    result = gpus(nvml.load_host("v100x2"), HostTree())
    assert found(result) == set()
    assert {"gpu.count", "gpu.model", "driver.nvml", "pcie.link-width"} <= {
        check for check, _, _ in found(result, "pass")
    }
    assert the_host(result)["name"] == "gpu1"


def test_a_driver_update_without_a_reboot(gpus: Callable[..., Result]) -> None:
    result = gpus(
        nvml.changed("v100x2", lambda host: host.update(errors={"nvmlInit": 18})), HostTree(driver="580.82.07")
    )
    assert result.code == 1
    assert {check for check, status, _ in found(result) if status == "fail"} & {"driver.nvml", "driver.versions"}


def test_a_link_at_x4(gpus: Callable[..., Result]) -> None:
    tree = HostTree(gpus=(PciGpu("0000:3b:00.0"), PciGpu("0000:af:00.0", width=4)))
    result = gpus(nvml.changed("v100x2", nvml.narrow(1)), tree).expect(0)
    assert found(result) == {("pcie.link-width", "warn", "GPU 1")}


def test_a_generation_that_is_low_at_idle_is_no_finding(gpus: Callable[..., Result]) -> None:
    def idle(host: nvml.Host) -> None:
        for device in host["devices"]:
            device["pcie"]["generation"] = 1
            device["performance_state"] = 8
            device["clocks"]["memory"] = 405

    assert found(gpus(nvml.changed("v100x2", idle), HostTree()).expect(0)) == set()


def test_pages_that_wait_to_be_retired(gpus: Callable[..., Result]) -> None:
    result = gpus(nvml.changed("v100x2", nvml.pages_retired(0)), HostTree())
    assert "gpu.retired-pages" in {check for check, _, subject in found(result) if subject == "GPU 0"}


def test_xid_79_in_the_kernel_log(gpus: Callable[..., Result]) -> None:
    result = gpus(nvml.changed("v100x2", nvml.lost(0)), HostTree(), log=XID_79).expect(1)
    assert {"gpu.fallen-off-bus", "gpu.xid"} & {check for check, status, _ in found(result) if status == "fail"}
    evidence = [line for each in the_host(result)["findings"] for line in each["evidence"]]
    assert any("Xid (PCI:0000:3b:00): 79" in line for line in evidence)


def test_a_denial_of_selinux(gpus: Callable[..., Result]) -> None:
    result = gpus(nvml.load_host("v100x2"), HostTree(selinux="enforcing"), log=DENIAL)
    assert "selinux.denials" in {check for check, _, _ in found(result)}
    fixes = [line for each in the_host(result)["findings"] for line in each["fix"]]
    assert not any("setenforce 0" in line for line in fixes)


def test_a_gpu_that_hangs_costs_its_limit_and_only_its_own_facts(gpus: Callable[..., Result]) -> None:
    started = time.monotonic()
    hanging = nvml.changed("v100x2", nvml.hanging(1, "nvmlDeviceGetTemperature"))
    result = gpus(hanging, HostTree(), "--timeout", "1").expect(1)
    assert time.monotonic() - started < 10
    assert "driver.nvml" in {check for check, status, _ in found(result) if status == "fail"}
    assert "gpu.model" in {check for check, _, subject in found(result, "pass") if subject == "GPU 0"}


# --- what is wrong with the host itself ------------------------------------------------------------------------------


def test_64_mib_of_shared_memory_and_docker_without_the_toolkit(
    docker_client: Any, host: SshHost, nvml_library: Path, tmp_path: Path, doctor: Callable[..., Result]
) -> None:
    container = docker_client.containers.get(host.container)
    installed = nvml.install(nvml_library, tmp_path / "nvml", nvml.load_host("v100x2"))
    put_folder(container, installed.directory, NVML_FOLDER)
    result = doctor("--host", "gpu1", "--sudo", "--profile", "v100x2-pcie").expect(1)
    statuses = {each["check"]: each["status"] for each in the_host(result)["findings"]}
    assert statuses["docker.daemon"] == "pass"
    assert statuses["docker.toolkit"] == "fail"
    assert statuses["shm.size"] == "warn"


def test_a_host_without_python_whose_nvidia_smi_hangs(
    doctor: Callable[..., Result], onecat: Onecat, person: Operator
) -> None:
    started = time.monotonic()
    result = doctor("--host", "bare1", "--timeout", "1")
    assert time.monotonic() - started < 10
    told = [line for each in the_host(result)["findings"] for line in [each["title"], *each["evidence"]]]
    assert any("nvidia-smi" in line and "time" in line for line in told), told
    arguments = ("facts", "--host", "bare1", "--timeout", "1", "--json")
    facts = onecat(*arguments, environment=person.environment).expect(0).json()
    assert (facts["host"], facts["operating_system"]["id"], facts["operating_system"]["python"]) == (
        "bare1",
        "debian",
        None,
    )
    assert facts["memory"]["total"] > 0
    assert facts["filesystems"]


# --- hosts that cannot be reached ------------------------------------------------------------------------------------


def test_a_host_that_is_down_delays_no_other_one(doctor: Callable[..., Result]) -> None:
    result = doctor("--host", "127.0.0.1:1", "--host", "gpu1,nowhere.invalid", "--only", "os.*").expect(3)
    down, up, unknown = result.json()["hosts"]
    assert [each["name"] for each in result.json()["hosts"]] == ["127.0.0.1:1", "gpu1", "nowhere.invalid"]
    assert (down["reachable"], up["reachable"], unknown["reachable"]) == (False, True, False)
    assert "Connection refused" in down["reason"]
    assert "the name is not known" in unknown["reason"]
    assert up["seconds"] < 5


def test_findings_come_before_hosts_out_of_reach_in_the_exit_code(doctor: Callable[..., Result]) -> None:
    doctor("--host", "127.0.0.1:1,gpu1", "--profile", "h200").expect(1)
    doctor("--host", "127.0.0.1:1").expect(3)


def test_a_wrong_host_key_is_refused_with_both_fingerprints_and_what_to_type(
    doctor: Callable[..., Result], person: Operator, bare_host: SshHost, host: SshHost
) -> None:
    person.known_hosts.write_text(f"# first\n{host.address} {bare_host.host_key}")
    result = doctor("--host", "gpu1").expect(3)
    unreachable = the_host(result)
    assert "key is not the one in known_hosts" in unreachable["reason"]
    assert [line.count("SHA256:") for line in unreachable["evidence"]] == [1, 1]
    assert unreachable["evidence"][1].endswith(f"in {person.known_hosts}:2")
    assert f"ssh-keygen -f {person.known_hosts} -R '{host.address}'" in " ".join(unreachable["fix"])


def test_an_unknown_host_key_is_refused_and_never_added(doctor: Callable[..., Result], person: Operator) -> None:
    person.known_hosts.write_text("")
    unreachable = the_host(doctor("--host", "gpu1").expect(3))
    assert "is not in known_hosts" in unreachable["reason"]
    assert any("ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub" in line for line in unreachable["fix"])
    assert person.known_hosts.read_text() == ""


def test_accept_new_adds_the_key_as_ssh_does(
    doctor: Callable[..., Result], person: Operator, host: SshHost, bare_host: SshHost
) -> None:
    configuration = (person.home / ".ssh" / "config").read_text()
    person.write(configuration + "Host *\n  StrictHostKeyChecking accept-new\n", "")
    doctor("--host", "gpu1", "--only", "os.*").expect(0)
    assert person.known_hosts.read_text() == f"{host.address} {' '.join(host.host_key.split()[:2])}\n"
    person.known_hosts.write_text(f"{host.address} {bare_host.host_key}")
    doctor("--host", "gpu1").expect(3)


def test_checking_is_not_switched_off_by_the_configuration(doctor: Callable[..., Result], person: Operator) -> None:
    configuration = (person.home / ".ssh" / "config").read_text()
    person.write(configuration + "Host *\n  StrictHostKeyChecking no\n  UserKnownHostsFile /dev/null\n", "")
    unreachable = the_host(doctor("--host", "gpu1").expect(3))
    assert "does not follow `StrictHostKeyChecking no`" in unreachable["reason"]


def test_a_host_that_wants_a_password_says_so_where_nobody_can_type_it(doctor: Callable[..., Result]) -> None:
    unreachable = the_host(doctor("--host", f"{VISITOR}@gpu1").expect(3))
    assert "wants a password, and there is no terminal" in unreachable["reason"]
    assert f"install a key there: ssh-copy-id {VISITOR}@gpu1" in unreachable["fix"]


def test_a_person_at_a_terminal_types_the_passwords_for_login_and_sudo(onecat: Onecat, person: Operator) -> None:
    code, shown = run_on_terminal(
        onecat.argv("facts", "--host", f"{VISITOR}@gpu1", "--sudo", "--json"),
        onecat.environment(person.environment),
        [(f"password of {VISITOR} on {VISITOR}@gpu1:", f"{PASSWORD}\n"), ("password for sudo", f"{PASSWORD}\n")],
    )
    assert code == 0, shown
    assert '"is_root": true' in shown
    assert PASSWORD not in shown


def test_without_the_password_for_sudo_a_host_is_observed_as_it_is(onecat: Onecat, person: Operator) -> None:
    """A wrong one is tried once: sudo may lock a user out after three."""
    code, shown = run_on_terminal(
        onecat.argv("facts", "--host", f"{VISITOR}@gpu1", "--sudo", "--json"),
        onecat.environment(person.environment),
        [("password of", f"{PASSWORD}\n"), ("password for sudo", "wrong\n")],
    )
    assert code == 0, shown
    assert '"is_root": false' in shown
    assert "sudo did not take the password: observed without root" in shown


def test_a_wrong_password_is_refused_once(onecat: Onecat, person: Operator) -> None:
    code, shown = run_on_terminal(
        onecat.argv("doctor", "--host", f"{VISITOR}@gpu1"),
        onecat.environment(person.environment),
        [("password of", "wrong\n")],
    )
    assert code == 3, shown
    assert "took neither key nor password" in shown


def test_an_encrypted_key_is_opened_by_its_passphrase_or_named(
    onecat: Onecat, doctor: Callable[..., Result], person: Operator, host: SshHost
) -> None:
    key = person.home / "encrypted"
    shutil.copy(host.key, key)
    subprocess.run(["ssh-keygen", "-q", "-p", "-P", "", "-N", PASSPHRASE, "-f", str(key)], check=True)
    configuration = (person.home / ".ssh" / "config").read_text().replace(str(host.key), str(key))
    (person.home / ".ssh" / "config").write_text(configuration)
    unreachable = the_host(doctor("--host", "gpu1").expect(3))
    assert any("is encrypted" in line and str(key) in line for line in unreachable["evidence"])
    assert unreachable["fix"][0] == f"ssh-add {key}"
    code, shown = run_on_terminal(
        onecat.argv("doctor", "--host", "gpu1", "--host", f"{USER}@gpu1", "--only", "os.*"),
        onecat.environment(person.environment),
        [("passphrase of", f"{PASSPHRASE}\n")],
    )
    assert code == 0, shown
    assert shown.count("passphrase of") == 1, "asked once for all hosts"


def test_sudo_without_a_password_sees_what_root_sees_and_with_one_says_what_is_missing(
    doctor: Callable[..., Result], onecat: Onecat, person: Operator
) -> None:
    facts = onecat("facts", "--host", "gpu1", "--sudo", "--json", environment=person.environment).expect(0).json()
    assert (facts["is_root"], facts["host"]) == (True, "gpu1")
    assert onecat("facts", "--host", "gpu1", "--json", environment=person.environment).json()["is_root"] is False


# --- ways to a host --------------------------------------------------------------------------------------------------


def test_hosts_behind_one_and_two_jump_hosts(doctor: Callable[..., Result]) -> None:
    result = doctor("--host", "inner1", "--host", "inner2", "--only", "os.*").expect(0)
    assert [(each["name"], each["reachable"]) for each in result.json()["hosts"]] == [
        ("inner1", True),
        ("inner2", True),
    ]


def test_a_jump_host_has_its_key_checked_too(
    doctor: Callable[..., Result], person: Operator, host: SshHost, bare_host: SshHost
) -> None:
    person.known_hosts.write_text(f"{host.address} {bare_host.host_key}[127.0.0.1]:{INNER_PORT} {host.host_key}")
    unreachable = the_host(doctor("--host", "inner1").expect(3))
    assert "key is not the one in known_hosts" in unreachable["reason"]


def test_a_proxy_command_is_a_way_too(doctor: Callable[..., Result], person: Operator, host: SshHost) -> None:
    configuration = (person.home / ".ssh" / "config").read_text()
    relay = person.home / "relay.py"
    relay.write_text(RELAY)
    person.write(f"Host gpu1\n  ProxyCommand python3 {relay} %h %p\n" + configuration, person.known_hosts.read_text())
    doctor("--host", "gpu1", "--only", "os.*").expect(0)


def test_a_slow_link_is_only_slow(doctor: Callable[..., Result], person: Operator, host: SshHost) -> None:
    with delaying_link(host, seconds=0.05) as port:
        configuration = f"Host slow1\n  Port {port}\n  HostName 127.0.0.1\n"
        known = f"[127.0.0.1]:{port} {host.host_key}"
        person.write(configuration + (person.home / ".ssh" / "config").read_text(), known)
        result = doctor("--host", "slow1", "--only", "os.*").expect(0)
    assert 0.5 < the_host(result)["seconds"] < 8


def test_a_host_that_says_nothing_is_given_up(doctor: Callable[..., Result], person: Operator) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        started = time.monotonic()
        result = doctor("--host", f"127.0.0.1:{silent.getsockname()[1]}", "--connect-timeout", "1").expect(3)
        assert time.monotonic() - started < 6
    assert "sshd does not answer within 1 s" in the_host(result)["reason"]


def test_a_host_that_dies_in_the_middle(
    docker_client: Any,
    start_ssh_host: Callable[..., SshHost],
    nvml_library: Path,
    tmp_path: Path,
    doctor: Callable[..., Result],
    person: Operator,
) -> None:
    victim = start_ssh_host()
    container = docker_client.containers.get(victim.container)
    hanging = nvml.changed("v100x2", nvml.hanging(0, "nvmlDeviceGetTemperature"))
    put_folder(container, nvml.install(nvml_library, tmp_path / "nvml", hanging).directory, NVML_FOLDER)
    configuration = f"Host victim\n  HostName {victim.address}\n  User {USER}\n  IdentityFile {victim.key}\n"
    person.write(configuration, f"{victim.address} {victim.host_key}")

    def kill() -> None:
        deadline = time.monotonic() + 20
        while "--host victim" not in run_inside(container, "sh", "-c", "cat /proc/[0-9]*/cmdline | tr '\\0' ' '"):
            if time.monotonic() > deadline:
                return
            time.sleep(0.1)
        time.sleep(0.5)
        container.kill()

    killing = threading.Thread(target=kill)
    killing.start()
    started = time.monotonic()
    result = doctor("--host", "victim", "--timeout", "20").expect(3)
    killing.join()
    assert time.monotonic() - started < 15
    assert "connection was lost" in the_host(result)["reason"]


@contextlib.contextmanager
def delaying_link(host: SshHost, seconds: float) -> Iterator[int]:
    """A port of this machine behind which is a host, each piece of data some time later."""

    def carry(source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                time.sleep(seconds)
                target.sendall(data)
        with contextlib.suppress(OSError):
            target.shutdown(socket.SHUT_WR)

    def accept(server: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = server.accept()
                far = socket.create_connection((host.address, host.port))
                for pair in ((near, far), (far, near)):
                    threading.Thread(target=carry, args=pair, daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=accept, args=(server,), daemon=True).start()
        yield server.getsockname()[1]
