"""Tensors that neither checkpoint quantises: the same bits, or the same but for the rounding to another type."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Literal, NamedTuple

import numpy

from onecat.checkpoints.integrity import Fault
from onecat.checkpoints.numbering import first_of
from onecat.nvfp4.comparison.stored import to_float32
from onecat.nvfp4.tensor_types import Array

Kind = Literal["equal", "rounded", "different"]

DIGITS = {"float16": 11, "bfloat16": 8, "float32": 24, "float64": 53}
"""Binary digits of the significand, by numpy's names (IEEE 754; bfloat16 of 8)."""


class PlainOutcome(NamedTuple):
    """kind: `rounded` is what is left when a tensor went through another type. error: relative, of the whole tensor."""

    name: str
    kind: Kind
    error: float = 0.0


def plain_outcome(name: str, values: Array, original: Array) -> PlainOutcome:
    """How two plain tensors of one shape, as they are stored or in float32, differ."""
    if values.dtype == original.dtype and values.tobytes() == original.tobytes():
        return PlainOutcome(name, "equal")
    if values.dtype.name not in DIGITS or original.dtype.name not in DIGITS:
        same = values.dtype == original.dtype and numpy.array_equal(values, original)
        return PlainOutcome(name, "equal" if same else "different", 0.0 if same else 1.0)
    with numpy.errstate(over="ignore", invalid="ignore"):
        ours, theirs = (to_float32(each).astype(numpy.float64) for each in (values, original))
        if _is_rounded(ours, theirs, min(DIGITS[each.dtype.name] for each in (values, original))):
            return PlainOutcome(name, "rounded")
        length = float(numpy.linalg.norm(theirs))
        error = float(numpy.linalg.norm(ours - theirs))
    return PlainOutcome(name, "different", error / length if length else float("inf"))


def _is_rounded(ours: Array, theirs: Array, digits: int) -> bool:
    """Whether each element is the other's to so many digits. Below 2^-14 float16 has a fixed step of 2^-24."""
    allowed = numpy.maximum(numpy.abs(theirs) * 2.0**-digits, 2.0**-25)
    return bool((numpy.abs(ours - theirs) <= allowed).all())


def faults_of_plain(found: Iterable[PlainOutcome]) -> Iterator[Fault]:
    """One fault for all that are different."""
    different = sorted((each for each in found if each.kind == "different"), key=lambda each: -each.error)
    if different:
        told = [f"{each.name} ({each.error:.2%})" for each in different]
        yield Fault(
            "plain-differs", "fail", f"is not as in the original: {first_of(told, 3, noun='tensors')}", "the weights",
            "see that ORIGINAL is what this was made of; if a tool smoothed or rotated the weights on purpose, "
            "--perplexity FILE tells what it did",
            "Norms, embeddings and what else is not quantised are copied by converters.",
        )  # fmt: skip
