"""The groups or blocks that the scales of modules were made for, where those are others than a configuration claims.

Scales that all fit one other size are whole: it is the configuration that is wrong, and no download mends it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from onecat.checkpoints.integrity.modules import Module
from onecat.checkpoints.integrity.storage_claims import Claims

Size = int | tuple[int, int]
"""Elements of a group, -1 for all of a row, or rows and columns of a block."""

SIZES = tuple(1 << power for power in range(4, 11))
"""Elements of groups and sides of blocks that tools write: from 16 to 1024."""

ROW = -1
WORD = 32
"""Bits of the words that whole numbers are packed into."""

_FLOAT8 = ("F8_E4M3", "F8_E5M2")


@dataclass(frozen=True)
class OtherSize:
    """A size that all these modules' scales fit. code: as `inspect` has it; text: what is claimed and stored."""

    code: str
    text: str
    modules: tuple[str, ...]


def other_size(found: Sequence[Module], wrong: Iterable[str], claimed: Claims) -> OtherSize | None:
    """The one other size that scales were made for; None where they are no more than wrong.

    Parameters:
        wrong: names of the modules whose scales do not fit the claims.
    """
    own: set[Size] = {*claimed.groups, *claimed.blocks}
    sizes = {module.name: fitting for module in found if (fitting := frozenset(_sizes(module, claimed)))}
    others = {name: sizes[name] for name in wrong if name in sizes and not sizes[name] & own}
    if not others:
        return None
    fit = sum(1 for fitting in sizes.values() if fitting & own)
    common = frozenset.intersection(*sizes.values())
    if not common and len(others) >= fit:
        common = frozenset.intersection(*others.values())
    if not common:
        return None
    size = min(common, key=_order)
    if isinstance(size, tuple):
        claims = " or ".join("{} x {}".format(*block) for block in claimed.blocks)
        return OtherSize("block-differs", "claims blocks of {}, stored is {} x {}".format(claims, *size), tuple(others))
    claims = " or ".join(map(_told, claimed.groups))
    return OtherSize("group-size-differs", f"claims {claims}, stored is {_stored(size)}", tuple(others))


def _sizes(module: Module, claimed: Claims) -> Iterator[Size]:
    """All sizes with which the scales of a module have the shape that they have."""
    packed, quantised, weight = module.get("weight_packed"), module.get("qweight"), module.get("weight")
    if quantised is not None:
        scales = module.get("scales")
        yield from _of_columns(quantised.shape, scales.shape, claimed) if claimed.groups and scales is not None else ()
    elif packed is not None and packed.dtype == "I32":
        scale = module.get("weight_scale")
        if claimed.groups and scale is not None and packed.shape and scale.shape[:-1] == packed.shape[:-1]:
            inputs = [packed.shape[-1] * WORD // bits for bits in claimed.bits or (4, 8)]
            yield from _groups(inputs, scale.shape[-1])
    elif claimed.blocks and weight is not None and weight.dtype in _FLOAT8:
        scale = module.get("weight_scale_inv", "weight_scale")
        yield from _blocks(weight.shape, scale.shape, claimed) if scale is not None else ()


def _blocks(weight: Sequence[int], scale: Sequence[int], claimed: Claims) -> Iterator[tuple[int, int]]:
    """Sizes of blocks of which a scale of this shape has one number each."""
    if len(weight) != len(scale) or len(weight) < 2 or weight[:-2] != scale[:-2]:
        return
    for high, wide in {*claimed.blocks, *((side, side) for side in SIZES)}:
        if tuple(scale[-2:]) == (-(-weight[-2] // high), -(-weight[-1] // wide)):
            yield high, wide


def _of_columns(weight: Sequence[int], scales: Sequence[int], claimed: Claims) -> Iterator[int]:
    """Of AutoAWQ's and GPTQ's tensors [inputs, outputs], the one packed along the outputs, the other the inputs."""
    if len(weight) != 2 or len(scales) != 2:
        return
    bits = claimed.bits or (4, 8, 3, 2)
    inputs = [weight[0] * WORD // each for each in bits if weight[1] == scales[1]]
    inputs += [weight[0] for each in bits if weight[1] * WORD // each == scales[1]]
    yield from _groups(inputs, scales[0])


def _groups(inputs: Sequence[int], groups: int) -> Iterator[int]:
    """Sizes of which `groups` cover the inputs; a row that is one group has any size that is as long, and -1."""
    for size in SIZES:
        if any(-(-each // size) == groups for each in inputs):
            yield size
    if groups == 1 and inputs:
        yield ROW


def _order(size: Size) -> tuple[int, int]:
    """A whole row before the sizes that are as long, then the smallest."""
    return (0, 0) if size == ROW else size if isinstance(size, tuple) else (size, 0)


def _told(size: int) -> str:
    return "one group for each row" if size == ROW else f"groups of {size}"


def _stored(size: int) -> str:
    return _told(size) if size == ROW else str(size)
