"""Public cases as hosts: what doctor must say of each that its facts show.

tests/fixtures/cases/assignment.yaml says what is expected and why; the cases' own texts lie in shared/cases. Where it
says `evidence`, the importers read the case's text. Where it says `stated`, the case names its facts in prose (GPU,
driver, engine release, what was found in the end): STATED builds from that what a probe would have seen, and nothing
else, so that every other check has to skip.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from onecat.config import load_profile
from onecat.doctor import Finding, examine
from onecat.facts import (
    CdiSpecification,
    ContainerToolkit,
    Docker,
    EngineEnvironment,
    FabricManager,
    Facts,
    Filesystem,
    Gpu,
    GpuPair,
    GpuProcess,
    Nvidia,
    OperatingSystem,
    PciBus,
    PciDevice,
    PciPort,
)
from onecat.probe.importers import Capture, parse_capture
from onecat.probe.merging import facts_from_parts
from tests.public_cases import ASSIGNMENT, evidence

EXPECTED = {case: row["doctor"] for case, row in ASSIGNMENT.items() if "doctor" in row}
GIB = 1 << 30
MIB = 1 << 20


def host(*gpus: Gpu, **changes: Any) -> Facts:
    nvidia = {key: changes.pop(key) for key in list(changes) if key in Nvidia.__dataclass_fields__}
    return Facts(host="case", nvidia=Nvidia(gpus=gpus, **nvidia), **changes)


def several(name: str, count: int, capability: str) -> tuple[Gpu, ...]:
    return tuple(
        Gpu(index, name, pci_address=f"0000:{index + 1:02x}:00.0", compute_capability=capability)
        for index in range(count)
    )


def engine(where: str, torch: str, cuda: str, **changes: Any) -> EngineEnvironment:
    return EngineEnvironment(where, torch_version=torch, torch_cuda_version=cuda, **changes)


def pairs(connections: dict[tuple[int, int], str], access: str | None = None) -> tuple[GpuPair, ...]:
    return tuple(GpuPair(*pair, connection, access, access) for pair, connection in connections.items())


def below(gpu: Gpu, *path: PciPort, **changes: Any) -> PciDevice:
    return PciDevice(gpu.pci_address or "", "10de", "0000", driver="nvidia", path=path, **changes)


def behind_switches() -> Facts:
    """Four GPUs, two below each of two switches whose ports redirect (C081)."""
    gpus = several("Tesla V100-PCIE-32GB", 4, "7.0")
    redirecting = ("SrcValid", "ReqRedir", "CmpltRedir")
    devices = []
    for gpu in gpus:
        switch = gpu.index // 2
        devices.append(
            below(
                gpu,
                PciPort(f"0000:{gpu.index + 32:02x}:00.0", acs=redirecting),
                PciPort(f"0000:{switch + 64:02x}:00.0"),
                PciPort(f"0000:00:0{switch + 1}.0"),
            )
        )
    connections = {(0, 1): "PXB", (2, 3): "PIX", (0, 2): "SYS", (0, 3): "SYS", (1, 2): "SYS", (1, 3): "SYS"}
    return host(
        *gpus,
        pci_devices=tuple(devices),
        pairs=pairs(connections),
        operating_system=OperatingSystem(virtualization="none"),
    )


def on_two_sockets() -> Facts:
    """Eight GPUs that all say SYS of each other, four near each processor (C128)."""
    gpus = several("NVIDIA GeForce RTX 4090", 8, "8.9")
    connections = {(first, second): "SYS" for first in range(8) for second in range(first + 1, 8)}
    return host(
        *gpus,
        pairs=pairs(connections),
        pci_devices=tuple(below(gpu, numa_node=gpu.index // 4) for gpu in gpus),
    )


def losing_devices() -> Facts:
    """systemd manages the control groups and /dev/char has no links (C054, C056)."""
    gpu = Gpu(0, "NVIDIA GPU")
    return host(
        gpu,
        device_files=("/dev/nvidia0", "/dev/nvidiactl", "/dev/nvidia-uvm"),
        dev_char_links=False,
        docker=Docker("reachable", cgroup_driver="systemd", runtimes=("nvidia", "runc")),
    )


def without_fabric_manager(driver: str | None) -> Facts:
    return host(
        *several("NVIDIA H100 80GB HBM3", 8, "9.0"),
        driver_version=driver,
        nvswitches=4,
        fabric_manager=FabricManager(running=False),
    )


def small_shm() -> Facts:
    return Facts("case", filesystems=(Filesystem("shm", "/dev/shm", 64 * MIB, 64 * MIB),))


STATED: dict[str, Callable[[], Facts]] = {
    "C001": lambda: host(
        *several("Tesla V100-PCIE-32GB", 1, "7.0"), engines=(engine("vllm-openai 0.9", "2.7.0+cu128", "12.8"),)
    ),
    "C005": lambda: host(
        *several("NVIDIA GeForce RTX 5090 D", 1, "12.0"), engines=(engine("vLLM 0.8", "2.6.0+cu124", "12.4"),)
    ),
    "C007": lambda: host(*several("NVIDIA GB10", 1, "12.1"), engines=(engine("vLLM 0.12", "2.9.0+cu128", "12.8"),)),
    "C071": lambda: host(
        Gpu(0, "NVIDIA GPU"),
        driver_version="580.95.05",
        container_toolkit=ContainerToolkit(
            version="1.17.8",
            specifications=(CdiSpecification("/etc/cdi/nvidia.yaml", True, ("nvidia.com/gpu=all",), "580.95.05"),),
        ),
    ),
    "C054": losing_devices,
    "C056": losing_devices,
    "C068": small_shm,
    "C080": small_shm,
    "C062": lambda: host(
        Gpu(0, "NVIDIA GPU"),
        device_files=("/dev/nvidia0", "/dev/nvidiactl"),
        operating_system=OperatingSystem(container=True),
        engines=(EngineEnvironment("host", cuda_available=False),),
    ),
    "C107": lambda: host(
        Gpu(0, "NVIDIA H100 80GB HBM3", processes=(GpuProcess(4711, "VLLM::EngineCore", stuck_in="uvm_spin_loop"),))
    ),
    "C040": lambda: host(
        library_version="570.124.04",
        kernel_module_version="570.124.06",
        kernel_module_open=True,
        nvml_error="Driver/library version mismatch",
        library_found=True,
    ),
    "C050": lambda: without_fabric_manager("580.126.20"),
    "C052": lambda: without_fabric_manager(None),
    "C106": lambda: host(
        Gpu(
            0,
            "NVIDIA GB10",
            memory_total=round(121.63 * GIB),
            memory_used=104277 * MIB,
            processes=(GpuProcess(4711, "VLLM::EngineCore", 104277 * MIB),),
        )
    ),
    "C081": behind_switches,
    "C083": lambda: host(
        *several("NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition", 4, "12.0"),
        operating_system=OperatingSystem(virtualization="none", kernel_command_line="BOOT_IMAGE=/vmlinuz ro quiet"),
        pci=PciBus(iommu_groups=60),
    ),
    "C085": lambda: host(
        *several("NVIDIA GeForce RTX 5090", 2, "12.0"),
        driver_version="570.124.06",
        engines=(engine("nv25.02", "2.7.0a0", "12.8", packages=(("nvidia-nccl-cu12", "2.25.1"),)),),
    ),
    "C129": lambda: host(
        *several("NVIDIA GeForce RTX 5090", 2, "12.0"), pairs=pairs({(0, 1): "PHB"}, "GPU not supported")
    ),
    "C128": on_two_sockets,
    "C092": lambda: host(
        replace(several("NVIDIA GeForce RTX 3090", 1, "8.6")[0], pcie_width_current=4, pcie_width_max=16),
        pci_devices=(
            below(
                several("", 1, "8.6")[0],
                PciPort("0000:00:01.0", link_width_current=4, link_width_max=4),
                link_width_current=4,
                link_width_max=16,
            ),
        ),
    ),
}

# What a capture needs around a case's excerpt to be what the program printed.
AROUND: dict[str, Callable[[str], str]] = {
    "C096": lambda text: f"NVRM: {text}",
    "C090": lambda text: (
        "01:00.0 VGA compatible controller: NVIDIA Corporation AD102 [GeForce RTX 4090] (rev a1)\n"
        + "".join(f"\t\t{line}\n" for line in text.splitlines())
    ),
}
# What the case names beside its text.
BESIDE: dict[str, dict[str, Any]] = {
    # The error is of a port; it counts for doctor where a GPU is below that port.
    "C093": {
        "nvidia": {
            "pci_devices": [
                {
                    "address": "0000:02:00.0",
                    "vendor_id": "10de",
                    "device_id": "1db6",
                    "path": [{"address": "0000:00:02.0"}],
                }
            ]
        }
    },
    "C096": {"nvidia": {"driver_version": "525.60.13", "gpus": [{"index": 0, "name": "NVIDIA GPU"}]}},
}


def facts_of(case: str) -> Facts:
    if EXPECTED[case]["form"] == "stated":
        return STATED[case]()
    text = AROUND.get(case, str)(evidence()[case])
    parts = list(parse_capture(Capture("case", text)))
    if case in BESIDE:
        parts.append(("stated", BESIDE[case]))
    return facts_from_parts("case", parts)


def findings(case: str) -> tuple[Finding, ...]:
    profile = EXPECTED[case].get("profile")
    return examine(facts_of(case), load_profile(profile) if profile else None)


def test_every_stated_case_has_its_facts() -> None:
    assert {case for case, row in EXPECTED.items() if row["form"] == "stated"} == set(STATED)


@pytest.mark.parametrize("case", sorted(EXPECTED))
def test_doctor_says_of_a_case_what_its_facts_show(case: str) -> None:
    expected = EXPECTED[case]
    told = [finding for finding in findings(case) if finding.check == expected["check"]]
    assert min((finding.status for finding in told), key=_severity) == expected["status"]
    text = "\n".join("\n".join([each.subject, each.title, *each.evidence, *each.fix]) for each in told)
    for words in expected.get("says", ()):
        assert words in text


@pytest.mark.parametrize("case", sorted(EXPECTED))
def test_doctor_says_nothing_worse_of_a_case_than_what_is_wrong_with_it(case: str) -> None:
    expected = EXPECTED[case]
    also = ALSO_TRUE.get(case, set())
    others = {
        finding.check
        for finding in findings(case)
        if finding.status in ("fail", "warn") and finding.check != expected["check"]
    }
    assert others <= also


# Findings beside the expected one that are true of the case as well, read case by case.
ALSO_TRUE: dict[str, set[str]] = {
    "C001": {"gpu.count"},  # one card is named, the profile is for two
    "C024": {"gpu.count"},  # likewise
    "C062": {"engine.cuda-available"},  # the case's own symptom
    "C040": {"driver.nvml"},  # NVML says it as well
    "C094": {"gpu.initialization"},  # its last line: the probe of that device has failed
}


def _severity(status: str) -> int:
    return ("fail", "warn", "info", "pass", "skip").index(status)
