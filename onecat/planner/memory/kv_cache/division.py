"""The blocks of a model, stage by stage: how large they are, and how many a request takes.

Source: vllm/v1/core/kv_cache_utils.py at 0.27.1 (get_kv_cache_configs and what it calls).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from onecat.planner.memory.kv_cache.groups import Group, groups_of, rows
from onecat.planner.memory.kv_cache.pages import EVERY_TOKEN, Layer, Limits, blocks_of, ceil_div
from onecat.planner.memory.kv_cache.rules import Rules
from onecat.planner.memory.stages import Stage


@dataclass(frozen=True)
class StageBlocks:
    """What of the groups one pipeline stage has. block_bytes: of a block in all layers that share it."""

    groups: tuple[Group, ...]
    layers: tuple[Layer, ...]
    block_bytes: int

    @cached_property
    def row_bytes(self) -> int:
        """Of a block where all groups are padded alike."""
        return _row_bytes(self.groups)

    @property
    def bytes_per_token(self) -> int:
        """Of layers that keep every token."""
        return sum(each.pages.page // each.pages.block_size for each in self.layers if each.pages.kind in EVERY_TOKEN)


@dataclass(frozen=True)
class Division:
    """How a model's layers share memory."""

    groups: tuple[Group, ...]
    stages: tuple[StageBlocks, ...]
    limits: Limits
    rules: Rules

    @property
    def block_size(self) -> int:
        """Tokens of a block of layers that keep every token, or else of the first."""
        full = (group for group in self.groups if group.pages.kind in EVERY_TOKEN)
        return next(full, self.groups[0]).pages.block_size

    def request_blocks(self, length: int) -> int:
        """Blocks of the pool that a request of `length` tokens takes."""
        if not self.rules.pooled or not _packed(self.groups):
            return sum(blocks_of(group.pages, length, self.limits) for group in self.groups)
        groups = self.stages[0].groups
        used = sum(blocks_of(each.pages, length, self.limits) * each.block_bytes for each in groups)
        return ceil_div(used, max(groups[0].block_bytes, 1))

    def needed(self, stage: StageBlocks, length: int) -> int:
        """Bytes on a GPU of a stage that a request of `length` tokens must find."""
        if not stage.layers:
            return 0
        if self.rules.need == "layers":
            return sum(each.pages.page * blocks_of(each.pages, length, self.limits) for each in stage.layers)
        blocks = sum(blocks_of(group.pages, length, self.limits) for group in self.groups)
        if self.rules.null_block:
            return stage.block_bytes * (blocks + 1)
        return blocks * (stage.row_bytes if _packed(self.groups) else stage.block_bytes)

    def bounded_bytes(self, stage: StageBlocks) -> int:
        """Bytes on a GPU of a stage that a request takes of layers that do not keep every token, at its longest."""
        bounded = (group for group in self.groups if group.pages.kind not in EVERY_TOKEN)
        return stage.block_bytes * sum(blocks_of(group.pages, ENDLESS, self.limits) for group in bounded)


ENDLESS = 1 << 40
"""A length that no window reaches."""


def divided(layers: Sequence[Layer], stages: Sequence[Stage], limits: Limits, rules: Rules) -> Division:
    """The layers of a model in groups, and those of each stage."""
    groups = groups_of(layers, rules)
    return Division(groups, tuple(_on(stage, layers, groups, rules) for stage in stages), limits, rules)


def _on(stage: Stage, layers: Sequence[Layer], groups: Sequence[Group], rules: Rules) -> StageBlocks:
    """Draft layers are on the last stage."""

    def here(each: Layer) -> bool:
        return each.index in stage.layers or (stage.last and each.index >= stage.layers.stop)

    mine = tuple(
        group if group.mixed and not rules.projected else replace(group, layers=tuple(filter(here, group.layers)))
        for group in groups
    )
    return StageBlocks(mine, tuple(filter(here, layers)), _block_bytes(mine, rules))


def _block_bytes(groups: Sequence[Group], rules: Rules) -> int:
    """Groups lie over each other, as they all draw on one pool."""
    if _packed(groups) and rules.packing == "rows":
        return _row_bytes(groups)
    if _packed(groups) and rules.packing == "sizes":
        counts = [Counter(layer.pages.page for layer in group.layers) for group in groups]
        return sum(page * max(each[page] for each in counts) for page in set().union(*counts))
    return max((each.block_bytes for each in groups), default=0)


def _packed(groups: Sequence[Group]) -> bool:
    """Whether there are several groups of layers of several sizes."""
    return len(groups) > 1 and all(each.mixed for each in groups)


def _row_bytes(groups: Sequence[Group]) -> int:
    """Bytes of a block where all groups are padded to as many layers of each size of the first group.

    Source: _get_kv_cache_config_deepseek_v4 at 0.22.0, _max_memory_usage_bytes_from_groups at 0.27.1.
    """
    return max(rows(each.layers) for each in groups) * sum({each.pages.page for each in groups[0].layers})
