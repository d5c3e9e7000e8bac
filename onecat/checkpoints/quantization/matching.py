"""Which modules a pattern of a quantisation configuration covers.

Each tool has a notation of its own; a `Matching` names one. Names are those of the checkpoint's modules, and a pattern
that is written with an engine's names covers them too.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable, Iterator
from typing import Literal

Matching = Literal["all", "name", "regex", "wildcard", "components", "below", "search"]
"""all: every module. name: that one module, or the modules that an engine fuses into one of that name. regex: after
`re:`, from the start of the name (re.match). search: a regex anywhere in it. wildcard: fnmatch over the whole name.
components: whole parts of the dotted name in a row, `*` within one. below: a module and all inside it."""

FUSED = {
    "qkv_proj": ("q_proj", "k_proj", "v_proj"),
    "gate_up_proj": ("gate_proj", "up_proj"),
    "fused_qkv_a_proj": ("q_a_proj", "kv_a_proj_with_mqa"),
    "in_proj_qkvz": ("in_proj_qkv", "in_proj_z"),
    "in_proj_ba": ("in_proj_b", "in_proj_a"),
    "w13": ("w1", "w3"),
}
"""Modules of checkpoints that engines join, by the joint module's name (packed_modules_mapping of the models in
https://github.com/vllm-project/vllm/tree/v0.27.1/vllm/model_executor/models)."""

_PARENTS = {shard: fused for fused, shards in FUSED.items() for shard in shards}

PREFIXES = (
    ("model.language_model.", "language_model.model."),
    ("language_model.model.", "model.language_model."),
    ("model.language_model.", "model."),
    ("language_model.model.", "model."),
    ("language_model.", ""),
    ("model.", ""),
)
"""The same module in a checkpoint and in a configuration: libraries moved the language model's place between versions.
Source: https://github.com/vllm-project/vllm/blob/v0.27.1/vllm/model_executor/layers/quantization/modelopt.py
(_quantized_layer_prefix_candidates) and the WeightsMapper of its models."""


def names_of(module: str) -> tuple[str, ...]:
    """All names that a configuration may have for a module of a checkpoint, its own first."""
    own = module.replace("*", "0")
    names = [own]
    for stored, other in PREFIXES:
        if own.startswith(stored):
            names.append(other + own.removeprefix(stored))
    if not own.startswith(("model.", "language_model.")):
        names.append(f"model.{own}")
    for name in tuple(names):
        parent, dot, last = name.rpartition(".")
        if last in _PARENTS:
            names.append(f"{parent}{dot}{_PARENTS[last]}")
    return tuple(dict.fromkeys(names))


class ModuleIndex:
    """Patterns in order, ready to be asked for many modules."""

    def __init__(self, patterns: Iterable[tuple[str, Matching]]) -> None:
        self._exact: dict[str, list[int]] = {}
        self._others: list[tuple[int, re.Pattern[str]]] = []
        for position, (stated, matching) in enumerate(patterns):
            if matching == "name":
                self._exact.setdefault(stated.removesuffix(".weight"), []).append(position)
            else:
                self._others.append((position, re.compile(_expression(stated, matching))))

    def find(self, module: str, start: int = 0) -> int | None:
        """The position of the first pattern from `start` on that covers a module, None when none does."""
        return min(self._candidates(names_of(module), start), default=None)

    def _candidates(self, names: tuple[str, ...], start: int) -> Iterator[int]:
        for name in names:
            yield from (position for position in self._exact.get(name, ()) if position >= start)
        for position, pattern in self._others:
            if position >= start and any(pattern.match(name) for name in names):
                yield position
                return


def _expression(stated: str, matching: Matching) -> str:
    """A regular expression for re.match. One that is none of a tool's making matches its own letters."""
    if matching == "all":
        return ""
    if matching == "wildcard":
        return fnmatch.translate(stated)
    if matching in ("components", "below"):
        inner = r"\.".join(re.escape(part).replace(r"\*", r"[^.]*") for part in stated.strip(".").split("."))
        return rf"(?:.*\.)?{inner}(?:\.|$)" if matching == "components" else rf"{inner}(?:\.|$)"
    text = stated.removeprefix("re:")
    try:
        re.compile(text)
    except re.error:
        text = re.escape(text)
    return text if matching == "regex" else f".*(?:{text})"
