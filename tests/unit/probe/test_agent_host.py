"""What the agent's sources make of the files and programs of a host."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from onecat.probe.agent import core
from onecat.probe.agent.sources import (
    ascend,
    confinement,
    docker_daemon,
    environment,
    kernel_log,
    limits,
    network,
    services,
    smoke,
    system,
    toolkit,
)


def machine(root: Path, files: dict[str, str | bytes] | None = None) -> core.Machine:
    for name, content in (files or {}).items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    return core.Machine(str(root), 5, [])


def told(source: Any, host: core.Machine) -> dict[str, Any]:
    """The document that one source makes, with its notes."""
    document: dict[str, Any] = {"notes": []}

    def emit(**part: Any) -> None:
        part.pop("doing", None)
        if "note" in part:
            document["notes"].append(part.pop("note"))
        core.merge(document, json.loads(json.dumps(part)))

    core.run_source(source, host, emit)
    return document


INTEL = "processor : 0\nmodel name : Intel(R) Xeon(R)\nflags : fpu avx2\n\n"
GUEST = "processor : 0\nmodel name : Intel(R) Xeon(R)\nflags : fpu avx2 hypervisor\n\n"
DMI = "sys/class/dmi/id/"
CLOCKS = "sys/devices/system/clocksource/clocksource0/available_clocksource"


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="the flag `hypervisor` is one of x86")
@pytest.mark.parametrize(
    ("files", "word"),
    [
        ({"proc/cpuinfo": INTEL, DMI + "sys_vendor": "Supermicro", DMI + "product_name": "SYS-4029GP"}, "none"),
        ({"proc/cpuinfo": GUEST, DMI + "sys_vendor": "VMware, Inc."}, "vmware"),
        ({"proc/cpuinfo": GUEST, DMI + "sys_vendor": "QEMU", CLOCKS: "kvm-clock tsc"}, "kvm"),
        ({"proc/cpuinfo": GUEST, DMI + "sys_vendor": "QEMU", CLOCKS: "tsc hpet"}, "qemu"),
        ({"proc/cpuinfo": GUEST, DMI + "product_name": "KVM"}, "kvm"),
        ({"proc/cpuinfo": GUEST, DMI + "sys_vendor": "Amazon EC2", DMI + "product_name": "p4d.24xlarge"}, "amazon"),
        ({"proc/cpuinfo": GUEST, DMI + "sys_vendor": "Amazon EC2", DMI + "product_name": "p4d.metal"}, "none"),
        (
            {"proc/cpuinfo": GUEST, DMI + "sys_vendor": "Google", DMI + "product_name": "Google Compute Engine"},
            "google",
        ),
        (
            {
                "proc/cpuinfo": GUEST,
                DMI + "sys_vendor": "Microsoft Corporation",
                DMI + "product_name": "Virtual Machine",
            },
            "microsoft",
        ),
        ({"proc/cpuinfo": GUEST, CLOCKS: "kvm-clock tsc acpi_pm"}, "kvm"),
        ({"proc/cpuinfo": GUEST}, "vm-other"),
        ({"proc/cpuinfo": GUEST, "proc/sys/kernel/osrelease": "5.15.167.4-microsoft-standard-WSL2"}, "wsl"),
        ({"proc/cpuinfo": GUEST, "sys/hypervisor/type": "xen"}, "xen"),
        (
            {"proc/cpuinfo": INTEL, "sys/hypervisor/type": "xen", "proc/xen/capabilities": "control_d"},
            "none",
        ),
        ({}, None),
    ],
)
def test_the_kind_of_virtual_machine_is_told_from_files(
    files: dict[str, str | bytes], word: str | None, tmp_path: Path
) -> None:
    assert system.virtualization(machine(tmp_path, files)) == word


FIRST = {"pid": 4026531836, "uts": 4026531838, "ipc": 4026531839}


@pytest.mark.parametrize(
    ("files", "namespaces", "is_container"),
    [
        ({".dockerenv": "", "proc/1/cgroup": "0::/"}, FIRST, False),  # a machine whose disk was an image
        ({".dockerenv": "", "proc/1/cgroup": "0::/"}, {**FIRST, "pid": 4026532289}, True),
        ({".dockerenv": "", "proc/1/cgroup": "0::/"}, {**FIRST, "uts": 4026532287}, True),  # docker run --pid host
        ({".dockerenv": ""}, {}, True),
        ({"proc/1/cgroup": "12:devices:/kubepods/pod1/2"}, {}, True),
        ({"proc/1/cgroup": "0::/init.scope"}, FIRST, False),
        ({"proc/1/cgroup": "0::/init.scope"}, {}, False),
        ({}, {}, None),
    ],
)
def test_a_container_has_namespaces_of_its_own(
    tmp_path: Path, files: dict[str, str | bytes], namespaces: dict[str, int], is_container: bool | None
) -> None:
    host = machine(tmp_path, files)
    for name, number in namespaces.items():
        link = tmp_path / "proc" / "self" / "ns" / name
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(f"{name}:[{number}]")
    assert system.in_container(host) is is_container


EFI = "sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"


@pytest.mark.parametrize(
    ("files", "is_on"),
    [
        ({EFI: b"\x06\0\0\0\1"}, True),
        ({EFI: b"\x06\0\0\0\0"}, False),
        ({"sys/firmware/acpi/pm_profile": "4"}, False),
        ({"sys/firmware/efi/systab": ""}, None),
        ({}, None),
    ],
)
def test_secure_boot_is_read_from_the_firmware(files: dict[str, bytes], is_on: bool | None, tmp_path: Path) -> None:
    assert system.secure_boot(machine(tmp_path, dict(files))) is is_on


def test_sockets_and_numa_nodes_are_counted_without_nodes_of_memory_alone(tmp_path: Path) -> None:
    node = "sys/devices/system/node/node"
    files: dict[str, str | bytes] = {
        "proc/cpuinfo": "".join(f"processor : {n}\nphysical id : {n // 2}\nflags : avx\n\n" for n in range(4)),
        **{f"{node}{n}/cpulist": f"{n}\n" for n in range(2)},
        f"{node}2/cpulist": "\n",
    }
    cpu = told(system.cpu, machine(tmp_path, files))["cpu"]
    assert (cpu["logical_cores"], cpu["sockets"], cpu["numa_nodes"]) == (4, 2, 2)


def test_sockets_of_arm_come_from_the_topology(tmp_path: Path) -> None:
    files: dict[str, str | bytes] = {"proc/cpuinfo": "processor : 0\nFeatures : fp asimd\n\nprocessor : 1\n\n"}
    for core_number, package in ((0, 0), (1, 36)):
        files[f"sys/devices/system/cpu/cpu{core_number}/topology/physical_package_id"] = f"{package}\n"
    cpu = told(system.cpu, machine(tmp_path, files))["cpu"]
    assert (cpu["sockets"], cpu["flags"]) == (2, ["asimd", "fp"])


def test_the_kernels_own_error_tells_whether_a_clock_is_kept() -> None:
    clock = told(system.clock, core.Machine("/", 5, []))
    assert clock["clock"]["synchronized"] in (True, False)


def test_the_time_service_tells_it_by_a_file(tmp_path: Path) -> None:
    files: dict[str, str | bytes] = {"run/systemd/timesync/synchronized": ""}
    assert told(system.clock, machine(tmp_path, files))["clock"] == {"synchronized": True}


def test_limits_are_those_of_the_kernel_with_none_for_unlimited() -> None:
    import resource

    found = {each["name"]: each for each in told(limits.limits, core.Machine("/", 5, []))["limits"]}
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert found["nofile"]["soft"] == (None if soft == resource.RLIM_INFINITY else soft)
    assert found["nofile"]["hard"] == (None if hard == resource.RLIM_INFINITY else hard)
    assert set(found) >= {"nofile", "memlock", "nproc"}


def test_the_environment_tells_what_matters_and_no_secret(tmp_path: Path) -> None:
    text = (
        '# comment\nCUDA_FORCE_PTX_JIT="1"\nexport NCCL_DEBUG=INFO\nEDITOR=vi\nHF_TOKEN=hf_abc\nVLLM_API_KEY=k\n'
        "https_proxy=http://user:pw@proxy.example:3128\nNO_PROXY=localhost\nDOCKER_HOST=unix:///run/docker.sock\n"
        "HF_HOME=/data/hf\nLD_PRELOAD=\nMY_CUDA_HOME=/x\n"
    )
    found = dict(told(environment.environment, machine(tmp_path, {"etc/environment": text}))["environment"])
    assert found == {
        "CUDA_FORCE_PTX_JIT": "1",
        "NCCL_DEBUG": "INFO",
        "HF_TOKEN": "(hidden)",
        "VLLM_API_KEY": "(hidden)",
        "https_proxy": "http://(hidden)@proxy.example:3128",
        "NO_PROXY": "localhost",
        "DOCKER_HOST": "unix:///run/docker.sock",
        "HF_HOME": "/data/hf",
        "LD_PRELOAD": "",
    }


def test_the_users_own_variables_win_over_those_of_everybody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NCCL_P2P_DISABLE", "1")
    assert ["NCCL_P2P_DISABLE", "1"] in told(environment.environment, core.Machine("/", 5, []))["environment"]


SELINUX = "sys/fs/selinux/"


def test_selinux_tells_its_policy_and_what_it_allows_containers(tmp_path: Path) -> None:
    files: dict[str, str | bytes] = {
        SELINUX + "enforce": "1",
        SELINUX + "booleans/container_use_devices": "0 0",
        SELINUX + "booleans/container_use_dri_devices": "1 1",
        SELINUX + "booleans/httpd_can_network_connect": "1 1",
        "etc/selinux/config": "# x\nSELINUX=enforcing\nSELINUXTYPE=targeted\n",
        "dev/nvidia0": "",
    }
    assert told(confinement.selinux, machine(tmp_path, files))["selinux"] == {
        "mode": "enforcing",
        "policy": "targeted",
        "booleans": [["container_use_devices", False], ["container_use_dri_devices", True]],
        "device_labels": [],
    }


AVC = (
    'type=AVC msg=audit(1732900000.1:2): avc:  denied  { read write } for  pid=7 comm="python3" name="nvidiactl" '
    "scontext=system_u:system_r:container_t:s0 tcontext=system_u:object_r:xserver_misc_device_t:s0 tclass=chr_file"
)


def test_what_selinux_denied_is_read_where_auditd_keeps_it(tmp_path: Path) -> None:
    log = "type=LOGIN msg=audit(1.0:1): pid=1\n" * 3 + AVC + "\n"
    files: dict[str, str | bytes] = {SELINUX + "enforce": "1", "var/log/audit/audit.log": log}
    (capture,) = told(confinement.selinux, machine(tmp_path, files))["captures"]
    assert capture == {"name": "/var/log/audit/audit.log", "text": AVC + "\n"}


@pytest.mark.parametrize(
    ("files", "found"),
    [
        ({}, {"enabled": False, "user_namespaces_restricted": None}),
        (
            {
                "sys/module/apparmor/parameters/enabled": "Y\n",
                "proc/sys/kernel/apparmor_restrict_unprivileged_userns": "1\n",
            },
            {"enabled": True, "user_namespaces_restricted": True},
        ),
    ],
)
def test_apparmor_tells_whether_it_restricts_namespaces(
    files: dict[str, str | bytes], found: dict[str, object], tmp_path: Path
) -> None:
    assert told(confinement.apparmor, machine(tmp_path, files))["apparmor"] == found


LOG = """\
[    0.100000] pci 0000:3b:00.0: Adding to iommu group 12
[    2.100000] nouveau 0000:3b:00.0: NVIDIA GV100 (140000a1)
[    3.100000] usb 1-1: new high-speed USB device
[   10.000000] NVRM: Xid (PCI:0000:3b:00): 79, pid=1, GPU has fallen off the bus.
[   11.000000] INFO: task python3:77 blocked for more than 122 seconds.
[   11.000000]       Not tainted 5.15.0-1 #1
[   11.000000] e1000e: eth0 NIC Link is Up
[   12.000000]  indented under what is left out
[   13.000000] Memory cgroup out of memory: Killed process 42 (python3)
[   14.000000] traps: python3[9] trap invalid opcode ip:7f sp:7f error:0 in x.so
[   15.000000] pci 0000:3b:00.0: BAR 1 [mem size 0x800000000]: failed to assign
[   16.000000] audit: type=1400 audit(1.2:3): avc:  denied  { read write } for  comm="python3" name="nvidiactl"
"""


def test_of_the_kernel_log_the_lines_that_tell_something_are_kept_with_what_continues_them() -> None:
    times = [line.split("]")[0].split()[-1] for line in kernel_log.relevant(LOG.splitlines())]
    assert times == [f"{second}.{rest}" for second, rest in [("2", "100000"), ("10", "000000")]] + [
        f"{second}.000000" for second in (11, 11, 13, 14, 15, 16)
    ]


def test_of_a_flood_the_newest_lines_survive() -> None:
    lines = [f"[{number:5}.0] NVRM: Xid (PCI:0000:3b:00): 13" for number in range(10_000)]
    assert kernel_log.relevant(lines) == lines[-kernel_log.MOST_LINES :]


@pytest.mark.parametrize(
    ("first", "wrapped"), [("[    0.000000] Linux version 6.1", False), ("[86400.5] NVRM: x", True), ("odd", False)]
)
def test_a_ring_buffer_that_lost_its_beginning_is_known(first: str, wrapped: bool) -> None:
    assert kernel_log.has_wrapped([first]) is wrapped


def test_the_kernel_log_is_read_or_the_reason_told() -> None:
    document = told(kernel_log.kernel_log, core.Machine("/", 10, []))
    if "kernel_events" in document:
        assert document["kernel_events"] == []
        lines = kernel_log.ring_buffer(core.Machine("/", 10, []))
        # Where the buffer has wrapped and no journal has the rest, the note says so.
        assert [note["text"].partition(",")[0] for note in document["notes"]] in (
            [[], ["the older part of the kernel log"]] if kernel_log.has_wrapped(lines) else [[]]
        )
    else:
        assert document["notes"][0]["kind"] == "permission"


def test_the_ring_buffer_and_dmesg_tell_the_same() -> None:
    host = core.Machine("/", 10, [])
    called, printed = kernel_log.ring_buffer(host), kernel_log.run_dmesg(host)
    if called is None:
        assert printed is None
    else:
        assert printed is not None and set(printed[-50:]) & set(called[-100:])


@pytest.fixture
def listening() -> Any:
    with socket.create_server(("127.0.0.1", 0)) as first, socket.create_server(("127.0.0.1", 0)) as second:
        yield {each.getsockname()[1] for each in (first, second)}


def test_the_kernel_tells_the_same_listeners_in_both_ways(listening: set[int]) -> None:
    asked = network.asked_listeners()
    tabled = network.tabled_listeners(core.Machine("/", 5, []))
    for port in listening:
        assert asked[port, "127.0.0.1"] == tabled[port, "127.0.0.1"]


def test_the_program_behind_a_port_is_named(listening: set[int]) -> None:
    found = {each["port"]: each["process"] for each in told(network.listeners, core.Machine("/", 5, []))["listeners"]}
    own = Path("/proc/self/comm").read_text().strip()
    assert {found[port] for port in listening} == {own}


CDI = """\
---
cdiVersion: 0.5.0
containerEdits:
  deviceNodes:
  - path: /dev/nvidiactl
  hooks:
  - args:
    - nvidia-cdi-hook
    hookName: createContainer
  mounts:
  - containerPath: /usr/lib/x86_64-linux-gnu/libcuda.so.580.95.05
    hostPath: /usr/lib/x86_64-linux-gnu/libcuda.so.580.95.05
devices:
- containerEdits:
    deviceNodes:
    - name: not-a-device
      path: /dev/nvidia0
  name: "0"
- containerEdits:
    deviceNodes:
    - path: /dev/nvidia0
  name: GPU-00000000-0000-4000-8000-000000000000
- name: all
  containerEdits: {}
kind: nvidia.com/gpu
"""
TOML = """\
disable-require = false
[nvidia-container-cli]
no-cgroups = true # rootless
#no-cgroups = false
[nvidia-container-runtime]
log-level = "info"
mode = "auto"
[nvidia-container-runtime.modes.csv]
mode = "other"
"""


def test_device_specifications_are_read_without_a_yaml_library(tmp_path: Path) -> None:
    own = json.dumps({"cdiVersion": "0.6.0", "kind": "example.com/npu", "devices": [{"name": "0"}, {"name": "1"}]})
    files: dict[str, str | bytes] = {
        "var/run/cdi/nvidia.yaml": CDI,
        "etc/cdi/own.json": own,
        "etc/cdi/broken.json": "{",
        "etc/cdi/README": "no specification",
        "etc/nvidia-container-runtime/config.toml": TOML,
    }
    document = told(toolkit.toolkit, machine(tmp_path, files))
    found = document["container_toolkit"]
    assert [each["path"] for each in found["specifications"]] == [
        "/etc/cdi/broken.json",
        "/etc/cdi/own.json",
        "/var/run/cdi/nvidia.yaml",
    ]
    assert found["specifications"][1]["devices"] == ["example.com/npu=0", "example.com/npu=1"]
    assert found["specifications"][2] == {
        "path": "/var/run/cdi/nvidia.yaml",
        "readable": True,
        "devices": [f"nvidia.com/gpu={name}" for name in ("0", "GPU-00000000-0000-4000-8000-000000000000", "all")],
        "driver_version": "580.95.05",
    }
    assert (found["no_cgroups"], found["mode"]) == (True, "auto")
    assert document["notes"][0]["kind"] == "absent"


def test_indented_lists_are_read_too() -> None:
    text = (
        'kind: "nvidia.com/gpu"\ndevices:\n  - name: "0"\n    containerEdits:\n      deviceNodes:\n        - name: x\n'
    )
    assert toolkit.read_yaml(text) == ("nvidia.com/gpu", ["0"])


UNIT = """\
[Unit]
After=docker.service
[Service]
; a comment
Environment="HF_TOKEN=hf_abc" VLLM_LOGGING_LEVEL=DEBUG
ExecStart=/usr/bin/docker run --rm --gpus all \\
    -e VLLM_API_KEY=abc \\
    vllm/vllm-openai:v0.19.1 --api-key sekret --port 8000
Restart=always
"""


def test_units_that_serve_are_told_with_their_settings_and_no_secret(tmp_path: Path) -> None:
    files: dict[str, str | bytes] = {
        "etc/systemd/system/llm.service": UNIT,
        "etc/systemd/system/llm.service.d/limits.conf": "[Service]\nLimitMEMLOCK=infinity\n",
        "etc/systemd/system/backup.service": "[Service]\nExecStart=/usr/bin/rsync a b\n",
        "usr/lib/systemd/system/nginx.service": "[Service]\nExecStart=/usr/sbin/nginx\n",
        "usr/lib/systemd/system/cron.service": "[Service]\nExecStart=/usr/sbin/cron # not vllm\n",
    }
    host = machine(tmp_path, files)
    (tmp_path / "etc/systemd/system/alias.service").symlink_to("/usr/lib/systemd/system/nginx.service")
    (tmp_path / "etc/systemd/system/masked-vllm.service").symlink_to("/dev/null")
    units = {each["name"]: each for each in told(services.services, host)["systemd_units"]}
    assert set(units) == {"llm.service", "nginx.service"}
    assert units["llm.service"]["settings"] == [
        ["After", "docker.service"],
        ["Environment", '"HF_TOKEN=(hidden)" VLLM_LOGGING_LEVEL=DEBUG'],
        [
            "ExecStart",
            "/usr/bin/docker run --rm --gpus all -e VLLM_API_KEY=(hidden) vllm/vllm-openai:v0.19.1 --api-key (hidden) "
            "--port 8000",
        ],
        ["Restart", "always"],
        ["LimitMEMLOCK", "infinity"],
    ]


def test_a_host_without_systemd_is_told(tmp_path: Path) -> None:
    assert told(services.services, machine(tmp_path))["notes"][0]["kind"] == "absent"


def inspected(host: dict[str, object], **config: object) -> dict[str, Any]:
    return {"Name": "/llm", "HostConfig": host, "Config": {"Image": "vllm", **config}, "State": {"Status": "running"}}


@pytest.mark.parametrize(
    ("host", "variables", "asks"),
    [
        ({}, [], False),
        ({}, ["NVIDIA_VISIBLE_DEVICES=all"], False),
        ({"DeviceRequests": [{"Driver": "", "Count": -1, "Capabilities": [["gpu"]]}]}, [], True),
        ({"DeviceRequests": [{"Driver": "cdi", "DeviceIDs": ["nvidia.com/gpu=all"]}]}, [], True),
        ({"Runtime": "nvidia"}, ["NVIDIA_VISIBLE_DEVICES=all"], True),
        ({"Runtime": "nvidia"}, ["NVIDIA_VISIBLE_DEVICES=void"], False),
        ({"Runtime": "nvidia"}, [], False),
        ({"Devices": [{"PathOnHost": "/dev/nvidia0"}]}, [], True),
        ({"Devices": [{"PathOnHost": "/dev/davinci0"}]}, [], True),
        ({"Devices": [{"PathOnHost": "/dev/fuse"}]}, [], False),
    ],
)
def test_a_container_may_ask_for_gpus_in_many_ways(host: dict[str, object], variables: list[str], asks: bool) -> None:
    assert docker_daemon.container(inspected(host, Env=variables), "runc")["gpus"] is asks


def test_a_container_is_told_as_docker_inspects_it() -> None:
    host = {
        "ShmSize": 67108864,
        "IpcMode": "private",
        "NetworkMode": "bridge",
        "Runtime": "runc",
        "RestartPolicy": {"Name": "unless-stopped"},
        "PortBindings": {"8000/tcp": [{"HostIp": "", "HostPort": "8000"}], "9/tcp": [{"HostPort": ""}]},
        "SecurityOpt": ["label=disable"],
        "Privileged": False,
    }
    found = docker_daemon.container(inspected(host), "runc")
    assert found == {
        "name": "llm",
        "image": "vllm",
        "state": "running",
        "restart_policy": "unless-stopped",
        "shm_size": 67108864,
        "ipc_mode": "private",
        "network_mode": "bridge",
        "runtime": "runc",
        "gpus": False,
        "privileged": False,
        "security_options": ["label=disable"],
        "ports": [8000],
        "device_paths": [],
    }
    assert docker_daemon.container(inspected({**host, "IpcMode": "host"}), "runc")["shm_size"] is None


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("64M", 64 << 20),
        ("16gb", 16 << 30),
        ("1.5GiB", 3 << 29),
        (67108864, 67108864),
        ("0.5k", 512),
        (None, None),
        ("x", None),
    ],
)
def test_sizes_are_read_as_docker_reads_them(text: object, size: int | None) -> None:
    assert docker_daemon.size_in_bytes(text) == size


def test_the_daemons_own_settings_come_from_its_file(tmp_path: Path) -> None:
    settings = {"log-opts": {"max-size": "10m", "max-file": "3"}, "default-shm-size": "8G"}
    host = machine(tmp_path, {"etc/docker/daemon.json": json.dumps(settings)})
    assert docker_daemon.daemon_settings(host, {}, None) == {
        "log_options": [["max-file", "3"], ["max-size", "10m"]],
        "shm_size": 8 << 30,
    }
    (tmp_path / "etc/docker/daemon.json").unlink()
    assert docker_daemon.daemon_settings(host, {}, None) == {"log_options": [], "shm_size": None}
    (tmp_path / "etc/docker/daemon.json").write_text("{ broken")
    assert docker_daemon.daemon_settings(host, {}, None) == {}


@pytest.mark.parametrize("pid", [None, 1, 77])
def test_the_daemons_command_line_tells_more(pid: int | None, tmp_path: Path) -> None:
    line = "dockerd\0--config-file=/etc/own.json\0--log-opt\0max-size=5m\0--default-shm-size\x001g\0--debug\0"
    files: dict[str, str | bytes] = {
        "var/run/docker.pid": "77\n",
        "proc/77/comm": "dockerd\n",
        "proc/77/cmdline": line,
        "proc/1/comm": "systemd\n",
        "proc/1/cmdline": "/sbin/init\0",
        "etc/own.json": json.dumps({"log-opts": {"max-size": "1m", "compress": True}}),
    }
    assert docker_daemon.daemon_settings(machine(tmp_path, files), {}, pid) == {
        "log_options": [["compress", "True"], ["max-size", "5m"]],
        "shm_size": 1 << 30,
    }


def test_an_ascend_host_tells_its_files_and_versions(tmp_path: Path) -> None:
    device = "sys/bus/pci/devices/0000:c1:00.0/"
    card = "sys/bus/pci/devices/0000:7d:00.0/"
    files: dict[str, str | bytes] = {
        device + "vendor": "0x19e5\n",
        device + "class": "0x120000\n",
        card + "vendor": "0x19e5\n",
        card + "class": "0x020000\n",
        "proc/bus/pci/devices": "c100\t19e5d802\t0\n",
        "dev/davinci0": "",
        "dev/davinci_manager": "",
        "usr/local/Ascend/driver/version.info": "Version=24.1.rc3\nascendhal_version=7.35.19\n",
        "usr/local/Ascend/firmware/version.info": "Version=7.5.0.1.129\n",
        "usr/local/Ascend/ascend-toolkit/latest/aarch64-linux/ascend_toolkit_install.info": "name=x\nversion=8.1.RC1\n",
    }
    assert told(ascend.ascend, machine(tmp_path, files))["ascend"] == {
        "pci_devices": ["0000:c1:00.0"],
        "files": ["/dev/davinci_manager", "/usr/local/Ascend/driver/version.info", "/dev/davinci0"],
        "driver_version": "24.1.rc3",
        "firmware_version": "7.5.0.1.129",
        "cann_version": "8.1.RC1",
    }


def test_a_host_without_npus_says_so(tmp_path: Path) -> None:
    files: dict[str, str | bytes] = {"proc/bus/pci/devices": "3b00\t10de1db6\t0\n"}
    assert told(ascend.ascend, machine(tmp_path, files)) == {"ascend": {"pci_devices": [], "files": []}, "notes": []}


@pytest.mark.parametrize(
    ("devices", "info", "request_"),
    [
        (["null"], {}, []),
        (["nvidia0", "nvidiactl"], {}, ["--gpus", "all"]),
        (
            ["nvidia0"],
            {"DiscoveredDevices": [{"Source": "cdi", "ID": "nvidia.com/gpu=all"}]},
            ["--device", "nvidia.com/gpu=all"],
        ),
        (["davinci3", "davinci_manager"], {}, ["--device", "/dev/davinci3", "--device", "/dev/davinci_manager"]),
    ],
)
def test_the_calculation_gets_its_gpus_as_the_host_gives_them(
    devices: list[str], info: dict[str, object], request_: list[str], tmp_path: Path
) -> None:
    host = machine(tmp_path, {f"dev/{name}": "" for name in devices})
    assert smoke.gpu_request(host, info) == request_


def test_the_container_of_the_calculation_is_confined_and_pulls_nothing() -> None:
    info = {"SecurityOptions": ["name=seccomp,profile=builtin", "name=selinux"]}
    arguments = smoke.run_arguments("a/b:1", "n", ["--gpus", "all"], info)
    line = " ".join(arguments[:-1])
    assert line == (
        "run --rm --pull never --name n --network none --security-opt label=disable --gpus all "
        "--entrypoint python3 a/b:1 -c"
    )
    assert "label=disable" not in smoke.run_arguments("a/b:1", "n", ["--gpus", "all"], {})
    with pytest.raises(core.Unknown, match="not the name of an image"):
        smoke.run_arguments("--privileged", "n", [], {})


def test_the_program_of_the_calculation_runs_without_torch_too() -> None:
    done = subprocess.run([sys.executable, "-S", "-c", smoke.PROGRAM], capture_output=True, text=True, check=True)
    found = smoke.result("a/b:1", 0, "warning: x\n" + done.stdout, "", wants_gpu=False)
    assert found["where"] == "a/b:1"
    assert found["python_version"] == ".".join(map(str, sys.version_info[:3]))
    assert found["error"] == "ModuleNotFoundError: No module named 'torch'"
    assert "gpu_ok" not in found


@pytest.mark.parametrize(
    ("output", "messages", "wants_gpu", "found"),
    [
        ('{"count": 2, "gpu_ok": true}', "", True, {"gpu_ok": True, "error": None}),
        ('{"count": 0}', "", True, {"gpu_ok": False, "error": "PyTorch sees no GPU in the container"}),
        (
            '{"count": 1, "gpu_ok": false, "error": "CUDA error: no kernel image"}',
            "",
            True,
            {"gpu_ok": False, "error": "CUDA error: no kernel image"},
        ),
        (
            "",
            'docker: could not select device driver "" with capabilities: [[gpu]]',
            True,
            {"gpu_ok": False, "error": 'docker: could not select device driver "" with capabilities: [[gpu]]'},
        ),
    ],
)
def test_a_calculation_is_judged_by_what_was_asked(
    output: str, messages: str, wants_gpu: bool, found: dict[str, object]
) -> None:
    assert smoke.result("i", 1, output, messages, wants_gpu) == {"where": "i", **found}


def test_an_image_that_is_not_there_is_an_absent_fact() -> None:
    with pytest.raises(core.Unknown) as caught:
        smoke.result("i", 125, "", "docker: Error response from daemon: No such image: i", True)
    assert caught.value.kind == "absent"


def test_the_kernel_tells_the_interfaces_and_their_addresses() -> None:
    found = {each["name"]: each for each in told(network.interfaces, core.Machine("/", 5, []))["interfaces"]}
    assert found["lo"]["loopback"] is True and found["lo"]["up"] is True
    assert "127.0.0.1/8" in found["lo"]["addresses"]
    assert set(found) == {each.name for each in Path("/sys/class/net").iterdir() if each.is_dir()}
    by_program = json.loads(subprocess.run(["ip", "-json", "address"], capture_output=True, check=True).stdout)
    assert {name: sorted(each["addresses"]) for name, each in found.items()} == {
        each["ifname"]: sorted(f"{one['local']}/{one['prefixlen']}" for one in each["addr_info"]) for each in by_program
    }
