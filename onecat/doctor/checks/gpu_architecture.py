"""The GPU code of the engine against the GPUs."""

from __future__ import annotations

from collections.abc import Iterator

from onecat.doctor import requirements
from onecat.doctor.context import Context
from onecat.doctor.hardware import place, subject
from onecat.doctor.registry import Verdict, check


@check(
    "gpu.compute-capability",
    title="The GPUs have the compute capability that the profile's image is built for",
    why='Code built for another architecture stops with "no kernel image is available for execution on the device".',
    fix=("choose the profile of your GPUs: onecat profile list",),
    source=("https://developer.nvidia.com/cuda-gpus",),
    requires=(requirements.gpu_profile, requirements.gpus),
)
def gpu_compute_capability(context: Context) -> Iterator[Verdict]:
    """The compute capability that NVML reports."""
    assert context.profile is not None
    needed = context.profile.hardware.compute_capability
    for gpu in context.gpus:
        found = gpu.compute_capability
        if needed is None or found is None:
            yield Verdict("skip", "Not checked: the compute capability is not known", subject(gpu))
        elif found == needed:
            yield Verdict("pass", f"Compute capability {found}", subject(gpu))
        else:
            yield Verdict(
                "fail",
                f"Compute capability {found}, the profile {context.profile.name} is for {needed}",
                subject(gpu),
                (f"{place(gpu)}: compute capability {found}",),
                fix=("choose the profile of your GPUs: onecat profile list",),
            )
