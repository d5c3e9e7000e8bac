"""Tensors by the module that they belong to: a weight and its scales side by side."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from onecat.checkpoints.safetensors_header import Tensor

PARTS = frozenset(
    {
        "weight", "weight_packed", "weight_scale", "weight_scale_inv", "weight_scale_2", "weight_global_scale",
        "weight_shape", "weight_zero_point", "weight_g_idx", "input_scale", "input_global_scale",
        "qweight", "scales", "qzeros", "g_idx",
    }
)  # fmt: skip
JOINT = ("_blocks", "_scales", "_scale_inv", "_scale", "_scale_2", "_global_scale", "_packed")
"""Endings of tensors that hold all experts of a layer: `gate_up_proj_blocks` beside `gate_up_proj_scales`."""


@dataclass(frozen=True)
class Module:
    """The tensors of one linear module by the last part of their names, and the file of its first tensor.

    Joint experts have their tensor as `weight` (or `blocks`), and its scales as `weight_scale` (or `scales`).
    """

    name: str
    file: str
    parts: Mapping[str, Tensor]

    def __getitem__(self, part: str) -> Tensor:
        return self.parts[part]

    def get(self, *parts: str) -> Tensor | None:
        """The first of these tensors that there is."""
        return next((self.parts[part] for part in parts if part in self.parts), None)


def modules(tensors: Iterable[tuple[str, Tensor]]) -> Iterator[Module]:
    """Modules with more than a plain weight, or with a weight of 8 bits; `tensors` as `Contents.tensors` gives them."""
    found: dict[str, dict[str, Tensor]] = {}
    files: dict[str, str] = {}
    for file, tensor in tensors:
        stem, _, part = tensor.name.rpartition(".")
        if part not in PARTS:
            stem, part = _joint(tensor.name)
        if part:
            found.setdefault(stem, {})[part] = tensor
            files.setdefault(stem, file)
    for name, parts in found.items():
        if len(parts) > 1 or next(iter(parts.values())).dtype in ("F8_E4M3", "F8_E5M2", "I32") or "weight" not in parts:
            yield Module(name, files[name], parts)


def _joint(name: str) -> tuple[str, str]:
    if "experts" not in name:
        return name, ""
    for ending in JOINT:
        if name.endswith(ending):
            part = ending[1:]
            return name.removesuffix(ending), part if part in ("blocks", "scales") else f"weight_{part}"
    return name, "weight" if name.endswith("_proj") else ""
