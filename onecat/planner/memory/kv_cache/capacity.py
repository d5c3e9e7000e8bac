"""What a budget comes to: blocks, tokens, requests.

Source: vllm/v1/core/kv_cache_utils.py at 0.27.1 (get_kv_cache_configs and what it calls).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction

from onecat.checkpoints.architectures.records import Architecture
from onecat.planner.memory.kv_cache.blocks import state_mode
from onecat.planner.memory.kv_cache.groups import Group, groups_of
from onecat.planner.memory.kv_cache.layers import layers_of
from onecat.planner.memory.kv_cache.pages import Limits, blocks_of
from onecat.planner.memory.records import KeyValueCapacity, MemorySettings
from onecat.planner.memory.stages import Stage

TOLERANCE = Fraction(3, 2)


def kv_capacity(
    architecture: Architecture, settings: MemorySettings, stages: Sequence[Stage], available: Sequence[int]
) -> KeyValueCapacity | None:
    """What `available` bytes per GPU (by stage) come to; None when they hold no block or nothing needs any."""
    groups = groups_of(layers_of(architecture, settings), TOLERANCE)
    staged = [_projected(groups, stage) for stage in stages]
    counts = [
        have // size for each, have in zip(staged, available, strict=True) if (size := _bytes_per_block(each)) > 0
    ]
    if not counts or min(counts) < 1:
        return None
    blocks, limits = min(counts), limits_of(settings)
    request = _request_blocks(groups, settings.max_model_len, limits)
    longest = max(architecture.max_position_embeddings or 0, settings.max_model_len)

    def fits(length: int) -> bool:
        needed = (_needed(each, length, limits) for each in staged)
        return all(want <= have for want, have in zip(needed, available, strict=True))

    return KeyValueCapacity(
        tokens=int(blocks / request * settings.max_model_len),
        blocks=blocks,
        block_size=groups[0].pages.block_size,
        groups=len(groups),
        bytes_per_token=max(_bytes_per_token(each) for each in staged),
        bytes_per_sequence=max(_bytes_per_sequence(each, limits) for each in staged),
        max_concurrency=blocks / request,
        largest_max_model_len=_largest(fits, longest),
    )


def needed_for(
    architecture: Architecture, settings: MemorySettings, stages: Sequence[Stage], length: int
) -> tuple[int, ...]:
    """Bytes per GPU (by stage) that one request of `length` tokens needs."""
    groups = groups_of(layers_of(architecture, settings), TOLERANCE)
    return tuple(_needed(_projected(groups, stage), length, limits_of(settings)) for stage in stages)


def limits_of(settings: MemorySettings) -> Limits:
    """What bounds the blocks of a request beside its length. Source: VllmConfig.max_concurrent_batches at 0.27.1."""
    batches = settings.pipeline_parallel
    if settings.async_scheduling and settings.platform != "cpu" and batches == 1:
        batches = 2
    in_flight = batches * settings.max_num_batched_tokens
    return Limits(in_flight, settings.max_num_batched_tokens, state_mode(settings), settings.speculative_tokens)


def _projected(groups: Sequence[Group], stage: Stage) -> list[Group]:
    """What of each group a stage has. Draft layers are on the last stage."""

    def here(index: int) -> bool:
        return index in stage.layers or (stage.last and index >= stage.layers.stop)

    return [replace(group, layers=tuple(each for each in group.layers if here(each.index))) for group in groups]


def _bytes_per_block(groups: Sequence[Group]) -> int:
    """Bytes that one block takes in all layers that share it."""
    return max((sum(each.pages.page for each in group.layers) for group in groups), default=0)


def _request_blocks(groups: Sequence[Group], length: int, limits: Limits) -> int:
    return sum(blocks_of(group.pages, length, limits) for group in groups)


def _needed(groups: Sequence[Group], length: int, limits: Limits) -> int:
    return _bytes_per_block(groups) * _request_blocks(groups, length, limits)


def _bytes_per_token(groups: Sequence[Group]) -> int:
    """Of layers that keep every token."""
    return sum(
        each.pages.page // each.pages.block_size
        for group in groups
        for each in group.layers
        if each.pages.kind in ("full", "latent")
    )


def _bytes_per_sequence(groups: Sequence[Group], limits: Limits) -> int:
    """Of layers that do not keep every token."""
    bounded = [group for group in groups if group.pages.kind not in ("full", "latent")]
    if not bounded:
        return 0
    return _bytes_per_block(groups) * sum(blocks_of(group.pages, UNBOUNDED, limits) for group in bounded)


UNBOUNDED = 1 << 40


def _largest(fits: Callable[[int], bool], longest: int) -> int:
    """The largest length up to `longest` that fits, 0 when not one token does."""
    if not fits(1):
        return 0
    low, high = 1, longest
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(middle) else (low, middle - 1)
    return low
