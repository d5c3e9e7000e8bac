"""Tensors of weight files gathered into modules."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from onecat.checkpoints.modules import AUXILIARY, DATA, part_of
from onecat.nvfp4.rewriting import SourceFiles, SourceTensor

ACTIVATIONS = frozenset({
    "input_scale", "input_scale_2", "input_global_scale", "input_scale_ub", "input_zero_point", "output_scale",
    "k_scale", "v_scale", "q_scale", "prob_scale", "k_cache_scale", "v_cache_scale", "input_activation_scale",
    "output_activation_scale",
})  # fmt: skip
"""Parts that say nothing of a weight: they are for activations or the KV cache, which a plain checkpoint leaves as the
engine has them."""

assert ACTIVATIONS <= AUXILIARY


@dataclass(frozen=True)
class Module:
    """stem: its name (`model.layers.0.mlp.down_proj`). parts: tensors by what they are (`weight`, `weight_scale`).

    names: of these tensors in the checkpoint, by the same words.
    """

    stem: str
    parts: Mapping[str, SourceTensor]
    names: Mapping[str, str]

    @property
    def data(self) -> str | None:
        """The part with the elements of its matrix."""
        return next((part for part in DATA if part in self.parts), None)

    @property
    def scales(self) -> frozenset[str]:
        """The parts beside it that change what the elements mean."""
        return frozenset(self.parts) - ACTIVATIONS - {self.data}

    def described(self) -> str:
        """Its tensors for a message: `weight F8_E4M3 [64, 128], weight_scale F32 [64, 1]`."""
        return ", ".join(f"{part} {each.dtype} {list(each.shape)}" for part, each in self.parts.items())


def elements(tensor: SourceTensor) -> int:
    """How many numbers a tensor holds, as they are stored."""
    return math.prod(tensor.shape)


def gather(source: SourceFiles) -> tuple[dict[str, Module], list[str]]:
    """All modules with parts, by name, in the order in which they first appear; and the tensors that stand alone."""
    names = set(source)
    found: dict[str, dict[str, str]] = {}
    alone = []
    for name in source:
        split = part_of(name, names)
        if split is None:
            alone.append(name)
        else:
            found.setdefault(split[0], {}).setdefault(split[1], name)
    modules = {
        stem: Module(stem, {part: source.tensors[name] for part, name in parts.items()}, parts)
        for stem, parts in found.items()
    }
    return modules, alone
