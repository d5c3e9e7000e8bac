"""The GPUs."""

from __future__ import annotations

from collections.abc import Iterator

from onecat.doctor import Verdict, check
from onecat.doctor.units import GIB, counted
from onecat.live.preflight.doctor_findings import told_as_one
from onecat.live.preflight.look import Look, needs
from onecat.live.preflight.observing.host import HostSeen

# While a server serves it holds the memory, and its clocks are those of its work.
_OF_THE_SERVER = ("gpu.memory-held",)


@check(
    "preflight.gpu",
    title="The accelerators are healthy",
    why="A card with uncorrectable errors, pages to retire, lowered clocks or an Xid since the start of the machine "
    "serves slowly or wrongly, and fails under load.",
    fix=("onecat doctor says more: onecat doctor --only 'gpu.*'",),
    source=("https://docs.nvidia.com/deploy/gpu-debug-guidelines/index.html",),
    requires=needs(HostSeen),
    group="host",
    place=1,
)
def gpu(look: Look) -> Iterator[Verdict]:
    """Doctor's checks of GPUs, NVLink, PCIe and NPUs on fresh facts of the host: ECC, retired pages, row remapping,
    Xid, memory clock and application clocks against the rated ones, throttling, links; with the memory of each card."""
    seen = look.of(HostSeen)
    accelerator = look.profile.hardware.accelerator
    if accelerator == "none":
        yield Verdict("skip", f"Not checked: the profile {look.profile.name} uses no GPU")
        return
    if accelerator == "ascend":
        yield from told_as_one(seen.of("ascend.", without=("ascend.memory",)), "The NPUs are healthy")
        return
    cards = [] if seen.facts.nvidia is None else [each for each in seen.facts.nvidia.gpus if each.error is None]
    memory = tuple(
        f"GPU {card.index}: {card.memory_used / GIB:.1f} of {card.memory_total / GIB:.1f} GiB in use"
        for card in cards
        if card.memory_used is not None and card.memory_total
    )
    findings = seen.of("gpu.", "nvlink.", "pcie.", without=_OF_THE_SERVER)
    yield from told_as_one(findings, f"Healthy: {counted(len(cards), 'GPU')}", memory)
