"""The PCIe links of the GPUs: width, generation, bandwidth."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from onecat.doctor import requirements
from onecat.doctor.context import Context
from onecat.doctor.hardware import is_virtual_machine, subject
from onecat.doctor.registry import Verdict, check
from onecat.facts import Gpu, LoadMeasurement, PciDevice, PciPort
from onecat.knowledge.pcie import generation_of_speed, pcie_generation

NVML = "https://docs.nvidia.com/deploy/nvml-api/group__nvmlDeviceQueries.html"
SYSFS = "https://www.kernel.org/doc/Documentation/ABI/testing/sysfs-bus-pci"
IDLE = "https://forums.developer.nvidia.com/t/prevent-pcie-from-reducing-gen/72537"
RATES = "https://mail-archive.com/netdev@vger.kernel.org/msg226780.html"

USUAL_SHARE = 0.6
"""Share of a link's rate below which a copy of pinned memory counts as slow.

onecat's own choice: a 3.0 link with 16 lanes carries 11 to 13 of 15.75 GB/s, which is 70 % and more; an H200 was
measured with 55.0 of 63.0 GB/s, 87 %.
"""
MEASURE = "onecat doctor --load"


@check(
    "pcie.link-width",
    title="Every GPU uses all lanes of its PCIe link",
    why="Fewer lanes mean less bandwidth for loading weights and, without NVLink, for every layer of a model split "
    "over GPUs. The width is not reduced to save power (the generation is, and says nothing on an idle GPU).",
    fix=("reseat the card and its riser, clean the contacts", "use a slot with all lanes", "check the firmware setup"),
    source=(SYSFS, NVML),
    requires=(requirements.nvidia_hardware,),
)
def pcie_link_width(context: Context) -> Iterator[Verdict]:
    """The width of each link now, the most the card can do, and the most its slot can do; then every link above it.

    Links of a virtual machine above the GPU are not real and are left out.
    """
    links: list[tuple[str, Gpu | None, PciDevice | None]] = []
    links += [(subject(gpu), gpu, context.pci_device(gpu)) for gpu in context.gpus]
    if not links:
        links += [(device.address, None, device) for device in context.nvidia.pci_devices]
    if not links:
        yield Verdict("skip", f"Not checked: {requirements.gpus(context)}")
    real = is_virtual_machine(context) is not True
    for name, gpu, device in links:
        yield _width(context, name, gpu, device, real)
        if real and device is not None:
            yield from _uplinks(name, device.path or ())


def _width(context: Context, name: str, gpu: Gpu | None, device: PciDevice | None, real: bool) -> Verdict:
    """One link: NVML's numbers first, sysfs for what NVML does not know."""
    current = gpu.pcie_width_current if gpu else None
    card = port = None
    if device is not None:
        current = device.link_width_current if current is None else current
        card, port = device.link_width_max, device.path[0].link_width_max if device.path and real else None
    if card is None and gpu is not None:
        # NVML's maximum is already the lower one of card and slot.
        card = gpu.pcie_width_max
    elif port is None and card is not None and gpu is not None and 0 < (gpu.pcie_width_max or 0) < card:
        port = gpu.pcie_width_max
    if current is None or card is None:
        return Verdict("skip", "Not checked: the width of the link is not known", name)
    evidence = [f"link now: x{current}", f"card: x{card}", f"slot: x{port}" if port else "slot: unknown"]
    address = device.address if device else gpu.pci_address if gpu else None
    if address:
        evidence.append(f"at {address}")
    if device is not None and real:
        above = [(lower.address, lower.link_width_current) for lower, _ in _above(device.path or ())]
        evidence += [f"above it at {port_address}: x{width}" for port_address, width in above if width]
    if current >= card:
        return Verdict("pass", f"The link runs at x{current}", name, (", ".join(evidence),))
    if port is not None and current >= port:
        expected = context.profile.doctor.pcie_link_width if context.profile else None
        return Verdict(
            "warn" if expected is not None and current < expected else "info",
            f"The card can do x{card} and sits in a slot with x{port}",
            name,
            (", ".join(evidence),),
            fix=(f"move it to a slot with x{card}", "check in the firmware setup that the slot's lanes are not split"),
        )
    if not real:
        return Verdict(
            "info",
            f"The link runs at x{current}, the card can do x{card}",
            name,
            (", ".join(evidence), "a virtual machine does not see the slot"),
            fix=("whether the slot has more lanes is seen on the machine below only",),
        )
    return Verdict(
        "warn",
        f"The link runs at x{current} of x{min(card, port or card)}",
        name,
        (", ".join(evidence),),
        fix=(
            "power off, reseat the card and its riser, clean the contacts",
            "check in the firmware setup that the slot's lanes are not split",
            f"cat /sys/bus/pci/devices/{address or 'ADDRESS'}/current_link_width",
        ),
    )


def _above(path: Sequence[PciPort]) -> list[tuple[PciPort, PciPort]]:
    """The links above that of the GPU: each switch's upstream port and the port it is plugged into."""
    return list(zip(path[1::2], path[2::2], strict=False))


def _uplinks(name: str, path: Sequence[PciPort]) -> Iterator[Verdict]:
    """The links between switches above a GPU that run with fewer lanes than both of their ends can do."""
    for lower, upper in _above(path):
        ends = [width for width in (lower.link_width_max, upper.link_width_max) if width]
        if lower.link_width_current is None or len(ends) < 2 or lower.link_width_current >= min(ends):
            continue
        yield Verdict(
            "warn",
            f"A link above the GPU runs at x{lower.link_width_current} of x{min(ends)}",
            name,
            (f"from {upper.address} (x{ends[1]}) to {lower.address} (x{ends[0]}): x{lower.link_width_current}",),
            fix=(
                "check the cable or riser between the switch board and the main board",
                f"cat /sys/bus/pci/devices/{lower.address}/current_link_width",
            ),
        )


def _slower_above(context: Context, gpu: Gpu) -> Iterator[tuple[str, float]]:
    """What each link above that of the GPU carries, in GB/s, where its width and generation are known."""
    device = context.pci_device(gpu)
    if device is None or is_virtual_machine(context):
        return
    for lower, upper in _above(device.path or ()):
        ends = [generation_of_speed(port.link_speed_max) for port in (lower, upper)]
        generation = pcie_generation(min((each for each in ends if each is not None), default=None))
        if generation is not None and lower.link_width_current:
            yield lower.address, generation.gigabytes_per_second(lower.link_width_current)


def _measured(context: Context) -> tuple[list[tuple[Gpu, LoadMeasurement]], str]:
    """The measurements under load, and why there is none."""
    by_index = {gpu.index: gpu for gpu in context.gpus}
    found = [(by_index[load.gpu], load) for load in context.nvidia.loads if load.gpu in by_index]
    return found, f"it is measured under load only: {MEASURE}"


def _unusable(load: LoadMeasurement) -> str | None:
    """Why a measurement says nothing."""
    if load.skipped:
        return load.skipped
    return f"the measurement failed: {load.error}" if load.error else None


@check(
    "pcie.generation",
    title="Under load every PCIe link reaches its generation",
    why="A link that stays below its generation carries half as much for each step. An idle GPU lowers it to save "
    "power, so only a measurement under load tells.",
    fix=("reseat the card and its riser", "firmware setup: PCIe speed of the slot on Auto", "replace the riser"),
    source=(IDLE, NVML),
    requires=(requirements.gpus,),
)
def pcie_generation_under_load(context: Context) -> Iterator[Verdict]:
    """The highest generation seen while the link was kept busy (--load), against what card and slot can do."""
    loads, reason = _measured(context)
    if not loads:
        yield Verdict("skip", f"Not checked: {reason}")
    real = is_virtual_machine(context) is not True
    for gpu, load in loads:
        device = context.pci_device(gpu)
        limits = {"driver": gpu.pcie_generation_max}
        if device is not None:
            limits["card"] = generation_of_speed(device.link_speed_max)
            if device.path and real:
                limits["slot"] = generation_of_speed(device.path[0].link_speed_max)
        known = {name: value for name, value in limits.items() if value is not None}
        why = _unusable(load)
        if why or load.link_generation is None or not known:
            missing = "the generation under load" if load.link_generation is None else "what the link can do"
            yield Verdict("skip", f"Not checked: {why or f'{missing} is not known'}", subject(gpu))
            continue
        best = min(known.values())
        evidence = (
            f"under load: generation {load.link_generation}",
            *(f"{name}: generation {value}" for name, value in known.items()),
        )
        if load.link_generation >= best:
            yield Verdict("pass", f"Generation {load.link_generation} under load", subject(gpu), evidence)
        else:
            yield Verdict(
                "warn",
                f"Generation {load.link_generation} under load, {best} is possible",
                subject(gpu),
                evidence,
                fix=("power off, reseat the card and its riser", "firmware setup: PCIe speed of the slot on Auto"),
            )


@check(
    "pcie.bandwidth",
    title="Copies to the GPUs are as fast as their links allow",
    why="Weights are loaded over this link, and without NVLink every layer of a model split over GPUs waits for it.",
    fix=("look at pcie.link-width, pcie.generation and pcie.replays", "start the server on the GPU's own socket"),
    source=(RATES,),
    requires=(requirements.gpus,),
)
def pcie_bandwidth(context: Context) -> Iterator[Verdict]:
    """What a copy of pinned memory to the GPU reached (--load), against the rate of the link it ran on."""
    loads, reason = _measured(context)
    if not loads:
        yield Verdict("skip", f"Not checked: {reason}")
    for gpu, load in loads:
        generation = pcie_generation(load.link_generation or gpu.pcie_generation_max)
        width, why = load.link_width or gpu.pcie_width_current or gpu.pcie_width_max, _unusable(load)
        if why or load.gigabytes_per_second is None or generation is None or not width:
            missing = "the bandwidth" if load.gigabytes_per_second is None else "the rate of the link"
            yield Verdict("skip", f"Not checked: {why or f'{missing} is not known'}", subject(gpu))
            continue
        speed, rate = load.gigabytes_per_second, generation.gigabytes_per_second(width)
        evidence = [
            f"measured: {speed:.1f} GB/s" + (f" for {load.seconds:.1f} s" if load.seconds else ""),
            f"link: generation {generation.generation} x{width}, {rate:.1f} GB/s",
        ]
        for address, slower in _slower_above(context, gpu):
            if slower < rate:
                rate = slower
                evidence.append(f"link above, at {address}: {slower:.1f} GB/s")
        if speed >= rate * USUAL_SHARE:
            yield Verdict("pass", f"{speed:.1f} of {rate:.1f} GB/s", subject(gpu), tuple(evidence))
        else:
            yield Verdict(
                "warn",
                f"{speed:.1f} of {rate:.1f} GB/s",
                subject(gpu),
                tuple(evidence),
                fix=(
                    "watch for repeats under load: nvidia-smi -q -d PCIE",
                    "several sockets: measure and serve on the GPU's own, see: nvidia-smi topo -m",
                    f"nothing else may run meanwhile; measure again: {MEASURE}",
                ),
            )
