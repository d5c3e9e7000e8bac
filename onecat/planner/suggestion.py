"""Which profile fits the GPUs of a host."""

from __future__ import annotations

from collections.abc import Iterable

from onecat.config import Profile
from onecat.facts import Facts

FALLBACK = "cpu"


def suggest_profile(facts: Facts, profiles: Iterable[Profile]) -> tuple[str, str]:
    """The name of the profile for the host's GPUs, and why; the profile `cpu` when none is for them."""
    gpus = facts.nvidia.gpus if facts.nvidia is not None else ()
    if not gpus:
        return FALLBACK, "no GPU was found on this machine"
    names = sorted({gpu.name for gpu in gpus})
    # Of several profiles for the same card, the one for the most cards that are here.
    for profile in sorted(profiles, key=lambda each: -each.hardware.count):
        fitting = sum(gpu.name in profile.hardware.gpu_names for gpu in gpus)
        if profile.hardware.count and fitting >= profile.hardware.count:
            return profile.name, f"this machine has {len(gpus)} x {', '.join(names)}"
    return FALLBACK, f"no profile is for {len(gpus)} x {', '.join(names)}"
