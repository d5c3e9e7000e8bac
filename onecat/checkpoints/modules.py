"""Tensors of a checkpoint gathered into modules: a matrix with its scales, zero points and whatever belongs to it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from onecat.checkpoints.tensors import StoredTensors

DATA = ("weight", "weight_packed", "qweight", "blocks", "qdata", "embedding_quantized")
"""Parts that hold the elements of a matrix."""

AUXILIARY = frozenset({
    "weight_scale", "weight_scale_2", "weight_scale_inv", "weight_global_scale", "weight_zero_point", "weight_shape",
    "weight_g_idx", "input_scale", "input_scale_2", "input_global_scale", "input_scale_ub", "input_zero_point",
    "output_scale", "scales", "qzeros", "g_idx", "scale_packed", "meta", "pre_quant_scale", "SCB", "weight_format",
    "absmax", "quant_map", "nested_absmax", "nested_quant_map", "k_scale", "v_scale", "q_scale", "prob_scale",
    "weight_zero_point_2", "g_idx_sort_indices", "embedding_scale", "input_activation_scale",
    "output_activation_scale", "k_cache_scale", "v_cache_scale",
})  # fmt: skip
"""Parts that are no parameters of the model. Sources: the layouts in quantization/flavours/."""

JOINT = ("_blocks", "_scales", "_scale_inv", "_weight_scale", "_weight_scale_2", "_input_scale", "_scale")
"""Ends of parts of a parameter that is not the `weight` of a module: experts in one tensor."""


@dataclass(frozen=True, slots=True)
class Module:
    """A module's tensors by what they are (`weight`, `weight_scale`, ...); stem: its name."""

    stem: str
    parts: Mapping[str, StoredTensors]

    @property
    def data(self) -> StoredTensors | None:
        """The tensor with its elements."""
        return next((self.parts[name] for name in DATA if name in self.parts), None)


def modules_of(rows: Iterable[StoredTensors]) -> dict[str, Module]:
    """All modules that have a matrix or a part of one, by name. Biases and such stand alone and are left out."""
    rows = tuple(rows)
    names = {row.name for row in rows}
    parts: dict[str, dict[str, StoredTensors]] = {}
    for row in rows:
        split = part_of(row.name, names)
        if split is not None:
            parts.setdefault(split[0], {}).setdefault(split[1], row)
    return {stem: Module(stem, found) for stem, found in parts.items()}


def part_of(name: str, names: set[str]) -> tuple[str, str] | None:
    """The module of a tensor and what it is of it; None for one that stands alone."""
    stem, _, last = name.rpartition(".")
    if last in ("weight", "weight_packed", "qweight", "embedding_quantized") or last in AUXILIARY:
        return stem.removesuffix(".weight") if last in AUXILIARY else stem, last
    if last.startswith("bitsandbytes__") and stem.endswith(".weight.quant_state"):
        return stem.removesuffix(".weight.quant_state"), "quant_state"
    if last.startswith("weight:_"):
        return stem, last.removeprefix("weight:_")
    if last == "scale" and f"{stem}.weight" in names:
        return stem, "scale"
    for end in JOINT:
        base = name.removesuffix(end)
        if name.endswith(end) and (base in names or f"{base}_blocks" in names):
            return base, end.removeprefix("_") if end in ("_blocks", "_scales") else _joint(end)
    if any(f"{name}{end}" in names for end in JOINT):
        return name, "weight"
    return None


def _joint(end: str) -> str:
    part = end.removeprefix("_")
    return part if part.startswith(("weight", "input")) else f"weight_{part}"
