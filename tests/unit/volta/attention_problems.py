"""Problems for attention (attention_reference.py): rough ones, and ones whose result is known to the last bit."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tests.unit.volta.attention_reference import Array, Attention, Request, is_visible

# (query tokens, tokens in the cache) or a whole request.
Pair = tuple[int, int]


def requests_of(pairs: Sequence[Pair]) -> tuple[Request, ...]:
    return tuple(Request(queries, length) for queries, length in pairs)


def rough(
    random: np.random.Generator,
    requests: Sequence[Request],
    kv_heads: int,
    group: int,
    head_size: int,
    spread: float = 1,
    shared_tokens: int = 0,
    window: int = 0,
    soft_cap: float = 0,
    clamp_ranges: bool = False,
    sinks: Array | None = None,
    slopes: Array | None = None,
) -> Attention:
    """Numbers without pattern; logits have a standard deviation of `spread`.

    shared_tokens: the first keys and values of each request are the first request's.
    """
    tokens = sum(request.queries for request in requests)
    query = random.normal(size=(tokens, kv_heads * group, head_size)) * spread
    keys, values = (
        [random.normal(size=(request.length, kv_heads, head_size)).astype(np.float16) for request in requests]
        for _ in range(2)
    )
    for each in (keys, values):
        for later in each[1:]:
            later[:shared_tokens] = each[0][:shared_tokens]
    return Attention(
        tuple(requests),
        query.astype(np.float16),
        tuple(keys),
        tuple(values),
        # Not a power of two, which would round nothing.
        1.01 / head_size**0.5,
        window,
        soft_cap,
        clamp_ranges,
        sinks,
        slopes,
    )


def counting(
    requests: Sequence[Request],
    kv_heads: int,
    group: int,
    head_size: int,
    window: int = 0,
    clamp_ranges: bool = False,
) -> Attention:
    """All keys count the same: the result is how many keys a row sees of each of head_size kinds, over all it sees.

    Key k is of kind k + 3 * KV head, modulo the head size.
    """
    values = []
    for request in requests:
        kinds = (np.arange(request.length)[:, None] + 3 * np.arange(kv_heads)) % head_size
        values.append(np.eye(head_size, dtype=np.float16)[kinds])
    tokens = sum(request.queries for request in requests)
    return Attention(
        tuple(requests),
        np.zeros((tokens, kv_heads * group, head_size), np.float16),
        tuple(np.ones(each.shape, np.float16) for each in values),
        tuple(values),
        1,
        window,
        clamp_ranges=clamp_ranges,
    )


def selecting(
    random: np.random.Generator, requests: Sequence[Request], kv_heads: int, group: int, head_size: int, window: int = 0
) -> tuple[Attention, Array]:
    """Each row wants one of the keys that it sees, and gets its value to the last bit; these values too.

    Keys are signs, and a row's query is the signs of its key. The wanted key's product is head_size, and others' are so
    much smaller that nothing is left of them.
    """
    tokens = sum(request.queries for request in requests)
    query = np.zeros((tokens, kv_heads * group, head_size), np.float16)
    expected = np.zeros(query.shape, np.float16)
    keys, values = [], []
    start = 0
    problem = Attention((), query, (), (), 64, window)
    for request in requests:
        key = random.choice([-1.0, 1.0], (request.length, kv_heads, head_size)).astype(np.float16)
        value = (random.normal(size=key.shape) * 2.0 ** random.integers(-12, 12, key.shape)).astype(np.float16)
        for token, seen in enumerate(is_visible(problem, request) if request.length else ()):
            for head in range(query.shape[1]):
                wanted = random.choice(np.flatnonzero(seen))
                query[start + token, head] = key[wanted, head // group]
                expected[start + token, head] = value[wanted, head // group]
        start += request.queries
        keys.append(key)
        values.append(value)
    return Attention(tuple(requests), query, tuple(keys), tuple(values), 64, window), expected


def rising(
    random: np.random.Generator, requests: Sequence[Request], kv_heads: int, group: int, head_size: int, step: float
) -> Attention:
    """Logits that rise by `step` with every 32 keys, and vary a little."""
    problem = rough(random, requests, kv_heads, group, head_size, spread=0.1)
    query, keys = problem.query.copy(), []
    # One dimension has it all.
    query[..., 0] = 1 / problem.scale
    for key in problem.keys:
        risen = key.copy()
        risen[..., 0] = step * (np.arange(len(key)) // 32)[:, None]
        keys.append(risen)
    return Attention(problem.requests, query, tuple(keys), problem.values, problem.scale)
