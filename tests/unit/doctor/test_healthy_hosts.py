"""Healthy hosts of every kind: nothing is wrong with them, and what is good to know of each fits on one screen."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from onecat.config import Profile
from onecat.doctor import Settings, examine
from onecat.doctor.packages import kernel_argument, rebuild_initramfs
from onecat.facts import (
    Clock,
    DockerContainer,
    FabricManager,
    Facts,
    Gpu,
    GpuPair,
    GpuProcess,
    Listener,
    LoadMeasurement,
    Nvidia,
    NvLink,
    OperatingSystem,
    PciBus,
    PciPort,
    SeLinux,
    Tools,
)
from tests.unit.doctor.examples import CPU, GIB, H200, V100, WITHOUT_GPU, a100, device, h200, v100
from tests.unit.doctor.host_examples import KNOWN

assert KNOWN.operating_system is not None and KNOWN.nvidia is not None and KNOWN.docker is not None
MIB = 1 << 20
DRIVER = KNOWN.nvidia
ABSENT_DOCKER = replace(KNOWN.docker, state="absent", server_version=None, containers=None)


def host(system: dict[str, Any] | None = None, nvidia: Nvidia | None = DRIVER, **changes: Any) -> Facts:
    assert KNOWN.operating_system is not None
    return replace(KNOWN, operating_system=replace(KNOWN.operating_system, **(system or {})), nvidia=nvidia, **changes)


def board(make: Any, **changes: Any) -> Nvidia:
    """Eight GPUs that NVSwitches connect, four near each processor, behind PCIe switches with ACS on."""
    addresses = [f"0000:{bus:02x}:00.0" for bus in (0x1B, 0x43, 0x52, 0x61, 0x9D, 0xC3, 0xD1, 0xDF)]
    switches = [PciPort(f"0000:{0x10 + index // 2:02x}:00.0", acs=()) for index in range(8)]
    devices = tuple(
        replace(
            device(0),
            address=address,
            device_id="2330",
            numa_node=index // 4,
            path=(PciPort(f"0000:{0x70 + index:02x}:00.0", acs=("SrcValid", "ReqRedir")), switches[index]),
        )
        for index, address in enumerate(addresses)
    )
    gpus = tuple(replace(make(0), index=index, pci_address=address) for index, address in enumerate(addresses))
    pairs = tuple(GpuPair(one, other, "NV18", "ok", "ok") for one in range(8) for other in range(one + 1, 8))
    manager = FabricManager("580.95.05", running=True)
    board = replace(DRIVER, gpus=gpus, pairs=pairs, pci_devices=devices, nvswitches=4, fabric_manager=manager)
    return replace(board, **changes)


def h100(index: int) -> Gpu:
    return replace(
        h200(index),
        name="NVIDIA H100 80GB HBM3",
        memory_total=80 * GIB,
        memory_clock_max_mhz=2619,
        memory_clock_application_mhz=2619,
        bar1_total=128 * GIB,
        memory_used=600 * MIB,
    )


def a100_sxm(index: int) -> Gpu:
    links = tuple(NvLink(link, True, 25.8, 0, 0) for link in range(12))
    return a100(
        index, name="NVIDIA A100-SXM4-80GB", nvlinks=links, memory_clock_max_mhz=1593, memory_clock_application_mhz=1593
    )


def geforce(index: int, name: str = "NVIDIA GeForce RTX 4090", **changes: Any) -> Gpu:
    """A card without ECC, application clocks, MIG and NVLink, with a desktop on it."""
    absent = [
        name
        for name in Gpu.__dataclass_fields__
        if name.startswith(("ecc_", "retired_", "remapped_", "graphics_clock_app"))
    ]
    desktop: dict[str, Any] = {
        "name": name,
        "compute_capability": "8.9",
        "memory_total": 24 * GIB,
        "memory_used": 700 * MIB,
        "memory_clock_application_mhz": None,
        "bar1_total": 256 * MIB,
        "processes": (GpuProcess(1800, "Xorg", 420 * MIB), GpuProcess(2100, "gnome-shell", 90 * MIB)),
    }
    return replace(v100(index), **{**dict.fromkeys(absent), **desktop, **changes})


def of(*gpus: Gpu, **changes: Any) -> Nvidia:
    pairs = tuple(
        GpuPair(one, other, "PHB", "chipset not supported", "chipset not supported")
        for one in range(len(gpus))
        for other in range(one + 1, len(gpus))
    )
    devices = tuple(
        replace(device(min(index, 1)), address=gpu.pci_address or "", device_id="2684", numa_node=0)
        for index, gpu in enumerate(gpus)
    )
    return replace(DRIVER, **{"gpus": gpus, "pairs": pairs, "pci_devices": devices, **changes})


MONITOR = DockerContainer(
    name="dcgm-exporter",
    image="nvcr.io/nvidia/k8s/dcgm-exporter:4.4",
    state="running",
    restart_policy="always",
    shm_size=64 * MIB,
    gpus=True,
    privileged=False,
    ports=(9400,),
)
ON_ARM = {"architecture": "aarch64"}
GUEST = {"virtualization": "kvm"}
DISPLAY = replace(
    geforce(1, "NVIDIA GeForce GTX 1080 Ti"), index=2, pci_address="0000:17:00.0", compute_capability="6.1"
)
ORIN = Nvidia(
    driver_version="540.4.0",
    library_version="540.4.0",
    kernel_module_version="540.4.0",
    kernel_module_open=True,
    nouveau_loaded=False,
    library_found=True,
    gpus=(Gpu(0, "Orin (nvgpu)", compute_capability="8.7"),),
)
VFIO = (replace(device(0), driver="vfio-pci"), replace(device(1), driver="vfio-pci"))
NEVER_USED = ("/dev/nvidia0", "/dev/nvidia1", "/dev/nvidiactl")

HOSTS: dict[str, tuple[Facts, Profile | None, set[str]]] = {
    "two V100 on the machine itself": (host(), V100, {"topology.layout", "topology.numa"}),
    "two V100 in a virtual machine": (
        host(GUEST, of(*(v100(index, virtualization_mode="pass-through") for index in (0, 1)))),
        V100,
        {"os.virtualization", "topology.layout", "topology.peer-access"},
    ),
    "two V100 beside a card for the display": (
        host(nvidia=of(v100(0), v100(1), DISPLAY, pairs=DRIVER.pairs)),
        V100,
        {"gpu.compute-capability"},
    ),
    "eight A100 on a board": (host(nvidia=board(a100_sxm)), None, set()),
    "eight H100 on a board": (
        host({"kernel_command_line": "ro quiet"}, board(h100), pci=PciBus("default", 90)),
        None,
        {"pcie.iommu"},
    ),
    "an H200 in a virtual machine": (host(GUEST, of(h200(0, fabric_state=None))), H200, {"os.virtualization"}),
    "a workstation with two RTX 4090": (
        host(nvidia=of(geforce(0), geforce(1))),
        None,
        {"topology.layout", "topology.peer-access"},
    ),
    "a laptop": (
        host(
            nvidia=of(
                geforce(
                    0,
                    "NVIDIA GeForce RTX 4060 Laptop GPU",
                    memory_total=8 * GIB,
                    memory_used=90 * MIB,
                    power_limit_watts=None,
                    pcie_width_current=8,
                    pcie_width_max=8,
                ),
                pci_devices=(),
            )
        ),
        None,
        set(),
    ),
    "WSL": (
        host(
            {"virtualization": "wsl", "kernel": "6.6.87.2-microsoft-standard-WSL2"},
            replace(
                of(geforce(0, persistence_mode=False)),
                kernel_module_version=None,
                kernel_module_open=None,
                kernel_module_file_version=None,
                pci_devices=(),
                device_files=(),
                dev_char_links=None,
            ),
            clock=Clock(synchronized=False, offset_seconds=0.2),
        ),
        None,
        {"os.virtualization"},
    ),
    "a GPU in instances": (
        host(nvidia=of(h200(0, mig_enabled=True, mig_devices=7, utilization_percent=None, memory_used=None))),
        None,
        {"gpu.mig"},
    ),
    "a Grace Hopper": (
        host(ON_ARM, of(h200(0, name="NVIDIA GH200 480GB", bar1_total=128 * GIB, nvlinks=None, fabric_state=None))),
        None,
        set(),
    ),
    "a Jetson": (host(ON_ARM, ORIN, container_toolkit=None), None, set()),
    "a machine without GPU": (replace(KNOWN, nvidia=WITHOUT_GPU.nvidia), CPU, set()),
    "a machine without GPU, for nothing in particular": (
        replace(KNOWN, nvidia=WITHOUT_GPU.nvidia),
        None,
        {"gpu.present"},
    ),
    "a machine without Docker": (host(nvidia=WITHOUT_GPU.nvidia, docker=ABSENT_DOCKER), CPU, {"docker.daemon"}),
    "a system made of an image, with Podman only": (
        host(
            {"id": "fedora", "version_id": "43", "kernel_command_line": "ostree=/ostree/boot.1/fedora"},
            docker=ABSENT_DOCKER,
            selinux=SeLinux("enforcing", "targeted", (("container_use_devices", False),)),
            tools=Tools(paths=(("podman", "/usr/bin/podman"),)),
        ),
        None,
        {"docker.daemon", "serving.nginx", "topology.layout", "topology.numa"},
    ),
    "a host that is watched": (
        host(docker=replace(KNOWN.docker, containers=(MONITOR,))),
        V100,
        {"topology.layout", "topology.numa"},
    ),
    "a node of a cluster": (
        host(docker=ABSENT_DOCKER, listeners=(Listener("0.0.0.0", 10250, "kubelet"),)),
        None,
        {"docker.daemon", "topology.layout", "topology.numa"},
    ),
    "a host that has just started": (
        host(nvidia=replace(DRIVER, device_files=NEVER_USED)),
        V100,
        {"docker.uvm-device", "topology.layout", "topology.numa"},
    ),
    "a host at its power limit": (
        host(
            nvidia=replace(
                DRIVER,
                gpus=tuple(
                    v100(
                        index,
                        event_reasons=0x4,
                        temperature_celsius=78,
                        power_draw_watts=250.0,
                        utilization_percent=100,
                    )
                    for index in (0, 1)
                ),
            )
        ),
        V100,
        {"topology.layout", "topology.numa"},
    ),
    "a host whose GPUs are for virtual machines": (
        host(nvidia=Nvidia(nouveau_loaded=False, library_found=False, pci_devices=VFIO)),
        None,
        {"gpu.present"},
    ),
}


@pytest.mark.parametrize("name", HOSTS)
def test_a_healthy_host_is_told_nothing_but_what_is_good_to_know(name: str) -> None:
    facts, profile, expected = HOSTS[name]
    findings = examine(facts, profile)
    assert [finding for finding in findings if finding.status in ("fail", "warn")] == []
    assert {finding.check for finding in findings if finding.status == "info"} == expected


@pytest.mark.parametrize("name", HOSTS)
def test_what_is_good_to_know_fits_on_one_screen(name: str) -> None:
    facts, profile, _ = HOSTS[name]
    assert len([finding for finding in examine(facts, profile) if finding.status == "info"]) <= 4


def test_a_host_that_serves_for_onecat_already_is_not_warned_of_its_own_server() -> None:
    busy = host(nvidia=replace(DRIVER, gpus=tuple(v100(index, memory_used=29 * GIB) for index in (0, 1))))
    own = Settings(own_ports=(8000,), own_names=("onecat-qwen-0001",))
    assert {each.status for each in examine(busy, V100, own, only=["gpu.memory-held"])} == {"info"}
    assert {each.status for each in examine(busy, V100, only=["gpu.memory-held"])} == {"warn"}


def test_gpus_given_to_virtual_machines_are_missed_by_a_profile_that_wants_them() -> None:
    facts = HOSTS["a host whose GPUs are for virtual machines"][0]
    assert "driver.loaded" in {each.check for each in examine(facts, V100) if each.status == "fail"}


def test_what_to_install_on_a_system_made_of_an_image() -> None:
    facts = HOSTS["a system made of an image, with Podman only"][0]
    (finding,) = examine(facts, only=["serving.nginx"])
    assert finding.fix[0] == "sudo rpm-ostree install nginx, then: sudo reboot"


def test_what_only_the_host_of_a_container_can_put_right_says_so() -> None:
    gpus = (v100(0, ecc_uncorrected_volatile=1),)
    inside = host({"container": True}, of(*gpus), clock=Clock(synchronized=False))
    (finding,) = examine(inside, only=["gpu.ecc-errors"])
    assert finding.fix[0] == "on the host of this container:"
    assert examine(inside, only=["clock.synchronized"])[0].status == "skip"
    assert examine(host(nvidia=of(*gpus)), only=["gpu.ecc-errors"])[0].fix == finding.fix[1:]


def test_what_is_done_at_the_machine_itself_is_not_asked_of_a_virtual_one() -> None:
    narrow = of(v100(0, pcie_replay_counter=0), loads=(LoadMeasurement(0, replays=3),))
    (inside,) = examine(host(GUEST, narrow), only=["pcie.replays"])
    (outside,) = examine(host(nvidia=narrow), only=["pcie.replays"])
    assert outside.fix[0] == "power off, reseat the card, replace the riser"
    assert inside.fix == (f"below this virtual machine: {outside.fix[0]}", *outside.fix[1:])


@pytest.mark.parametrize(
    ("system", "rebuild", "argument"),
    [
        ({"id": "ubuntu"}, "sudo update-initramfs -u", "sudo update-grub"),
        ({"id": "rocky"}, "sudo dracut --force", "sudo grubby --update-kernel=ALL --args=iommu=pt"),
        ({"id": "sles"}, "sudo dracut --force", "grub2-mkconfig"),
        ({"id": "fedora", "kernel_command_line": "ostree=/ostree/boot.1"}, "rpm-ostree", "rpm-ostree kargs"),
        ({"id": "alpine"}, "or", "have GRUB write its menu"),
    ],
)
def test_what_to_type_is_that_of_the_distribution(system: dict[str, str], rebuild: str, argument: str) -> None:
    known = OperatingSystem(**system)  # type: ignore[arg-type]
    assert rebuild in rebuild_initramfs(known)
    assert argument in kernel_argument(known, "iommu=pt")
