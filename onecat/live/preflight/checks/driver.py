"""The driver."""

from __future__ import annotations

from collections.abc import Iterator

from onecat.doctor import Verdict, check
from onecat.live.preflight.doctor_findings import told_as_one
from onecat.live.preflight.look import Look, needs
from onecat.live.preflight.observing.host import HostSeen


@check(
    "preflight.driver",
    title="The driver and its parameters are as the engine needs them",
    why="A driver whose module and libraries differ, which is too old for the image, or which other parameters slow "
    "down, works until the next restart and then does not, or works slowly.",
    fix=("onecat doctor says more: onecat doctor --only 'driver.*'",),
    source=("https://docs.nvidia.com/deploy/cuda-compatibility/",),
    requires=needs(HostSeen),
    group="host",
    place=2,
)
def driver(look: Look) -> Iterator[Verdict]:
    """Doctor's checks of the driver, of the CUDA libraries and of the variables that change what they do."""
    accelerator = look.profile.hardware.accelerator
    if accelerator != "nvidia":
        told = "GPU" if accelerator == "none" else "NVIDIA GPU; the driver of NPUs is judged with them"
        yield Verdict("skip", f"Not checked: the profile {look.profile.name} uses no {told}")
        return
    seen = look.of(HostSeen)
    version = seen.facts.nvidia.driver_version if seen.facts.nvidia is not None else None
    yield from told_as_one(seen.of("driver.", "cuda.", "environment."), f"Driver {version or 'of unknown version'}")
