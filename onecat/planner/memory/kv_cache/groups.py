"""Layers into groups: each group has one table of blocks, and all groups draw on one pool.

Source: vllm/v1/core/kv_cache_utils.py at 0.27.1 (get_kv_cache_groups and what it calls).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from onecat.planner.memory.kv_cache.pages import Layer, Pages, ceil_div

EVERY_TOKEN = ("full", "latent")


@dataclass(frozen=True)
class Group:
    """Layers with one table of blocks, all of which need as many blocks as `pages` says.

    mixed: their pages differ in size, and each layer has memory of its own.
    """

    layers: tuple[Layer, ...]
    pages: Pages
    mixed: bool = False


def groups_of(layers: Sequence[Layer], tolerance: Fraction) -> tuple[Group, ...]:
    """The groups of all layers of a model, before they are divided among pipeline stages.

    tolerance: while the largest kind has fewer than this many times the layers of the smallest, one group of each kind
    is padded to the largest.
    """
    if not layers:
        return ()
    if alike(layers):
        return (Group(tuple(layers), layers[0].pages),)
    if same_need(layers):
        return (Group(tuple(layers), layers[0].pages, mixed=True),)
    return _equal_pages(_unified(layers), tolerance)


def alike(layers: Sequence[Layer]) -> bool:
    """Whether all layers have the same pages; a window is no difference for layers that keep every token."""
    return len({_class(each.pages) for each in layers}) == 1


def same_need(layers: Sequence[Layer]) -> bool:
    """Whether all layers need the same number of blocks, whatever their size."""
    needs = {
        (
            "every" if each.pages.kind in EVERY_TOKEN else each.pages.kind,
            each.pages.block_size,
            None if each.pages.kind in EVERY_TOKEN else each.pages.reach,
        )
        for each in layers
    }
    return len(needs) == 1


def _class(pages: Pages) -> Pages:
    return replace(pages, reach=None) if pages.kind in EVERY_TOKEN else pages


def _unified(layers: Sequence[Layer]) -> list[Layer]:
    """Layers with pages of one size: more tokens in a block where that fits evenly, padding elsewhere."""
    largest = max(each.pages.page for each in layers)

    def grown(pages: Pages) -> Pages:
        if pages.kind != "state" and largest % pages.page == 0:
            return replace(pages, block_size=pages.block_size * (largest // pages.page), page=largest)
        return replace(pages, page=largest)

    return [Layer(each.index, grown(each.pages)) for each in layers]


def _equal_pages(layers: Sequence[Layer], tolerance: Fraction) -> tuple[Group, ...]:
    """Groups with as many layers as the kind with the fewest."""
    kinds: dict[Pages, list[Layer]] = {}
    for each in layers:
        kinds.setdefault(_class(each.pages), []).append(each)
    fewest, most = min(map(len, kinds.values())), max(map(len, kinds.values()))
    size = most if most < fewest * tolerance else fewest
    groups: list[Group] = []
    for members in kinds.values():
        count = ceil_div(len(members), size)
        groups.extend(Group(tuple(members[start::count]), members[0].pages) for start in range(count))
    return tuple(groups)
