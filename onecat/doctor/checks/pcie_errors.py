"""Errors on the PCIe links of the GPUs, and what the firmware gave them."""

from __future__ import annotations

import re
from collections.abc import Iterator

from onecat.doctor import requirements
from onecat.doctor.context import Context
from onecat.doctor.hardware import device_at, function, gpu_at, subject
from onecat.doctor.kernel_log import concerns_gpus, event_subject, events, quoted
from onecat.doctor.registry import Verdict, check
from onecat.doctor.units import counted, told
from onecat.facts import KernelEvent

NVML = "https://docs.nvidia.com/deploy/nvml-api/group__nvmlDeviceQueries.html"
AER = "https://git.zx2c4.com/wireguard-linux/tree/Documentation/ABI/testing/sysfs-bus-pci-devices-aer"
CORRECTED = "https://www.thomas-krenn.com/en/wiki/PCIe_Bus_Error_Status_00001100"
DEBUG = "https://docs.nvidia.com/deploy/gpu-debug-guidelines/index.html"


@check(
    "pcie.replays",
    title="The PCIe links carry data without repeats",
    why="A replay is a packet that had to be sent again. A few are harmless; a number that rises under load means a "
    "bad contact, riser or slot.",
    fix=("watch it under load: nvidia-smi -q -d PCIE", "reseat the card, replace the riser"),
    source=(NVML,),
    requires=(requirements.gpus,),
)
def pcie_replays(context: Context) -> Iterator[Verdict]:
    """NVML's replay counter since the driver was loaded, and how it rose under load (--load)."""
    loads = {load.gpu: load.replays for load in context.nvidia.loads}
    for gpu in context.gpus:
        count, under_load = gpu.pcie_replay_counter, loads.get(gpu.index)
        evidence = (
            f"replay counter: {told(count)}",
            *((f"under load: {under_load} more",) if under_load is not None else ()),
        )
        if under_load:
            yield Verdict(
                "warn",
                f"{counted(under_load, 'PCIe replay')} while the link was busy",
                subject(gpu),
                evidence,
                fix=("power off, reseat the card, replace the riser", "then measure again: onecat doctor --load"),
            )
        elif count is None:
            yield Verdict("skip", "Not checked: the replay counter is not known", subject(gpu))
        elif count:
            yield Verdict(
                "info",
                f"{counted(count, 'PCIe replay')} since the driver was loaded",
                subject(gpu),
                evidence,
                fix=("look again under load: a rising number means a bad contact, riser or slot",),
            )
        else:
            yield Verdict("pass", "No PCIe replays", subject(gpu), evidence)


def _errors_or_hardware(context: Context) -> str | None:
    """There is NVIDIA hardware, or all that is known of the host is a kernel log with errors of PCIe."""
    if (reason := requirements.gpus_matter(context)) is not None:
        return reason
    alone = not context.driver_was_looked_for and bool(events(context, "pcie-error"))
    return None if alone else requirements.nvidia_hardware(context)


@check(
    "pcie.errors",
    title="PCIe reports no errors of the GPUs",
    why="The kernel counts what PCIe's Advanced Error Reporting tells: corrected errors cost time and announce worse, "
    "uncorrected ones stop the device.",
    fix=(
        "power off, reseat the card and its riser, clean the contacts",
        "sudo dmesg | grep -i -e aer -e 'pcie bus error'",
    ),
    source=(AER, CORRECTED),
    requires=(_errors_or_hardware,),
)
def pcie_errors(context: Context) -> Iterator[Verdict]:
    """The kernel's counters for each GPU, and lines "PCIe Bus Error" about a GPU or a port above one."""
    told = [event for event in events(context, "pcie-error") if concerns_gpus(context, event)]
    for event in told:
        yield _judge(context, event)
    logged = {event_subject(context, event) for event in told}
    for device in context.nvidia.pci_devices:
        gpu = gpu_at(context, device.address)
        name = subject(gpu) if gpu else device.address
        counts = (device.errors_fatal, device.errors_nonfatal, device.errors_correctable)
        evidence = (
            "fatal {}, nonfatal {}, correctable {}".format(*("?" if each is None else each for each in counts)),
        )
        if device.errors_fatal or device.errors_nonfatal:
            yield Verdict(
                "fail" if device.errors_fatal else "warn",
                "Uncorrected PCIe errors since the machine started",
                name,
                evidence,
                fix=("power off, reseat the card and its riser", "sudo dmesg | grep -i -e aer -e 'pcie bus error'"),
            )
        elif device.errors_correctable:
            yield Verdict(
                "info",
                f"{counted(device.errors_correctable, 'corrected PCIe error')} since the machine started",
                name,
                evidence,
                fix=("look again under load: a rising number means a bad contact, riser or slot",),
            )
        elif None in counts:
            yield Verdict("skip", "Not checked: the kernel's counters of PCIe errors are not known", name)
        elif name not in logged:
            yield Verdict("pass", "No PCIe errors since the machine started", name, evidence)
    if not context.nvidia.pci_devices and not told:
        yield Verdict("skip", "Not checked: the PCI bus was not looked at")


def _judge(context: Context, event: KernelEvent) -> Verdict:
    text = event.text.lower()
    fatal = re.search(r"\bfatal\b", text) and not re.search(r"non-?fatal", text)
    corrected = "severity=corrected" in text or re.search(r"\b(corrected|correctable)\b", text) is not None
    kind = "Corrected PCIe errors" if corrected else "A fatal PCIe error" if fatal else "A PCIe error"
    aspm = ("to rule out power saving: boot once with pcie_aspm=off",) if corrected else ()
    if not context.has_nvidia_hardware:
        return Verdict(
            "info",
            f"{kind} in the kernel log; whether a GPU is behind that port is not known",
            event_subject(context, event),
            (quoted(event),),
            fix=(f"lspci -tv, then look below {event.address or 'the port that the line names'}",),
        )
    return Verdict(
        "fail" if fatal and not corrected else "warn",
        f"{kind} in the kernel log",
        event_subject(context, event),
        (quoted(event),),
        fix=("power off, reseat the card and its riser, clean the contacts", *aspm),
    )


@check(
    "pcie.bar-assignment",
    title="The firmware gave every GPU its address space",
    why="A data-centre card asks for as much address space as it has memory. Without it the driver cannot use it.",
    fix=(
        "in the firmware setup: Above 4G Decoding on (also: MMIO above 4G, Large BAR), then reboot",
        "when it cannot be set: boot with pci=realloc",
    ),
    source=(DEBUG,),
    requires=(requirements.nvidia_hardware, requirements.kernel_log),
    to_pass=(requirements.whole_kernel_log,),
)
def pcie_bar_assignment(context: Context) -> Iterator[Verdict]:
    """Lines of the kernel log about address space that could not be assigned, for GPUs that the driver does not show.

    The kernel writes such lines also before it finds room, and for windows that nobody needs: a GPU that works has its
    space.
    """
    working = {function(gpu.pci_address) for gpu in context.gpus}
    failed = [
        event
        for event in events(context, "bar-unassigned")
        if event.address is None or device_at(context, event.address) or not context.nvidia.pci_devices
    ]
    broken = [event for event in failed if function(event.address) not in working]
    if not broken or (all(event.address is None for event in broken) and working):
        yield Verdict("pass", "No GPU lacks address space", evidence=tuple(map(quoted, failed)))
        return
    for event in broken:
        yield Verdict(
            "fail",
            "A GPU got no address space",
            event_subject(context, event),
            (quoted(event),),
            fix=(
                "in the firmware setup: Above 4G Decoding on (also: MMIO above 4G, Large BAR), then reboot",
                "when it cannot be set: boot with pci=realloc",
            ),
        )
