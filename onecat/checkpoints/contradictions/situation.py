"""What rules about contradictions may look at."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from onecat.checkpoints.architectures.records import Part, Weight, WeightKind
from onecat.checkpoints.modules import Module, modules_of
from onecat.checkpoints.observation import Observed, observe
from onecat.checkpoints.quantization import WeightScheme
from onecat.checkpoints.records import Checkpoint
from onecat.checkpoints.sources import CONFIG, Source

_MATRIX = re.compile(r"(?:_proj|^|\.)(?:[qkvo]_proj|(?:gate|up|down|gate_up|qkv|out|in)_proj|w[123]|fc[12])$|_proj$")
"""Names that linear modules of decoders have where no family tells."""

_TOWER = re.compile(r"(?:^|\.)(?:visual|vision_\w+|vision|audio_\w+|audio)(?:\.|$)")


@dataclass(frozen=True, slots=True)
class Matrix:
    """A module with a matrix: what it is in the architecture, how it is claimed and how it is in truth stored."""

    stem: str
    kind: WeightKind
    part: Part
    claimed: WeightScheme | None
    observed: Observed
    count: int


@dataclass(frozen=True)
class Situation:
    """A checkpoint and what was read of it."""

    checkpoint: Checkpoint
    source: Source

    @property
    def config(self) -> str:
        """Where config.json is."""
        place = Path(self.source.place)
        return str(place / CONFIG) if place.is_dir() else str(place)

    @property
    def place(self) -> str:
        return self.source.place

    @cached_property
    def modules(self) -> dict[str, Module]:
        return modules_of(self.checkpoint.tensors)

    @cached_property
    def matrices(self) -> tuple[Matrix, ...]:
        """All modules that hold a matrix."""
        known = {weight.name.removesuffix(".weight"): weight for weight in self.checkpoint.architecture.weights}
        found = []
        for stem, module in self.modules.items():
            kind, part = _what(stem, known.get(stem))
            claim = self.checkpoint.quantization
            claimed = claim.scheme_of(stem, kind, part) if claim else None
            seen = observe(module, claimed)
            if seen is not None and (seen.name is not None or len(seen.shape) >= 2):
                data = module.data
                found.append(Matrix(stem, kind, part, claimed, seen, data.count if data else 1))
        return tuple(found)


def _what(stem: str, weight: Weight | None) -> tuple[WeightKind, Part]:
    if weight is not None:
        return weight.kind, weight.part
    last = stem.rpartition(".")[2]
    part: Part = "vision" if _TOWER.search(stem) else "language"
    if last in ("lm_head", "output"):
        return "head", part
    if "embed" in last or last in ("wte", "word_embeddings"):
        return "embedding", part
    return ("linear" if _MATRIX.search(stem) else "other"), part


def several(stems: Iterable[str], what: str = "modules") -> str:
    """How many, and one of them: `12 modules, such as model.layers.0.mlp.down_proj`."""
    names = tuple(stems)
    return names[0] if len(names) == 1 else f"{len(names)} {what}, such as {names[0]}"
