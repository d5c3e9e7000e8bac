"""Tensors that neither checkpoint quantises: the same bits, or the same but for the rounding to another type."""

from __future__ import annotations

import math
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


PART = 1 << 18
"""Elements that are compared at once."""


class PlainOutcome(NamedTuple):
    """kind: `rounded` is what is left when a tensor went through another type. error: relative, of the whole tensor."""

    name: str
    kind: Kind
    error: float = 0.0


def plain_outcome(name: str, values: Array, original: Array) -> PlainOutcome:
    """How two plain tensors of one shape, as they are stored or in float32, differ. Takes a few MB beside them."""
    ours, theirs = values.reshape(-1), original.reshape(-1)
    parts = [slice(begin, begin + PART) for begin in range(0, ours.size, PART)]
    if ours.dtype == theirs.dtype and all(_bits(ours[each]) == _bits(theirs[each]) for each in parts):
        return PlainOutcome(name, "equal")
    if ours.dtype.name not in DIGITS or theirs.dtype.name not in DIGITS:
        return PlainOutcome(name, "different", 1.0)
    digits = min(DIGITS[each.dtype.name] for each in (ours, theirs))
    rounded, squared_error, squared_signal = True, 0.0, 0.0
    with numpy.errstate(over="ignore", invalid="ignore"):
        for each in parts:
            one, other = (to_float32(array[each]).astype(numpy.float64) for array in (ours, theirs))
            error = one - other
            rounded = rounded and _is_rounded(error, other, digits)
            # Not numpy.linalg.norm: BLAS would start threads for each part.
            squared_error += float(numpy.einsum("i,i->", error, error))
            squared_signal += float(numpy.einsum("i,i->", other, other))
    if rounded:
        return PlainOutcome(name, "rounded")
    return PlainOutcome(name, "different", math.sqrt(squared_error / squared_signal) if squared_signal else math.inf)


def _bits(values: Array) -> bytes:
    return values.tobytes()


def _is_rounded(error: Array, original: Array, digits: int) -> bool:
    """Whether each element is the other's to so many digits. Below 2^-14 float16 has a fixed step of 2^-24."""
    allowed = numpy.maximum(numpy.abs(original) * 2.0**-digits, 2.0**-25)
    return bool((numpy.abs(error) <= allowed).all())


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
