"""Settings of the PCI bus that cost speed between GPUs."""

from __future__ import annotations

from collections.abc import Iterator

from onecat.doctor import requirements
from onecat.doctor.context import Context
from onecat.doctor.hardware import gpu_at, is_virtual_machine, place, several_gpus, subject
from onecat.doctor.kernel_log import concerns_gpus, event_subject, events, quoted
from onecat.doctor.packages import kernel_argument
from onecat.doctor.registry import Verdict, check
from onecat.facts import PciDevice, PciPort

NCCL = "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html"
TRANSLATED = "https://github.com/vllm-project/vllm/issues/51513"

_REDIRECTS = ("ReqRedir", "CmpltRedir")
"""Access control services that send what one GPU wants of another up to the root complex."""


@check(
    "pcie.aspm",
    title="No power saving of PCIe links was asked for",
    why="Active-state power management puts an idle link to sleep. Waking costs microseconds; with a few boards it "
    "gives corrected errors. It is no cause of a GPU that is not recognised.",
    fix=("to try without: boot once with pcie_aspm=off", "cat /sys/module/pcie_aspm/parameters/policy"),
    source=("https://www.thomas-krenn.com/en/wiki/PCIe_Bus_Error_Status_00001100",),
    requires=(requirements.nvidia_hardware,),
)
def pcie_aspm(context: Context) -> Iterator[Verdict]:
    """The kernel's policy and the states in use on the links of the GPUs."""
    policy = context.facts.pci.aspm_policy if context.facts.pci else None
    links = tuple(f"{each.address}: {each.aspm}" for each in context.nvidia.pci_devices if each.aspm)
    if policy is None and not links:
        yield Verdict("skip", "Not checked: neither the policy nor the state of a link is known")
        return
    evidence = (*((f"policy: {policy}",) if policy else ()), *links)
    if policy in ("powersave", "powersupersave"):
        yield Verdict(
            "info",
            f"The kernel puts idle PCIe links to sleep (policy {policy})",
            evidence=evidence,
            fix=(
                "when PCIe reports corrected errors, try:",
                "echo performance | sudo tee /sys/module/pcie_aspm/parameters/policy",
            ),
        )
    else:
        yield Verdict("pass", f"Policy {policy}" if policy else "The links are known", evidence=evidence)


@check(
    "pcie.acs",
    title="GPUs below one PCIe switch reach each other directly",
    why="Access control services on the switch's ports send traffic between two GPUs up to the processor and back: "
    "slower, and with some boards NCCL hangs.",
    fix=(
        "in the firmware setup: ACS off (also: PCIe ARI/ACS), when no virtual machine uses the GPUs",
        "see NCCL's guide: " + NCCL,
    ),
    source=(NCCL, TRANSLATED),
    requires=(requirements.nvidia_hardware,),
)
def pcie_acs(context: Context) -> Iterator[Verdict]:
    """The access control services that are on at the ports between two GPUs, where a model is spread over several."""
    if not several_gpus(context):
        yield Verdict("skip", "Not checked: no model is spread over several GPUs here")
        return
    virtual = is_virtual_machine(context)
    if virtual:
        yield Verdict(
            "skip", "Not checked: a virtual machine's host needs these services, and its ports are not seen here"
        )
        return
    said = False
    for first, second, ports in _between(context):
        name = f"{_name(context, first)} and {_name(context, second)}"
        known = [port for port in ports if port.acs is not None]
        redirecting = [port for port in known if any(each in _REDIRECTS for each in port.acs or ())]
        said = True
        if redirecting:
            yield Verdict(
                "warn" if virtual is False else "info",
                "A PCIe switch sends traffic between two GPUs through the processor",
                name,
                tuple(f"{port.address}: {' '.join(port.acs or ())}" for port in redirecting),
                fix=(
                    "only where no virtual machine uses the GPUs; until the next reboot:",
                    *(f"sudo setpci -s {port.address} ECAP_ACS+0x6.w=0000" for port in redirecting),
                    "for good: ACS off in the firmware setup",
                ),
            )
        elif len(known) < len(ports):
            reason = "reading access control services needs root: --sudo"
            yield Verdict("skip", f"Not checked: {reason}", name)
        else:
            yield Verdict("pass", "The switch lets them reach each other directly", name)
    if not said:
        yield Verdict("skip", "Not checked: no two GPUs are known to be below one PCIe switch")


def _name(context: Context, device: PciDevice) -> str:
    gpu = gpu_at(context, device.address)
    return subject(gpu) if gpu else device.address


def _between(context: Context) -> Iterator[tuple[PciDevice, PciDevice, tuple[PciPort, ...]]]:
    """Pairs of GPUs below one switch without NVLink between them, and the switch's ports that lead to each."""
    nvlinks = [pair for pair in context.nvidia.pairs if (pair.connection or "").startswith("NV")]
    linked = {frozenset((pair.first, pair.second)) for pair in nvlinks}
    devices = [(device, device.path) for device in context.nvidia.pci_devices if device.path]
    for place_of_first, (first, above_first) in enumerate(devices):
        for second, above_second in devices[place_of_first + 1 :]:
            gpus = [gpu.index for each in (first, second) if (gpu := gpu_at(context, each.address))]
            if frozenset(gpus) in linked:
                continue
            common = {port.address for port in above_first} & {port.address for port in above_second}
            # Each GPU has a port of the switch of its own; what they share begins with the switch's upstream port.
            if common and above_first[0].address not in common and above_second[0].address not in common:
                ports = [port for port in (*above_first, *above_second) if port.address not in common]
                yield first, second, tuple(ports)


@check(
    "pcie.iommu",
    title="The IOMMU does not stand between the GPUs",
    why="An IOMMU that translates every access slows traffic between GPUs or makes NCCL hang. With iommu=pt devices of "
    "the host pass untranslated, and virtual machines still work.",
    fix=("add iommu=pt to the kernel's command line (GRUB_CMDLINE_LINUX), then: sudo update-grub && sudo reboot",),
    source=(NCCL, TRANSLATED),
    requires=(requirements.nvidia_hardware,),
)
def pcie_iommu(context: Context) -> Iterator[Verdict]:
    """Faults of the IOMMU in the kernel log, the number of its groups, and the kernel's command line."""
    faults = [event for event in events(context, "iommu-fault") if concerns_gpus(context, event)]
    for event in faults:
        yield Verdict(
            "warn",
            "The IOMMU refused an access",
            event_subject(context, event),
            (quoted(event),),
            fix=(
                kernel_argument(context.facts.operating_system, "iommu=pt"),
                "update the main board's firmware",
            ),
        )
    if faults:
        return
    system, bus = context.facts.operating_system, context.facts.pci
    line = system.kernel_command_line if system else None
    words = (line or "").split()
    groups = bus.iommu_groups if bus else None
    if is_virtual_machine(context):
        yield Verdict("skip", "Not checked: in a virtual machine the IOMMU is its host's")
    elif groups == 0 or any(word in ("iommu=off", "intel_iommu=off", "amd_iommu=off") for word in words):
        yield Verdict("pass", "No IOMMU is at work")
    elif groups is None or line is None:
        missing = "number of IOMMU groups" if groups is None else "kernel's command line"
        yield Verdict("skip", f"Not checked: the {missing} is not known")
    elif any(word in ("iommu=pt", "iommu.passthrough=1") for word in words):
        yield Verdict("pass", "The IOMMU lets devices of the host pass", evidence=(f"command line: {line}",))
    elif several_gpus(context):
        yield Verdict(
            "info",
            "An IOMMU is at work without iommu=pt",
            evidence=(f"IOMMU groups: {groups}", *(place(gpu) for gpu in context.gpus)),
            fix=(
                "when NCCL hangs or is slow between GPUs:",
                kernel_argument(context.facts.operating_system, "iommu=pt"),
            ),
        )
    else:
        yield Verdict("pass", "An IOMMU is at work; one GPU alone needs no way to another")
