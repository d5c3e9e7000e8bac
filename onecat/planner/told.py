"""What the memory model and the comparison of layouts say, as fields of a plan: sizes in GiB, costs as ratios."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from onecat.planner.hardware import GIB
from onecat.planner.layouts import Candidate
from onecat.planner.memory import GpuMemory
from onecat.planner.records import LayoutCandidate, Plan
from onecat.planner.sizing import Sizing


def memory_of(plan: Plan, sizing: Sizing) -> Plan:
    """The plan with what it takes of each GPU."""
    capacity, settings = sizing.estimate.capacity, sizing.settings
    return replace(
        plan,
        fits=sizing.fits,
        per_gpu=tuple(_gpu(sizing, rank, each) for rank, each in enumerate(sizing.estimate.per_gpu)),
        kv_tokens=capacity.tokens if capacity is not None else 0,
        max_concurrency=round(capacity.max_concurrency, 2) if capacity is not None else 0.0,
        max_model_len=sizing.length,
        largest_max_model_len=sizing.largest,
        short_of_gib=_gib(sizing.short_of),
        estimated=sizing.estimate.estimated,
        assumed={
            "dtype": settings.dtype,
            "kv_cache_dtype": settings.kv_cache_dtype,
            "gpu_memory_utilization": settings.utilization,
            "max_num_seqs": settings.max_num_seqs,
            "max_num_batched_tokens": settings.max_num_batched_tokens,
            "kv_block_size": capacity.block_size if capacity is not None else settings.block_size,
            "kv_bytes_per_token": capacity.bytes_per_token if capacity is not None else None,
            "kv_bytes_per_sequence": capacity.bytes_per_sequence if capacity is not None else None,
            "cuda_graphs": settings.graphs,
            "prefix_caching": settings.prefix_caching,
        },
    )


def _gpu(sizing: Sizing, rank: int, used: GpuMemory) -> dict[str, Any]:
    """weights, kv_cache, activations, overhead (graphs among it), other and free come to memory where it fits.

    Of a host whose memory is not known, memory, budget and free are None.
    """
    card = sizing.cards[rank] if rank < len(sizing.cards) else None
    return {
        "rank": used.rank,
        "gpu": None if card is None else card.index,
        "name": None if card is None else card.name,
        "weights_gib": _gib(used.weights),
        "kv_cache_gib": _gib(used.kv_cache),
        "activations_gib": _gib(used.activations),
        "overhead_gib": _gib(used.overhead + used.graphs + used.outside),
        "free_gib": _gib(used.free) if sizing.memory_known else None,
        "graphs_gib": _gib(used.graphs),
        "other_gib": _gib(used.other),
        "memory_gib": _gib(used.memory) if sizing.memory_known else None,
        "budget_gib": _gib(used.budget) if sizing.memory_known else None,
    }


def told_candidates(compared: Sequence[Candidate]) -> tuple[LayoutCandidate, ...]:
    """Layouts that were compared, the best first."""
    if not compared:
        return ()
    best = compared[0]
    return tuple(
        LayoutCandidate(
            layout=each.layout,
            fits=each.holds == "whole",
            kv_tokens=each.sizing.estimate.capacity.tokens if each.sizing.estimate.capacity else None,
            max_concurrency=round(each.sizing.estimate.capacity.max_concurrency, 2)
            if each.sizing.estimate.capacity
            else None,
            largest_max_model_len=each.sizing.largest,
            cost=round(each.cost.token / best.cost.token, 2),
            latency=round(each.cost.single / best.cost.single, 2),
            gpus=each.order,
            why=each.why,
            holds=each.holds,
            wanted=each.wanted.tokens,
            expert_parallel=each.experts_whole,
        )
        for each in compared
    )


def _gib(count: int) -> float:
    return round(count / GIB, 3)
