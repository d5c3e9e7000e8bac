"""Which GPU code runs on which GPU.

Machine code (sm_XY, a cubin) runs on the same major compute capability with the same or a higher minor one; PTX
(compute_XY) is compiled by the driver for the same or any higher one. Code with the suffix `a` runs on exactly its own.
Source: https://docs.nvidia.com/cuda/archive/11.0_GA/pascal-compatibility-guide/index.html.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Code:
    """Code for one compute capability. exact: only for that one."""

    capability: tuple[int, int]
    ptx: bool = False
    exact: bool = False

    def runs_on(self, capability: tuple[int, int]) -> bool:
        """Whether a GPU of this compute capability can run it."""
        if self.exact:
            return capability == self.capability
        if self.ptx:
            return capability >= self.capability
        return capability[0] == self.capability[0] and capability[1] >= self.capability[1]


def capability_of(text: str | None) -> tuple[int, int] | None:
    """A compute capability such as "7.0" as two numbers; None when it is not of this form."""
    found = re.fullmatch(r"(\d{1,2})\.(\d)", text or "")
    return (int(found.group(1)), int(found.group(2))) if found else None


def code_of(architectures: Iterable[str]) -> tuple[Code, ...]:
    """The code that a list of architectures stands for; entries of another form are left out.

    Known forms are those of torch.cuda.get_arch_list() ("sm_90", "sm_90a", "compute_90") and of TORCH_CUDA_ARCH_LIST
    ("9.0", "9.0a", "9.0+PTX").
    """
    codes: list[Code] = []
    for entry in architectures:
        if found := re.fullmatch(r"(sm|compute)_(\d{1,2})(\d)([af]?)", entry):
            capability = (int(found.group(2)), int(found.group(3)))
            codes.append(Code(capability, found.group(1) == "compute", found.group(4) == "a"))
        elif found := re.fullmatch(r"(\d{1,2})\.(\d)([af]?)(\+PTX)?", entry):
            capability = (int(found.group(1)), int(found.group(2)))
            codes.append(Code(capability, exact=found.group(3) == "a"))
            if found.group(4):
                codes.append(Code(capability, ptx=True, exact=found.group(3) == "a"))
    return tuple(codes)


def split_list(text: str) -> tuple[str, ...]:
    """The entries of a list as people write it: "7.0;8.0+PTX", "7.0 7.5", "sm_70,sm_80"."""
    return tuple(entry for entry in re.split(r"[\s;,]+", text) if entry)
