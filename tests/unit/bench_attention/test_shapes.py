"""Batches: what they compute, move and see, next to counting it one by one."""

from __future__ import annotations

import pytest

from bench.attention import shapes
from bench.attention.shapes import Batch, Heads, decode_batches, prefill_batches


def counted(batch: Batch) -> tuple[int, int]:
    """Pairs of a query and a key that it sees, and keys that some query sees."""
    pairs, seen = 0, set()
    for query in range(batch.length - batch.queries, batch.length):
        first = max(0, query - batch.heads.window + 1) if batch.heads.window else 0
        pairs += query + 1 - first
        seen |= set(range(first, query + 1))
    return pairs, len(seen)


@pytest.mark.parametrize("window", [0, 1, 5, 16, 40])
@pytest.mark.parametrize(("queries", "length"), [(1, 1), (1, 33), (7, 7), (7, 20), (20, 33), (33, 33)])
def test_pairs_and_keys_are_as_counted(window: int, queries: int, length: int) -> None:
    batch = Batch(Heads("a model", 4, 2, 64, window), 3, queries, length)
    pairs, seen = counted(batch)
    assert (batch.pairs, batch.seen_keys) == (pairs, seen)
    assert batch.operations == 3 * 4 * pairs * 2 * 2 * 64
    assert batch.moved_bytes == 3 * seen * 2 * 2 * 64 * 2 + 2 * 3 * queries * 4 * 64 * 2


def test_a_batch_is_named_by_what_differs() -> None:
    names = [Batch(shapes.LLAMA_8B, *sizes).name for sizes in ((8, 1, 8192), (1, 2048, 2048), (1, 2048, 34816))]
    assert names == ["8k x8", "2k", "2k @32k"]


def test_batches_that_do_not_fit_or_repeat_are_left_out() -> None:
    full, sliding = Heads("full", 8, 2, 128), Heads("sliding", 8, 2, 128, window=1000)
    limit = full.token_bytes * 8192
    found = [(batch.heads.model, batch.length, batch.requests) for batch in decode_batches(
        [full, sliding], (512, 2048, 8192), (1, 4), limit
    )]  # fmt: skip
    assert found == [
        ("full", 512, 1), ("full", 2048, 1), ("full", 8192, 1), ("full", 512, 4), ("full", 2048, 4),
        ("sliding", 512, 1), ("sliding", 2048, 1), ("sliding", 512, 4), ("sliding", 2048, 4),
    ]  # fmt: skip
    prompts = [batch.length for batch in prefill_batches([sliding], ((512, 0), (512, 4096), (512, 65536)))]
    assert prompts == [512, 4608]


@pytest.mark.parametrize("heads", shapes.ALL, ids=lambda heads: heads.name)
def test_layers_are_ones_that_the_kernels_take(heads: Heads) -> None:
    assert heads.heads % heads.kv_heads == 0
    assert heads.head_size in (64, 80, 96, 128, 256, 512)
    assert heads.block_size % 16 == 0
