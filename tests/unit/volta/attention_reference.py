"""Attention over requests in float64, how far fp16 and fp32 may be off, and the cache of csrc/attention.h packed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

CACHE_GROUP = 16
# The largest relative error of one rounding to fp16 and to fp32, and the largest error of numbers too small for fp16.
HALF = 2.0**-11
SINGLE = 2.0**-24
SMALLEST_HALF = 2.0**-25

Array = NDArray[Any]


@dataclass(frozen=True)
class Request:
    """So many query tokens, the last ones of `length` tokens in the cache; ranges of tokens that see each other.

    Ranges have their first and their last position. length: 0 for what is no request.
    """

    queries: int
    length: int
    ranges: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class Attention:
    """What is to be computed.

    query: fp16 [tokens, heads, head_size], those of one request after the other. keys, values: of each request, fp16
    [length, KV heads, head_size]. sinks, slopes: fp32 [heads] or None. A token sees `window` keys, its own included;
    0: all. clamp_ranges: the window holds in ranges too.
    """

    requests: tuple[Request, ...]
    query: Array
    keys: tuple[Array, ...]
    values: tuple[Array, ...]
    scale: float
    window: int = 0
    soft_cap: float = 0
    clamp_ranges: bool = False
    sinks: Array | None = None
    slopes: Array | None = None

    @property
    def heads(self) -> int:
        return int(self.query.shape[1])

    @property
    def head_size(self) -> int:
        return int(self.query.shape[2])

    @property
    def kv_heads(self) -> int:
        return int(self.keys[0].shape[1])

    @property
    def group(self) -> int:
        return self.heads // self.kv_heads

    def starts(self) -> Array:
        """The first token of each request, and the end of the last one's."""
        return np.cumsum([0, *(request.queries for request in self.requests)])


def is_visible(problem: Attention, request: Request) -> Array:
    """Which keys each query token of a request sees, [queries, length]."""
    position = (request.length - request.queries + np.arange(request.queries))[:, None]
    key = np.arange(request.length)[None, :]
    in_window = position - key < (problem.window or request.length)
    seen = (key <= position) & in_window
    for first, last in request.ranges:
        both = (first <= position) & (position <= last) & (first <= key) & (key <= last)
        seen |= both & in_window if problem.clamp_ranges else both
    return np.asarray(seen)


def first_visible(problem: Attention, request: Request) -> int:
    """The first key that any token of a request sees."""
    return int(is_visible(problem, request).any(axis=0).argmax())


@dataclass(frozen=True)
class _Rows:
    """The rows of a request and head: its tokens, logits with their error, weights [queries, length], values."""

    tokens: slice
    head: int
    logits: Array
    logit_errors: Array
    weights: Array
    values: Array


def _product(left: Array, right: Array) -> Array:
    """As `@`, by one thread: those of a library for matrices would wait for processors that other tests have."""
    return np.einsum("ij,jk->ik", left, right)


def _rows(problem: Attention) -> Iterator[_Rows]:
    for number, request in enumerate(problem.requests):
        if request.length == 0 or request.queries == 0:
            continue
        start = problem.starts()[number]
        tokens = slice(start, start + request.queries)
        seen = is_visible(problem, request)
        keys = np.arange(request.length)
        distance = keys[None, :] - keys[request.length - request.queries :, None]
        # Of keys that nobody sees anything may be written down.
        used = seen.any(axis=0)
        for head in range(problem.heads):
            query = problem.query[tokens, head].astype(np.float64)
            key = np.where(used[:, None], problem.keys[number][:, head // problem.group].astype(np.float64), 0)
            value = np.where(used[:, None], problem.values[number][:, head // problem.group].astype(np.float64), 0)
            logits = _product(query, key.T) * problem.scale
            # Products are added up in fp32: the sums of their sizes are no larger than the product of the norms.
            sizes = np.linalg.norm(query, axis=1)[:, None] * np.linalg.norm(key, axis=1)
            errors = sizes * problem.scale * (problem.head_size + 4) * SINGLE
            if problem.soft_cap:
                logits = problem.soft_cap * np.tanh(logits / problem.soft_cap)
                errors = errors + problem.soft_cap * 16 * SINGLE
            if problem.slopes is not None:
                bias = float(problem.slopes[head]) * distance
                logits = logits + bias
                errors = errors + np.abs(bias) * 4 * SINGLE
            # Logits become powers of two, and the largest one is taken off.
            errors = errors + 4 * SINGLE * (np.abs(logits) + np.abs(np.where(seen, logits, 0)).max())
            logits = np.where(seen, logits, -np.inf)
            largest = logits.max(axis=1, keepdims=True)
            sums = np.exp(logits - largest).sum(axis=1, keepdims=True)
            if problem.sinks is not None:
                with np.errstate(over="ignore"):  # beside a huge sink nothing counts
                    sums = sums + np.exp(np.float64(problem.sinks[head]) - largest)
            yield _Rows(tokens, head, logits, errors, np.exp(logits - largest) / sums, value)


def in_float64(problem: Attention) -> Array:
    """The result [tokens, heads, head_size]; NaN for tokens of what is no request."""
    result = np.full(problem.query.shape, np.nan)
    for rows in _rows(problem):
        result[rows.tokens, rows.head] = _product(rows.weights, rows.values)
    return result


def with_limit(problem: Attention) -> tuple[Array, Array]:
    """The result, and how far one in fp16 may be from it: both [tokens, heads, head_size].

    Logits and sums are those of fp32. Exponentials (the largest is about 1) and the result are rounded to fp16. So
    much, and more for its logits, has scaled_dot_product_attention of fp16.
    """
    result, limit = np.full(problem.query.shape, np.nan), np.full(problem.query.shape, np.nan)
    for rows in _rows(problem):
        value = _product(rows.weights, rows.values)
        wrong = rows.weights * (rows.logit_errors + 8 * SINGLE)
        of_sums = (rows.logits.shape[1] + 32) * SINGLE
        of_terms = wrong + rows.weights * (HALF + of_sums) + SMALLEST_HALF * np.isfinite(rows.logits)
        of_result = np.maximum(HALF * np.abs(value), SMALLEST_HALF)
        # Sums of exponentials are of rounded ones too.
        error = (
            _product(of_terms, np.abs(rows.values)) + of_terms.sum(axis=1, keepdims=True) * np.abs(value) + of_result
        )
        result[rows.tokens, rows.head] = value
        limit[rows.tokens, rows.head] = error * (1 + 2.0**-8)
    return result, limit


def in_fp16(problem: Attention) -> Array:
    """The result with nothing but exponentials (the largest is 1) and the result rounded to fp16."""
    result = np.full(problem.query.shape, np.nan, np.float16)
    for rows in _rows(problem):
        largest = rows.weights.max(axis=1, keepdims=True)
        exponentials = (rows.weights / largest).astype(np.float16).astype(np.float64)
        # What is of a sink, which is not rounded.
        others = 1 - rows.weights.sum(axis=1, keepdims=True)
        sums = exponentials.sum(axis=1, keepdims=True) + others / largest
        result[rows.tokens, rows.head] = _product(exponentials, rows.values) / sums
    return result


def pack(keys: Array, values: Array) -> Array:
    """Keys and values [tokens, head_size] of whole groups of 16 tokens as the numbers of a block of the cache."""
    tokens, head_size = keys.shape
    groups = tokens // CACHE_GROUP
    packed = np.empty((groups, 2, CACHE_GROUP * head_size), np.float16)
    eights = keys.reshape(groups, CACHE_GROUP, head_size // 8, 8)
    packed[:, 0] = eights.transpose(0, 2, 1, 3).reshape(groups, -1)
    packed[:, 1] = values.reshape(groups, -1)
    return packed.reshape(-1)
