"""The PCIe links of the GPUs."""

from __future__ import annotations

from collections.abc import Iterator

from onecat.doctor import requirements
from onecat.doctor.context import Context
from onecat.doctor.registry import Verdict, check
from onecat.doctor.units import counted
from onecat.facts import Gpu, PciDevice

PCIE = "https://docs.nvidia.com/deploy/nvml-api/group__nvmlDeviceQueries.html"
SYSFS = "https://www.kernel.org/doc/Documentation/ABI/testing/sysfs-bus-pci"


@check(
    "pcie.link-width",
    title="Every GPU uses all lanes of its PCIe link",
    why="Fewer lanes mean less bandwidth for loading weights and, without NVLink, for every layer of a model split "
    "over GPUs. The width is not reduced to save power (the generation is, and says nothing on an idle GPU).",
    fix=("reseat the card and its riser, clean the contacts", "use a slot with all lanes", "check the firmware setup"),
    source=(SYSFS, PCIE),
    requires=(requirements.nvidia_hardware,),
)
def pcie_link_width(context: Context) -> Iterator[Verdict]:
    """The width of each link now, the most the card can do, and the most its slot (the upstream port) can do."""
    links: list[tuple[str, Gpu | None, PciDevice | None]] = []
    links += [(f"GPU {gpu.index}", gpu, context.pci_device(gpu)) for gpu in context.gpus]
    if not links:
        links += [(device.address, None, device) for device in context.nvidia.pci_devices]
    if not links:
        yield Verdict("skip", f"Not checked: {requirements.gpus(context)}")
    for subject, gpu, device in links:
        yield _judge(context, subject, gpu, device)


def _judge(context: Context, subject: str, gpu: Gpu | None, device: PciDevice | None) -> Verdict:
    """One link: NVML's numbers first, sysfs for what NVML does not know."""
    current = gpu.pcie_width_current if gpu else None
    card = port = None
    if device is not None:
        current = device.link_width_current if current is None else current
        card, port = device.link_width_max, device.path[0].link_width_max if device.path else None
    if card is None and gpu is not None:
        # NVML's maximum is already the lower one of card and slot.
        card = gpu.pcie_width_max
    if current is None or card is None:
        return Verdict("skip", "Not checked: the width of the link is not known", subject)
    evidence = [f"link now: x{current}", f"card: x{card}", f"slot: x{port}" if port else "slot: unknown"]
    address = device.address if device else gpu.pci_address if gpu else None
    if address:
        evidence.append(f"at {address}")
    if current >= card:
        return Verdict("pass", f"The link runs at x{current}", subject, (", ".join(evidence),))
    if port is not None and current >= port:
        return Verdict(
            "warn",
            f"The card can do x{card} and sits in a slot with x{port}",
            subject,
            (", ".join(evidence),),
            fix=(f"move it to a slot with x{card}", "check in the firmware setup that the slot's lanes are not split"),
        )
    return Verdict(
        "warn",
        f"The link runs at x{current} of x{min(card, port or card)}",
        subject,
        (", ".join(evidence),),
        fix=(
            "power off, reseat the card and its riser, clean the contacts",
            "check in the firmware setup that the slot's lanes are not split",
            f"cat /sys/bus/pci/devices/{address or 'ADDRESS'}/current_link_width",
        ),
    )


@check(
    "pcie.replays",
    title="The PCIe links carry data without repeats",
    why="A replay is a packet that had to be sent again. A few are harmless; a number that rises under load means a "
    "bad contact, riser or slot.",
    fix=("watch it under load: nvidia-smi -q -d PCIE", "reseat the card, replace the riser"),
    source=(PCIE,),
    requires=(requirements.gpus,),
)
def pcie_replays(context: Context) -> Iterator[Verdict]:
    """NVML's replay counter, which counts since the driver was loaded."""
    for gpu in context.gpus:
        count = gpu.pcie_replay_counter
        if count is None:
            yield Verdict("skip", "Not checked: the replay counter is not known", f"GPU {gpu.index}")
        elif count:
            yield Verdict(
                "info",
                f"{counted(count, 'PCIe replay')} since the driver was loaded",
                f"GPU {gpu.index}",
                (f"replay counter: {count}",),
                fix=("look again under load: a rising number means a bad contact, riser or slot",),
            )
        else:
            yield Verdict("pass", "No PCIe replays", f"GPU {gpu.index}")
