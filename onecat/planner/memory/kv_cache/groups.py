"""Layers into groups: each group has one table of blocks, and all groups draw on one pool.

Source: vllm/v1/core/kv_cache_utils.py at 0.27.1 (get_kv_cache_groups and what it calls).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from onecat.planner.memory.kv_cache.pages import EVERY_TOKEN, Layer, Pages, ceil_div
from onecat.planner.memory.kv_cache.rules import Rules


@dataclass(frozen=True)
class Group:
    """Layers with one table of blocks, all of which need as many blocks as `pages` says.

    mixed: their pages may differ in size, and each layer has memory of its own.
    """

    layers: tuple[Layer, ...]
    pages: Pages
    mixed: bool = False

    @property
    def block_bytes(self) -> int:
        """Bytes that one block takes in all its layers."""
        return sum(each.pages.page for each in self.layers)


def groups_of(layers: Sequence[Layer], rules: Rules) -> tuple[Group, ...]:
    """The groups of all layers of a model, before they are divided among pipeline stages."""
    if not layers:
        return ()
    kinds = {each.pages for each in layers}
    if len({_merged(pages) for pages in kinds}) == 1:
        return (_group(layers),)
    if len({_need(pages) for pages in kinds}) == 1:
        return (_group(layers, mixed=True),)
    if any(each.pages.kind == "latent-window" for each in layers) and len({each.pages.page for each in layers}) > 1:
        return _packed(layers, rules.packing == "dense")
    return _equal_pages(_unified(layers), rules.padding)


def _group(layers: Sequence[Layer], mixed: bool = False) -> Group:
    return Group(tuple(layers), layers[0].pages, mixed)


def _merged(pages: Pages) -> Pages:
    """What must be the same for layers to be alike; a window is no difference where every token is kept."""
    return replace(pages, reach=None) if pages.kind in EVERY_TOKEN else pages


def _need(pages: Pages) -> tuple[object, ...]:
    """What must be the same for layers to need as many blocks, whatever their size."""
    every = pages.kind in EVERY_TOKEN
    return ("every token" if every else pages.kind, pages.block_size, None if every else pages.reach)


def _unified(layers: Sequence[Layer]) -> list[Layer]:
    """Layers with pages of one size: more tokens in a block where that fits evenly, padding elsewhere."""
    largest = max(each.pages.page for each in layers)

    def grown(pages: Pages) -> Pages:
        if pages.kind != "state" and largest % pages.page == 0:
            return replace(pages, block_size=pages.block_size * (largest // pages.page), page=largest)
        return replace(pages, page=largest)

    return [Layer(each.index, grown(each.pages)) for each in layers]


def _equal_pages(layers: Sequence[Layer], padding: Fraction) -> tuple[Group, ...]:
    """Groups with as many layers as the kind with the fewest."""
    kinds = _by(layers, (_merged(each.pages) for each in layers))
    fewest, most = min(map(len, kinds)), max(map(len, kinds))
    size = most if most < fewest * padding else fewest
    return tuple(_group(part) for members in kinds for part in _dealt(members, ceil_div(len(members), size)))


def _packed(layers: Sequence[Layer], dense: bool) -> tuple[Group, ...]:
    """Latent attention with windows and compressed entries: layers that keep every token are one group of several
    sizes; each kind of window is cut into groups of about as many layers. Unless they lie densely, pages of windows
    are padded to the next size of the others.

    Source: group_and_unify_kv_cache_specs and _get_kv_cache_groups_uniform_groups at 0.22.0 and 0.27.1.
    """
    kept = [each for each in layers if each.pages.kind in EVERY_TOKEN]
    sizes = sorted({each.pages.page for each in kept})

    def padded(page: int) -> int:
        return page if dense else next((size for size in sizes if size >= page), page)

    windows = [
        Layer(each.index, replace(each.pages, page=padded(each.pages.page)))
        for each in layers
        if each.pages.kind not in EVERY_TOKEN
    ]
    kinds = _by(windows, (_need(each.pages) for each in windows))
    counts = [rows(kept), *(rows(members) for members in kinds)]
    size = _least_padding(counts, counts[0])
    groups = [_group(kept, mixed=True)] if kept else []
    for members in kinds:
        count = ceil_div(rows(members), size)
        parts = [_dealt(same, count) for same in _by(members, (each.pages.page for each in members))]
        groups.extend(_group([each for part in parts for each in part[index]], mixed=True) for index in range(count))
    return tuple(groups)


def rows(layers: Sequence[Layer]) -> int:
    """Layers of the size that most have."""
    return max(Counter(each.pages.page for each in layers).values(), default=1)


def _least_padding(counts: Sequence[int], least: int) -> int:
    """The size of groups, at least `least`, that leaves the fewest empty places; the larger of two."""
    sizes = range(least, max(max(counts), least) + 1)
    return min(sizes, key=lambda size: (sum(-count % size for count in counts), -size))


def _by(layers: Sequence[Layer], keys: Iterable[object]) -> list[list[Layer]]:
    """Layers with the same key together, in the order of their first."""
    found: dict[object, list[Layer]] = {}
    for key, layer in zip(keys, layers, strict=True):
        found.setdefault(key, []).append(layer)
    return list(found.values())


def _dealt(layers: Sequence[Layer], count: int) -> list[Sequence[Layer]]:
    """`count` parts, dealt in turn: so each pipeline stage has layers of each part."""
    return [layers[start::count] for start in range(count)]
