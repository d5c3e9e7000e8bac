"""A checkpoint against the one that it was made of, one tensor at a time."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from onecat.checkpoints.architectures.naming import named
from onecat.checkpoints.integrity import Fault
from onecat.checkpoints.integrity.progress import Counter, Show
from onecat.errors import OnecatError
from onecat.nvfp4.codec import Codec
from onecat.nvfp4.comparison.causes import Case, cause_of, first_rows
from onecat.nvfp4.comparison.judging import faults_of_modules
from onecat.nvfp4.comparison.matching import Pair, match
from onecat.nvfp4.comparison.plain import PlainOutcome, faults_of_plain, plain_outcome
from onecat.nvfp4.comparison.records import ComparedModule, Comparison
from onecat.nvfp4.comparison.stored import PLAIN, Weights, as_matrix, read_weights
from onecat.nvfp4.dequantisation import Original, open_original
from onecat.nvfp4.rewriting import SourceFiles
from onecat.nvfp4.tensor_types import Array

MOST_EXPLAINED = 16
"""Wrong modules that are looked into: tools make the same fault everywhere."""

ROTATED = ("q_proj", "k_proj")


def compare(ours: Original, original: Path, codec: Codec, show: Show = lambda progress: None) -> Comparison:
    """Compare all weights of a checkpoint with those of its original, which may be quantised too.

    Raises OnecatError when one of them cannot be read, OSError when a file cannot be.
    """
    began = time.monotonic()
    run = _Run(read_weights(ours), _keeping_last(read_weights(open_original(original))), codec)
    matched = match(run.ours, run.theirs)
    counter = Counter("comparing", sum(map(_bytes, matched.pairs)), show)
    for pair in matched.pairs:
        run.compare(pair)
        counter.add(_bytes(pair))
    faults = (*matched.faults, *run.unread, *faults_of_modules(run.modules), *faults_of_plain(run.plain))
    kinds = [each.kind for each in run.plain]
    return Comparison(
        str(original), tuple(run.modules), kinds.count("equal"), kinds.count("rounded"), faults,
        time.monotonic() - began,
    )  # fmt: skip


@dataclass(frozen=True)
class _Run:
    """One comparison, and what it has found so far."""

    ours: Weights
    theirs: Weights
    codec: Codec
    modules: list[ComparedModule] = field(default_factory=list)
    plain: list[PlainOutcome] = field(default_factory=list)
    unread: list[Fault] = field(default_factory=list)

    def compare(self, pair: Pair) -> None:
        try:
            values = pair.ours.read(self.ours.source, self.codec)
            original = pair.theirs.read(self.theirs.source, self.codec)
            if PLAIN in (pair.ours.scheme, pair.theirs.scheme):
                found = plain_outcome(pair.ours.name, values, original)
                if found.kind != "different" or not _is_linear(pair):
                    # Of a quantised weight this says that nothing was lost.
                    self.plain.append(found)
                    return
            self.modules.append(self._measured(pair, as_matrix(values), as_matrix(original)))
        except OnecatError as error:
            fix = error.next_steps[0] if error.next_steps else ""
            self.unread.append(Fault("unreadable-weight", "fail", error.found, pair.ours.name, fix))

    def _measured(self, pair: Pair, values: Array, original: Array) -> ComparedModule:
        scheme = pair.ours.scheme if pair.ours.scheme != PLAIN else pair.theirs.scheme
        name = pair.ours.name.removesuffix(".weight")
        found = ComparedModule(name, scheme, pair.ours.shape, self.codec.deviation(original, values))
        tried = sum(each.was_tried for each in self.modules)
        if found.verdict != "wrong" or tried == MOST_EXPLAINED or len(found.shape) != 2:
            return found
        case = Case(pair.ours, first_rows(original), first_rows(values), self._head(name))
        cause = cause_of(case, self.ours.source, self.codec, lambda: self._siblings(pair))
        return replace(found, cause=cause, was_tried=True)

    def _head(self, name: str) -> int | None:
        """Rows of an attention head, for the matrices that rotary positions turn."""
        if name.rpartition(".")[2] not in ROTATED:
            return None
        config: Any = self.ours.original.config
        config = config.get("text_config") or config
        head, hidden, heads = (config.get(key) for key in ("head_dim", "hidden_size", "num_attention_heads"))
        if isinstance(head, int) and head > 0:
            return head
        return hidden // heads if isinstance(hidden, int) and isinstance(heads, int) and heads > 0 else None

    def _siblings(self, pair: Pair) -> Iterator[tuple[str, Array]]:
        """Other matrices of the original in the same block, by their last word."""
        block = pair.theirs.name.removesuffix(".weight").rpartition(".")[0]
        for name, each in self.theirs.tensors.items():
            outer, _, last = name.removesuffix(".weight").rpartition(".")
            if outer == block and name != pair.theirs.name and each.shape == pair.theirs.shape:
                yield last, first_rows(each.read(self.theirs.source, self.codec))


def _bytes(pair: Pair) -> int:
    return pair.ours.bytes + pair.theirs.bytes


def _is_linear(pair: Pair) -> bool:
    """Whether a weight may be that of a quantised module, or what is left of one when it was turned back."""
    kind = named(pair.ours.name, pair.ours.shape).kind
    return len(pair.ours.shape) >= 2 and kind in ("linear", "head", "router", "other")


def _keeping_last(weights: Weights) -> Weights:
    """The same weights, of which the tensor that was read last is kept: the experts of a layer may all lie in one."""
    source = weights.source
    held: dict[str, Array] = {}

    def fetch(name: str) -> Array:
        if name not in held:
            held.clear()
            held[name] = source.piece(name, 0, source.tensors[name].bytes)
        return held[name]

    kept = SourceFiles(source.directory, source.tensors, source.headers, fetch)
    return replace(weights, original=replace(weights.original, source=kept))
