"""What a budget comes to: blocks, tokens, requests."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

from onecat.checkpoints.architectures.records import Architecture
from onecat.planner.memory.itself import Itself
from onecat.planner.memory.kv_cache.blocks import state_mode
from onecat.planner.memory.kv_cache.division import Division, StageBlocks, divided
from onecat.planner.memory.kv_cache.layers import layers_of
from onecat.planner.memory.kv_cache.pages import Limits
from onecat.planner.memory.kv_cache.rules import Rules, rules_of
from onecat.planner.memory.kv_cache.v0 import divided_by_v0
from onecat.planner.memory.records import Device, KeyValueCapacity, MemorySettings
from onecat.planner.memory.runners import ModelRunner, runner_of
from onecat.planner.memory.stages import Stage
from onecat.planner.memory.versions import behaviour_of


def kv_capacity(
    architecture: Architecture, settings: MemorySettings, stages: Sequence[Stage], available: Sequence[int]
) -> KeyValueCapacity | None:
    """What `available` bytes per GPU (by stage) come to; None when they hold no block, or no layer keeps any."""
    division = division_of(architecture, settings, stages)
    have = list(zip(division.stages, available, strict=True))
    counts = [memory // stage.block_bytes for stage, memory in have if stage.block_bytes]
    if not counts or min(counts) < 1:
        return None
    blocks, length = min(counts), settings.max_model_len
    concurrency = blocks / division.request_blocks(length)
    # The engine logs the same quotient, so it is rounded as its float is.
    tokens = int(concurrency * length)
    if division.rules.tokens == "blocks":
        tokens = blocks // len(division.groups) * min(group.pages.block_size for group in division.groups)

    needs = _needs(architecture, settings, division)

    def fits(length: int) -> bool:
        return all(needs(stage, length) <= memory for stage, memory in have)

    return KeyValueCapacity(
        tokens=tokens,
        blocks=blocks,
        block_size=division.block_size,
        groups=len(division.groups),
        bytes_per_token=max(stage.bytes_per_token for stage in division.stages),
        bytes_per_sequence=max(division.bounded_bytes(stage) for stage in division.stages),
        max_concurrency=concurrency,
        largest_max_model_len=_largest(fits, max(architecture.max_position_embeddings or 0, length)),
    )


def needed_for(
    architecture: Architecture, settings: MemorySettings, stages: Sequence[Stage], length: int
) -> tuple[int, ...]:
    """Bytes per GPU (by stage) that one request of `length` tokens needs."""
    division = division_of(architecture, settings, stages)
    needs = _needs(architecture, settings, division)
    return tuple(needs(stage, length) for stage in division.stages)


def given_bytes(
    architecture: Architecture, settings: MemorySettings, stages: Sequence[Stage]
) -> tuple[int, ...] | None:
    """Bytes per GPU (by stage) of as many blocks as are given; None where they are computed from memory.

    Source: vllm/v1/core/kv_cache_utils.py at 0.27.1 (get_kv_cache_configs, may_override_num_blocks).
    """
    if settings.blocks is None:
        return None
    return tuple(settings.blocks * stage.block_bytes for stage in division_of(architecture, settings, stages).stages)


def _needs(
    architecture: Architecture, settings: MemorySettings, division: Division
) -> Callable[[StageBlocks, int], int]:
    """What a request must find on a GPU of a stage, by its length.

    Of blocks that are given, engine v1 hands out all but one (BlockPool.null_block): a request that needs them all
    waits for ever, or is refused by versions that look.
    """
    held_back = (
        settings.blocks is not None and not division.rules.null_block and _runner(architecture, settings) != "v0"
    )

    def needs(stage: StageBlocks, length: int) -> int:
        needed = division.needed(stage, length)
        return needed + stage.block_bytes if held_back and stage.layers else needed

    return needs


def division_of(architecture: Architecture, settings: MemorySettings, stages: Sequence[Stage]) -> Division:
    """How the engine of these settings divides the layers."""
    return _division(Itself(architecture), settings, tuple(stages))


@functools.lru_cache(maxsize=4)
def _division(key: Itself[Architecture], settings: MemorySettings, stages: tuple[Stage, ...]) -> Division:
    """What there is room for and what is needed are asked one after the other."""
    architecture = key.of
    rules = rules_of(settings.engine_version)
    runner = _runner(architecture, settings)
    if runner == "v0":
        return divided_by_v0(architecture, settings, stages, rules)
    return divided(
        layers_of(architecture, settings, rules), stages, _limits(architecture, settings, rules, runner), rules
    )


def _runner(architecture: Architecture, settings: MemorySettings) -> ModelRunner:
    device = Device(None, 0, capability=settings.capability)
    return runner_of(architecture, behaviour_of(settings.engine_version), device)


def _limits(architecture: Architecture, settings: MemorySettings, rules: Rules, runner: ModelRunner) -> Limits:
    """What bounds the blocks of a request beside its length. Source: VllmConfig.max_concurrent_batches at 0.27.1."""
    batches = settings.pipeline_parallel
    if settings.async_scheduling and settings.platform != "cpu":
        batches += runner == "v2" or batches == 1
    in_flight = settings.max_num_batched_tokens * (batches if rules.batches else 1)
    encoder = max((each.tokens or 0 for each in architecture.encoders), default=0)
    return Limits(
        in_flight=in_flight,
        encoder=encoder or settings.max_num_batched_tokens,
        state_mode=state_mode(architecture, settings, rules),
        speculative=settings.speculative_tokens if rules.states else 0,
    )


def _largest(fits: Callable[[int], bool], longest: int) -> int:
    """The largest length up to `longest` that fits, 0 when not one token does."""
    if not fits(1):
        return 0
    low, high = 1, longest
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(middle) else (low, middle - 1)
    return low
