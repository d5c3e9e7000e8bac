"""Times of decoding and of prompts, next to SDPA and to vLLM's Triton attention, in the same run.

Values do not matter here, so all caches are windows into one pool of random numbers: of each implementation's layout,
one behind the other, so many that the L2 cache holds none when its turn comes again.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import torch

from bench.attention import operators, peers
from bench.attention.cases import Case, Options
from bench.attention.findings import LONG_SECONDS, OURS, SDPA, TRITON, TRITON_70, Row
from bench.attention.operators import Workspace
from bench.attention.shapes import TABLE_COLUMNS, Batch
from bench.attention.upstream import UnifiedAttention
from bench.gpu.timing import copies_past_cache, seconds_of

MOST_CACHE_BYTES = 16 << 30
"""Larger batches are left out: of a V100's 32 GB, weights take half and more."""
PROMPT_REPEATS, REPEATS = 3, 7
MOST_COPIES = 256
CACHES = 3
"""So many times as large as the L2 cache are the copies that calls go through in turn."""

Call = Callable[[], object]


@dataclass(frozen=True)
class Pool:
    """Random fp16 numbers that all caches are taken from."""

    numbers: torch.Tensor
    generator: torch.Generator

    def windows(self, numbers: int) -> list[torch.Tensor]:
        """So many as the L2 cache does not hold together, each of so many numbers, none over another where the pool is
        large enough."""
        wanted = min(copies_past_cache(2 * numbers, CACHES), MOST_COPIES)
        fitting = max(1, min(wanted, self.numbers.numel() // numbers))
        return [self.numbers[i * numbers : (i + 1) * numbers] for i in range(fitting)]

    def normal(self, *shape: int) -> torch.Tensor:
        device = self.numbers.device
        return torch.empty(shape, dtype=torch.float16, device=device).normal_(generator=self.generator)


def new_pool(numbers: int, generator: torch.Generator) -> Pool:
    """numbers: of fp16, at least those of the largest cache."""
    pool = torch.empty(numbers, dtype=torch.float16, device=generator.device)
    return Pool(pool.normal_(generator=generator), generator)


def numbers_of(batch: Batch) -> int:
    """Of a batch's cache, with whole blocks."""
    size = batch.heads.block_size
    return batch.requests * -(-batch.length // size) * size * batch.heads.token_bytes // 2


def described(batch: Batch, pool: Pool) -> Case:
    """The batch with blocks in random order; its keys and values are elsewhere."""
    heads, device = batch.heads, pool.numbers.device
    blocks = -(-batch.length // heads.block_size)
    columns = -(-blocks // TABLE_COLUMNS) * TABLE_COLUMNS
    order = torch.randperm(batch.requests * blocks, generator=pool.generator, device=device).int()
    table = torch.zeros(batch.requests, columns, dtype=torch.int32, device=device)
    table[:, :blocks] = order.view(batch.requests, blocks)
    nothing = torch.empty(0, heads.kv_heads, heads.head_size, dtype=torch.float16, device=device)
    return Case(
        heads,
        pool.normal(batch.requests * batch.queries, heads.heads, heads.head_size),
        nothing,
        nothing,
        torch.arange(batch.requests + 1, dtype=torch.int32, device=device) * batch.queries,
        torch.full((batch.requests,), batch.length, dtype=torch.int32, device=device),
        table,
        Options(window=heads.window),
    )


def our_calls(batch: Batch, pool: Pool, fragments: int) -> list[Call]:
    """The operator as vLLM's layer calls it."""
    case, heads = described(batch, pool), batch.heads
    parts = (batch.requests, 1) if batch.decodes else (0, 0)
    space: Workspace = operators.workspace(case, batch.requests, fragments)
    out = torch.empty_like(case.query)
    shape = -1, heads.kv_heads, heads.block_size, 2 * heads.head_size
    decodes = batch.requests if batch.decodes else 0
    caches = [window.view(shape) for window in pool.windows(numbers_of(batch))]
    return [functools.partial(operators.attend, case, each, space, fragments, decodes, out, parts) for each in caches]


def sdpa_calls(batch: Batch, pool: Pool) -> tuple[list[Call], str] | None:
    """torch's attention on contiguous keys and values of just the keys that are seen."""
    heads = batch.heads
    query = pool.normal(batch.requests, heads.heads, batch.queries, heads.head_size)
    mask = peers.window_mask(batch, query.device)
    shape = 2, batch.requests, heads.kv_heads, batch.seen_keys, heads.head_size
    calls: list[Call] = []
    backend = ""
    windows = pool.windows(2 * batch.requests * heads.kv_heads * batch.seen_keys * heads.head_size)
    for window in windows:
        keys, values = window.view(shape)
        chosen = peers.sdpa(peers.Gathered(query, keys, values, mask), heads.head_size**-0.5)
        if chosen is None:
            return None
        calls.append(chosen.call)
        backend = chosen.backend
        if "expanded" in backend and len(calls) == 2:
            break  # each copy has grown by the number of query heads of a KV head
    return calls, backend


def triton_calls(batch: Batch, pool: Pool, attention: UnifiedAttention) -> list[Call]:
    """vLLM's wrapper over its own layout of the cache."""
    case, heads = described(batch, pool), batch.heads
    out = torch.empty_like(case.query)
    shape = -1, heads.block_size, heads.kv_heads, 2 * heads.head_size

    def call(cache: torch.Tensor) -> None:
        attention(
            case.query, cache, out, case.query_start, case.lengths, case.block_table, batch.queries, case.scale,
            window=heads.window,
        )  # fmt: skip

    return [functools.partial(call, window.view(shape).transpose(1, 2)) for window in pool.windows(numbers_of(batch))]


def seconds_of_calls(calls: Sequence[Call], batch: Batch) -> float:
    """As CUDA graphs; prompts read little compared with what they compute, so one copy of their cache is enough."""
    return seconds_of(calls if batch.decodes else calls[:1], REPEATS if batch.decodes else PROMPT_REPEATS)


@dataclass
class Pace:
    """Seconds that implementations took for an operation of their last batch, by the heads and the kind of batch."""

    seconds: dict[tuple[str, str, bool], float] = field(default_factory=dict)

    def is_slow(self, peer: str, batch: Batch) -> bool:
        paced = self.seconds.get((peer, batch.heads.name, batch.decodes), 0.0)
        return paced * batch.operations > LONG_SECONDS

    def note(self, peer: str, batch: Batch, seconds: float) -> None:
        self.seconds[peer, batch.heads.name, batch.decodes] = seconds / batch.operations


def rows(
    batches: Sequence[Batch],
    pool: Pool,
    fragments: int,
    triton: peers.Triton | None,
    copy_rate: float,
    half_rate: float,
    until: float,
) -> Iterator[Row]:
    """Batch by batch, until the monotonic clock says `until`. Ours is always timed."""
    pace = Pace()
    for batch in batches:
        if time.monotonic() > until:
            return
        seconds = {OURS: seconds_of_calls(our_calls(batch, pool, fragments), batch)}
        backend = "-"
        if not pace.is_slow(SDPA, batch) and (chosen := sdpa_calls(batch, pool)) is not None:
            calls, backend = chosen
            seconds[SDPA] = seconds_of_calls(calls, batch)
        if triton is not None:
            device = pool.numbers.device
            for name, make in ((TRITON, triton.native_attention), (TRITON_70, triton.volta_attention)):
                if not pace.is_slow(name, batch):
                    calls = triton_calls(batch, pool, make(batch.heads, device))
                    seconds[name] = seconds_of_calls(calls, batch)
        for name, each in seconds.items():
            pace.note(name, batch, each)
        yield Row(batch, seconds, backend, copy_rate, half_rate)


def half_rate(size: int = 8192) -> float:
    """Operations a second of torch's matmul in fp16 on random data (cuBLAS): the peak that prompts are held to."""
    first, second = (torch.randn(size, size, device="cuda").half() for _ in range(2))
    return 2 * size**3 / seconds_of([lambda: first @ second], REPEATS)
