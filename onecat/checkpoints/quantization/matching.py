"""Which modules a pattern of a quantisation configuration covers.

Each tool has a notation of its own; a `Matching` names one. Names are those of the checkpoint's modules, and a pattern
that is written with an engine's names covers them too.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Literal

Matching = Literal["all", "name", "regex", "shards", "substring", "wildcard", "components", "below", "search"]
"""all: every module. name: that one module, or the modules that an engine fuses into one of that name. regex: after
`re:`, from the start of the name (re.match). shards: the same, but never by the name of what an engine fuses. search: a
regex anywhere in the name. substring: these letters anywhere in the name that an engine has for the module, which for
q_proj is qkv_proj. wildcard: fnmatch over the whole name.
components: whole parts of the dotted name in a row, `*` within one. below: a module and all inside it."""

FUSED = {
    "qkv_proj": ("q_proj", "k_proj", "v_proj"),
    "gate_up_proj": ("gate_proj", "up_proj"),
    "fused_qkv_a_proj": ("q_a_proj", "kv_a_proj_with_mqa"),
    "in_proj_qkvz": ("in_proj_qkv", "in_proj_z"),
    "in_proj_ba": ("in_proj_b", "in_proj_a"),
    "w13": ("w1", "w3"),
    "c_fc": ("c_fc_0", "c_fc_1"),
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
    stored = shard_names_of(module)
    return tuple(dict.fromkeys((*stored, *map(_fused, stored))))


def shard_names_of(module: str) -> tuple[str, ...]:
    """Those of them that no engine has made by fusing modules."""
    own = module.replace("*", "0")
    names = [own]
    for stored, other in PREFIXES:
        if own.startswith(stored):
            names.append(other + own.removeprefix(stored))
    if not own.startswith(("model.", "language_model.")):
        names.append(f"model.{own}")
    return tuple(dict.fromkeys(names))


def _fused(name: str) -> str:
    """What an engine calls a module: the name of what it is fused into, else its own."""
    parent, dot, last = name.rpartition(".")
    return f"{parent}{dot}{_PARENTS.get(last, last)}"


class ModuleIndex:
    """Patterns in order, ready to be asked for many modules.

    Lists of a thousand patterns are common, and models of ten thousand modules too: patterns are filed by their
    fixed part, and only those without one are tried in turn.
    """

    def __init__(self, patterns: Iterable[tuple[str, Matching]]) -> None:
        self._names: dict[str, list[int]] = {}
        self._inside: dict[str, list[int]] = {}
        self._starts: dict[str, list[int]] = {}
        self._stems: dict[str, list[tuple[int, re.Pattern[str]]]] = {}
        self._shards: list[tuple[int, re.Pattern[str]]] = []
        self._engine: list[tuple[int, str]] = []
        self._lengths: set[int] = set()
        for position, (stated, matching) in enumerate(patterns):
            plain = stated.strip(".").removesuffix(".weight")
            if matching == "name" or (matching == "wildcard" and not _SPECIAL.search(stated)):
                self._names.setdefault(plain, []).append(position)
            elif matching in ("components", "below") and "*" not in stated:
                filed = self._inside if matching == "components" else self._starts
                filed.setdefault(plain, []).append(position)
                self._lengths.add(plain.count(".") + 1)
            elif matching == "shards":
                self._shards.append((position, re.compile(_expression(stated, matching))))
            elif matching == "substring":
                self._engine.append((position, stated))
            else:
                stem = _stem(stated) if matching in ("wildcard", "below") else ""
                compiled = re.compile(_expression(stated, matching))
                self._stems.setdefault(stem, []).append((position, compiled))

    def find(self, module: str, start: int = 0) -> int | None:
        """The position of the first pattern from `start` on that covers a module, None when none does."""
        own = self._by_own_names(shard_names_of(module), start) if self._shards or self._engine else ()
        return min((*self._candidates(names_of(module), start), *own), default=None)

    def _by_own_names(self, stored: tuple[str, ...], start: int) -> Iterator[int]:
        for position, pattern in self._shards:
            if position >= start and any(pattern.match(name) for name in stored):
                yield position
                break
        fused = [_fused(name) for name in stored] if self._engine else []
        for position, letters in self._engine:
            if position >= start and any(letters in name for name in fused):
                yield position
                break

    def _candidates(self, names: tuple[str, ...], start: int) -> Iterator[int]:
        for filed, asked in (
            (self._names, names),
            (self._starts, _unique(names, _prefixes) if self._starts else ()),
            (self._inside, _runs(names, self._lengths) if self._inside else ()),
        ):
            for each in asked:
                yield from (position for position in filed.get(each, ()) if position >= start)
        for stem in ("", *(_unique(names, _stems) if self._stems.keys() - {""} else ())):
            for position, pattern in self._stems.get(stem, ()):
                if position >= start and any(pattern.match(name) for name in names):
                    yield position
                    break


_SPECIAL = re.compile(r"[*?\[]")


def _unique(names: tuple[str, ...], parts: Callable[[str], Iterator[str]]) -> Iterable[str]:
    return dict.fromkeys(part for name in names for part in parts(name))


def _prefixes(name: str) -> Iterator[str]:
    """A module and all that it is inside of."""
    words = name.split(".")
    return (".".join(words[:end]) for end in range(1, len(words) + 1))


def _runs(names: tuple[str, ...], lengths: Iterable[int]) -> set[str]:
    """All runs of so many whole components. A name within another has no runs of its own."""
    found: set[str] = set()
    for name in names:
        if any(other.endswith(f".{name}") for other in names):
            continue
        words = name.split(".")
        for length in lengths:
            found.update(".".join(words[start : start + length]) for start in range(len(words) - length + 1))
    return found


def _stems(name: str) -> Iterator[str]:
    return (f"{prefix}." for prefix in _prefixes(name))


def _stem(stated: str) -> str:
    """The components before the first that has a wildcard, with their dot; empty when the first has one."""
    special = _SPECIAL.search(stated)
    return stated[: special.start()].rpartition(".")[0] + "." if special and "." in stated[: special.start()] else ""


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
    return text if matching in ("regex", "shards") else f".*(?:{text})"
