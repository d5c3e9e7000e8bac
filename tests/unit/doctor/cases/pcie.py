"""PCIe links."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from onecat.facts import Facts, Gpu, GpuPair, KernelEvent, LoadMeasurement, Nvidia, PciBus, PciDevice, PciPort
from tests.unit.doctor.cases.form import Case, both, case
from tests.unit.doctor.examples import (
    COMPLETE,
    CPU,
    H200,
    HEALTHY,
    NVIDIA,
    WITHOUT_GPU,
    device,
    two,
    v100,
    with_events,
    with_gpus,
    with_nvidia,
    with_system,
)

REDIRECTING = ("SrcValid", "ReqRedir", "CmpltRedir", "UpstreamFwd")
NO_SPACE = KernelEvent(
    "bar-unassigned",
    "pci 0000:af:00.0: BAR 1 [mem size 0x800000000 64bit pref]: can't assign; no space",
    "0000:af:00.0",
)


def below(index: int, width: int) -> PciDevice:
    """A card below a port with some lanes."""
    return device(index, link_width_current=min(width, 16), path=(PciPort("0000:ae:00.0", link_width_max=width),))


def behind_switch(index: int, uplink: int = 16, acs: tuple[str, ...] | None = ()) -> PciDevice:
    """A card below a port of its own of a switch, which both cards share."""
    lanes = {"link_width_current": 16, "link_width_max": 16}
    return device(
        index,
        path=(
            PciPort(f"0000:38:0{index}.0", **lanes, acs=acs),
            PciPort("0000:37:00.0", link_width_current=uplink, link_width_max=16, link_speed_max="8GT/s", acs=()),
            PciPort("0000:36:00.0", link_width_current=uplink, link_width_max=16, link_speed_max="8GT/s", acs=()),
        ),
    )


def switched(acs: tuple[str, ...] | None = ()) -> Facts:
    """Two GPUs below one switch."""
    both_cards = (behind_switch(0, acs=acs), behind_switch(1, acs=acs))
    return replace(COMPLETE, nvidia=replace(NVIDIA, pci_devices=both_cards))


def with_gpus_and(gpu: Gpu, card: PciDevice) -> Facts:
    return with_nvidia(gpus=(gpu,), pci_devices=(card,))


def with_devices(**changes: Any) -> Facts:
    """Two cards; what is changed is changed on the second."""
    return with_nvidia(pci_devices=(device(0), device(1, **changes)))


def virtual(facts: Facts) -> Facts:
    return with_system(facts, virtualization="kvm")


def loaded(**changes: Any) -> Facts:
    """The first GPU's link was kept busy."""
    return with_nvidia(loads=(LoadMeasurement(0, **changes),))


def pcie_error(severity: str, address: str = "0000:ae:00.0") -> KernelEvent:
    """A line of Advanced Error Reporting, by default of the port above the second GPU."""
    text = f"pcieport {address}: PCIe Bus Error: severity={severity}, type=Data Link Layer, (Transmitter ID)"
    return KernelEvent("pcie-error", text, address, count=3)


def bus_error(severity: str) -> Facts:
    """Such a line about the port above the only card."""
    return with_events(pcie_error(severity), gpus=(v100(1),), pci_devices=(device(1),))


def iommu(groups: int, command_line: str) -> Facts:
    return replace(with_system(COMPLETE, kernel_command_line=command_line), pci=PciBus(iommu_groups=groups))


CASES: list[Case] = [
    both("pcie.link-width", ("pass", "x16"), ("warn", "x4 of x16"), with_gpus(*two(pcie_width_current=4))),
    both(
        "pcie.link-width",
        ("pass", "x16"),
        ("warn", "sits in a slot with x8"),
        with_nvidia(
            gpus=two(pcie_width_current=8, pcie_width_max=8),
            pci_devices=(device(0), device(1, link_width_current=8, path=(PciPort("0000:ae:00.0", link_width_max=8),))),
        ),
    ),
    case(
        "pcie.link-width",
        "warn",
        "x1 of x16",
        replace(WITHOUT_GPU, nvidia=Nvidia(pci_devices=(device(0, driver=None, link_width_current=1),))),
    ),
    both("pcie.link-width", ("pass", ""), ("skip", "not known"), with_gpus(*two(pcie_width_current=None))),
    both(
        "pcie.replays", ("pass", "No PCIe replays"), ("info", "7 PCIe replays"), with_gpus(*two(pcie_replay_counter=7))
    ),
    both("pcie.replays", ("pass", ""), ("skip", "not known"), with_gpus(*two(pcie_replay_counter=None))),
    # A slot that is narrower by design is worth a word, and a warning where the profile counts on more.
    case(
        "pcie.link-width",
        "info",
        "sits in a slot with x8",
        with_nvidia(gpus=(v100(0, pcie_width_current=8),), pci_devices=(below(0, 8),)),
        None,
    ),
    case(
        "pcie.link-width",
        "info",
        "sits in a slot with x4",
        with_gpus_and(v100(0, pcie_width_current=4, pcie_width_max=4), device(0, path=None)),
        None,
    ),
    # Ports of a virtual machine are not real: here they say x1.
    case(
        "pcie.link-width",
        "info",
        "x8, the card can do x16",
        virtual(with_nvidia(gpus=(v100(0, pcie_width_current=8),), pci_devices=(below(0, 1),))),
    ),
    case("pcie.link-width", "pass", "x16", virtual(with_nvidia(gpus=(v100(0),), pci_devices=(below(0, 1),)))),
    both(
        "pcie.link-width",
        ("pass", "x16"),
        ("warn", "A link above the GPU runs at x8 of x16"),
        with_nvidia(gpus=(v100(0),), pci_devices=(behind_switch(0, uplink=8),)),
    ),
    case("pcie.link-width", "pass", "x16", with_nvidia(gpus=(v100(0),), pci_devices=(behind_switch(0, uplink=16),))),
    # --- under load
    case("pcie.generation", "skip", "under load only", HEALTHY),
    case("pcie.generation", "pass", "Generation 3 under load", loaded(link_generation=3)),
    case("pcie.generation", "warn", "Generation 1 under load, 3 is possible", loaded(link_generation=1)),
    case("pcie.generation", "skip", "other programs use the GPU", loaded(skipped="other programs use the GPU")),
    case("pcie.generation", "skip", "the measurement failed: out of memory", loaded(error="out of memory")),
    case("pcie.generation", "skip", "generation under load is not known", loaded(gigabytes_per_second=12.0)),
    case("pcie.bandwidth", "skip", "under load only", HEALTHY),
    case(
        "pcie.bandwidth",
        "pass",
        "12.1 of 15.8 GB/s",
        loaded(gigabytes_per_second=12.1, link_generation=3, link_width=16),
    ),
    case(
        "pcie.bandwidth", "warn", "6.0 of 15.8 GB/s", loaded(gigabytes_per_second=6.0, link_generation=3, link_width=16)
    ),
    # A narrow link is judged by pcie.link-width; this one carries what it can.
    case(
        "pcie.bandwidth", "pass", "3.1 of 3.9 GB/s", loaded(gigabytes_per_second=3.1, link_generation=3, link_width=4)
    ),
    # A switch with a narrow link of its own is the limit then.
    case(
        "pcie.bandwidth",
        "pass",
        "6.0 of 7.9 GB/s",
        with_nvidia(
            gpus=(v100(0),),
            pci_devices=(behind_switch(0, uplink=8),),
            loads=(LoadMeasurement(0, 6.0, 1.0, link_generation=3, link_width=16),),
        ),
    ),
    case("pcie.bandwidth", "skip", "bandwidth is not known", loaded(link_generation=3)),
    both("pcie.replays", ("warn", "9 PCIe replays while the link was busy"), ("pass", "No PCIe"), loaded(replays=9)),
    both("pcie.replays", ("pass", "No PCIe replays"), ("pass", "No PCIe"), loaded(replays=0)),
    # --- errors
    both("pcie.errors", ("pass", "No PCIe errors"), ("pass", "No PCIe errors"), HEALTHY),
    both("pcie.errors", ("pass", ""), ("info", "4 corrected PCIe errors"), with_devices(errors_correctable=4)),
    both("pcie.errors", ("pass", ""), ("warn", "Uncorrected PCIe errors"), with_devices(errors_nonfatal=1)),
    both("pcie.errors", ("pass", ""), ("fail", "Uncorrected PCIe errors"), with_devices(errors_fatal=1)),
    both(
        "pcie.errors", ("pass", ""), ("skip", "counters of PCIe errors are not known"), with_devices(errors_fatal=None)
    ),
    both("pcie.errors", ("warn", "Corrected PCIe errors in the kernel log"), ("pass", ""), bus_error("Corrected")),
    both("pcie.errors", ("warn", "A PCIe error in the kernel log"), ("pass", ""), bus_error("Uncorrected (Non-Fatal)")),
    both(
        "pcie.errors", ("fail", "A fatal PCIe error in the kernel log"), ("pass", ""), bus_error("Uncorrected (Fatal)")
    ),
    # The network card's error is not the GPU's.
    both("pcie.errors", ("pass", ""), ("pass", ""), with_events(pcie_error("Corrected", "0000:18:00.0"))),
    case("pcie.errors", "skip", "the PCI bus was not looked at", with_gpus(v100(0))),
    # Of a log alone nobody knows what is behind the port.
    case(
        "pcie.errors",
        "info",
        "whether a GPU is behind that port is not known",
        Facts("gpu1", kernel_events=(pcie_error("Corrected", "0000:18:00.0"),)),
        None,
    ),
    case("pcie.bar-assignment", "pass", "No GPU lacks address space", COMPLETE),
    case("pcie.bar-assignment", "pass", "No GPU lacks address space", with_events(NO_SPACE)),
    case("pcie.bar-assignment", "fail", "A GPU got no address space", with_events(NO_SPACE, gpus=(v100(0),))),
    case("pcie.bar-assignment", "skip", "kernel log was not read", HEALTHY),
    # --- settings of the bus
    case("pcie.aspm", "pass", "Policy default", COMPLETE),
    case("pcie.aspm", "pass", "The links are known", HEALTHY),
    case("pcie.aspm", "info", "policy powersave", replace(COMPLETE, pci=PciBus("powersave", 0))),
    case("pcie.aspm", "skip", "neither the policy", with_nvidia(pci_devices=())),
    case("pcie.acs", "pass", "reach each other directly", switched()),
    case("pcie.acs", "warn", "through the processor", switched(acs=REDIRECTING)),
    case("pcie.acs", "info", "through the processor", with_system(switched(acs=REDIRECTING), virtualization=None)),
    case(
        "pcie.acs",
        "skip",
        "virtual machine's host needs these",
        with_system(switched(acs=REDIRECTING), virtualization="kvm"),
    ),
    case("pcie.acs", "skip", "needs root: --sudo", switched(acs=None)),
    case("pcie.acs", "skip", "no two GPUs are known to be below one PCIe switch", COMPLETE),
    case("pcie.acs", "skip", "no model is spread over several GPUs", with_gpus(v100(0)), None),
    case(
        "pcie.acs",
        "skip",
        "no two GPUs",
        replace(
            switched(acs=REDIRECTING), nvidia=replace(switched(acs=REDIRECTING).nvidia, pairs=(GpuPair(0, 1, "NV2"),))
        ),
    ),
    case("pcie.iommu", "pass", "No IOMMU is at work", COMPLETE),
    case("pcie.iommu", "pass", "No IOMMU is at work", iommu(40, "ro amd_iommu=off")),
    case("pcie.iommu", "pass", "lets devices of the host pass", iommu(40, "ro intel_iommu=on iommu=pt")),
    case("pcie.iommu", "info", "without iommu=pt", iommu(40, "ro intel_iommu=on")),
    case("pcie.iommu", "skip", "uses no NVIDIA GPU", iommu(40, "ro intel_iommu=on"), CPU),
    case("pcie.iommu", "pass", "one GPU alone", iommu(40, "ro intel_iommu=on"), H200),
    case(
        "pcie.iommu",
        "warn",
        "The IOMMU refused an access",
        with_events(
            KernelEvent("iommu-fault", "DMAR: [DMA Read] Request device [3b:00.0] fault addr 0x0", "0000:3b:00.0")
        ),
    ),
    # The network card's fault is not the GPU's.
    case("pcie.iommu", "pass", "No IOMMU", with_events(KernelEvent("iommu-fault", "DMAR: fault", "0000:18:00.0"))),
    case("pcie.iommu", "skip", "in a virtual machine", with_system(COMPLETE, virtualization="kvm")),
    case("pcie.iommu", "skip", "number of IOMMU groups", replace(COMPLETE, pci=None)),
]
