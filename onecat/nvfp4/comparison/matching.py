"""Which tensor of one checkpoint is which of another, where frameworks put other names before them. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from onecat.checkpoints.architectures.naming import named
from onecat.checkpoints.integrity import Fault
from onecat.checkpoints.numbering import first_of
from onecat.nvfp4.comparison.stored import Stored, Weights

_OUTER = re.compile(r"^(?:model\.language_model\.|language_model\.model\.|language_model\.|text_model\.|model\.)")
"""What stands before the same tensor in a language model, in one with a vision tower, and in later versions of that."""

_COMPUTED = re.compile(
    r"\.(?:rotary_emb\.inv_freq|attn\.bias|attn\.masked_bias|attention\.bias|embeddings\.position_ids)$"
)
"""Buffers that old versions of transformers stored; engines compute them."""

FIX_MISSING = "convert the original again, or take the publisher's files again"


class Pair(NamedTuple):
    """The same tensor in both checkpoints."""

    ours: Stored
    theirs: Stored


class Matched(NamedTuple):
    """pairs: in the order in which the original stores them. faults: about what has no partner or another shape."""

    pairs: tuple[Pair, ...]
    faults: tuple[Fault, ...]


def match(ours: Weights, theirs: Weights) -> Matched:
    """Pair the tensors of a checkpoint with those of its original."""
    mine, original = _partners(ours, theirs), _partners(theirs, ours)
    common = mine.keys() & original.keys()
    order = {name: place for place, name in enumerate(theirs.source)}
    pairs = sorted((Pair(mine[key], original[key]) for key in common), key=lambda each: order[each.theirs.tensor])
    same = tuple(each for each in pairs if each.ours.shape == each.theirs.shape)
    faults = [
        *_missing(original, mine.keys(), ours),
        *_further(mine, original.keys()),
        *_shapes(each for each in pairs if each.ours.shape != each.theirs.shape),
    ]
    return Matched(same, tuple(faults))


def _partners(own: Weights, other: Weights) -> dict[str, Stored]:
    """Tensors by the names that both sides share: a joint tensor as its parts where the other has them apart."""
    apart = {name: part for name, part in own.parts.items() if _key(name) in _keys(other)}
    joint = {part.tensor for part in apart.values()}
    rows = {**{name: each for name, each in own.tensors.items() if name not in joint}, **apart}
    keyed: dict[str, Stored] = {}
    for name, each in rows.items():
        # Two tensors that differ only in what stands before them keep their whole names.
        key = _key(name)
        keyed[name if key in keyed else key] = each
    return keyed


def _keys(weights: Weights) -> frozenset[str]:
    return frozenset(map(_key, weights.tensors))


def _key(name: str) -> str:
    return _OUTER.sub("", name)


def _missing(original: Mapping[str, Stored], mine: Iterable[str], ours: Weights) -> Iterator[Fault]:
    have = set(mine)
    names = [each.name for key, each in original.items() if key not in have and not _COMPUTED.search(each.name)]
    if ours.tied:
        names = [name for name in names if named(name, ()).kind != "head"]
    drafts = [name for name in names if named(name, ()).part == "draft"]
    others = [name for name in names if name not in set(drafts)]
    if others:
        yield Fault(
            "missing-of-original", "fail", f"has no {first_of(others, 3, noun='tensors')} of the original",
            "the weights", FIX_MISSING, "An engine leaves them as they happen to be in memory, or does not start.",
        )  # fmt: skip
    if drafts:
        yield Fault(
            "missing-drafts", "warn", f"has no {first_of(drafts, 3, noun='tensors')} of the original's draft layers",
            "the weights", "", "Speculative decoding with the model's own layers will not run.",
        )  # fmt: skip


def _further(mine: Mapping[str, Stored], original: Iterable[str]) -> Iterator[Fault]:
    have = set(original)
    names = [each.name for key, each in mine.items() if key not in have and not _COMPUTED.search(each.name)]
    if names:
        yield Fault(
            "not-of-original", "warn", f"has {first_of(names, 3, noun='tensors')}, which the original does not have",
            "the weights", "see that both are the same model: `onecat model inspect` of each",
        )  # fmt: skip


def _shapes(pairs: Iterable[Pair]) -> Iterator[Fault]:
    told = [f"{each.ours.name} is {list(each.ours.shape)}, not {list(each.theirs.shape)}" for each in pairs]
    if told:
        yield Fault(
            "shape-of-original", "fail", first_of(told, 3, noun="tensors"), "the weights",
            "compare with the model that it was made of", "Another model, or a tool that pads or joins.",
        )  # fmt: skip
