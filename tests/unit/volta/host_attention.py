"""Attention on the host: requests in guarded memory, in the cache of csrc/attention.h, and its kernels run on them."""

from __future__ import annotations

import ctypes
import re
from dataclasses import dataclass

import numpy as np

from tests.unit.volta.attention_reference import Array, Attention, first_visible, pack
from tests.unit.volta.host_kernels import CSRC, IN_ORDER, HostKernels, KernelFault, Memory, Order

# Head sizes, with the rows of a tile and without, of the kernels that the sources have.
SPLIT_KERNELS = tuple(
    (int(head_size), int(rows))
    for head_size, rows in re.findall(
        r"VOLTA_SPLIT_KERNEL\(NAME, TILES, (\d+), (\d+)", (CSRC / "attention_split.cuh").read_text(encoding="utf-8")
    )
)
TILED_KERNELS = tuple(
    int(head_size)
    for head_size in re.findall(
        r"VOLTA_TILED_KERNEL\(NAME, TILES, (\d+)", (CSRC / "attention_tiled.cuh").read_text(encoding="utf-8")
    )
)
# Beyond all memory: where a block table names no block.
NO_BLOCK = 2**30
UNTOUCHED = 0xFFFF


class PagedAttention(ctypes.Structure):
    """struct PagedAttention of attention.h."""

    _fields_ = [
        *((name, ctypes.c_void_p) for name in ("query", "out", "cache", "block_table", "query_start", "lengths")),
        *((name, ctypes.c_void_p) for name in ("sinks", "slopes", "ranges", "partial", "arrivals")),
        *((name, ctypes.c_longlong) for name in ("query_stride", "out_stride", "block_stride", "head_stride")),
        *((name, ctypes.c_int) for name in ("block_table_stride", "requests", "kv_heads", "group", "head_size")),
        *((name, ctypes.c_int) for name in ("block_size", "window", "most_ranges", "clamp_ranges")),
        *((name, ctypes.c_float) for name in ("scale", "soft_cap")),
    ]


class CacheWrite(ctypes.Structure):
    """struct CacheWrite of attention.h."""

    _fields_ = [
        *((name, ctypes.c_void_p) for name in ("key", "value", "cache", "slots")),
        *((name, ctypes.c_longlong) for name in ("key_stride", "value_stride", "block_stride", "head_stride")),
        *((name, ctypes.c_int) for name in ("tokens", "kv_heads", "head_size", "block_size")),
    ]


@dataclass(frozen=True)
class Layout:
    """How requests lie in memory.

    block_size: tokens of a block. seed: of the order of blocks. shared_blocks: so many first blocks of each request are
    the first request's. gap: numbers between heads, twice that between blocks or (heads_first) KV heads of the cache,
    and between tokens of query and result. before: tokens that are others', in front of the requests'.
    """

    block_size: int = 16
    seed: int = 0
    shared_blocks: int = 0
    gap: int = 0
    heads_first: bool = False
    before: int = 0

    def strides(self, blocks: int, kv_heads: int, head_size: int) -> tuple[int, int]:
        """From block to block and from KV head to KV head, in numbers."""
        one = self.block_size * 2 * head_size + self.gap
        if self.heads_first:
            return one, blocks * one + 2 * self.gap
        return kv_heads * one + 2 * self.gap, one


PLAIN = Layout()


@dataclass(frozen=True)
class Cache:
    """A cache: its numbers, in strides, and the blocks of each request."""

    numbers: Array
    block_table: Array
    block_stride: int
    head_stride: int


def cache_of(problem: Attention, layout: Layout) -> Cache:
    """The keys and values of the problem; NaN is all that no token sees. Block 0 is nobody's."""
    counts = [-(-request.length // layout.block_size) for request in problem.requests]
    total = 1 + sum(counts)
    free = iter(np.random.default_rng(layout.seed).permutation(np.arange(1, total)))
    block_stride, head_stride = layout.strides(total, problem.kv_heads, problem.head_size)
    size = layout.block_size * 2 * problem.head_size
    numbers = np.full((total - 1) * block_stride + (problem.kv_heads - 1) * head_stride + size, np.nan, np.float16)
    table = np.full((len(counts), max(counts) + 2), NO_BLOCK, np.int32)
    for number, (request, count) in enumerate(zip(problem.requests, counts, strict=True)):
        if request.length == 0:
            continue
        first = first_visible(problem, request)
        held = np.full((2, count * layout.block_size, problem.kv_heads, problem.head_size), np.nan, np.float16)
        held[0, first : request.length] = problem.keys[number][first:]
        held[1, first : request.length] = problem.values[number][first:]
        for block in range(count):
            if (block + 1) * layout.block_size <= first:
                table[number, block] = 0
                continue
            is_shared = number > 0 and block < layout.shared_blocks
            table[number, block] = table[0, block] if is_shared else next(free)
            tokens = slice(block * layout.block_size, (block + 1) * layout.block_size)
            for head in range(problem.kv_heads):
                start = table[number, block] * block_stride + head * head_stride
                numbers[start : start + size] = pack(held[0, tokens, head], held[1, tokens, head])
    return Cache(numbers, table, block_stride, head_stride)


@dataclass(frozen=True)
class Rows:
    """Tokens in guarded memory: `numbers` [tokens, stride], but for what is behind the last token's `width` numbers."""

    numbers: Array
    before: int
    width: int
    stride: int

    def mine(self) -> Array:
        """A copy of the requests' numbers, [tokens, width]."""
        return self._spread()[self.before :, : self.width].copy()

    def others(self) -> Array:
        """A copy of all other numbers."""
        is_mine = np.zeros(self._spread().shape, bool)
        is_mine[self.before :, : self.width] = True
        return self.numbers[~is_mine.reshape(-1)[: self.numbers.size]]

    def _spread(self) -> Array:
        missing = np.full(-self.numbers.size % self.stride, np.nan, np.float16)
        return np.concatenate([self.numbers, missing]).reshape(-1, self.stride)


def _rows(memory: Memory, tokens: int, width: int, layout: Layout, values: Array | None) -> Rows:
    """`values` [tokens, width] to read, or a place to write them to; NaN around them."""
    stride = width + layout.gap
    count = layout.before + tokens
    # The last row ends where the memory does.
    size = max(count * stride - layout.gap, 0)
    if values is None:
        return Rows(memory.empty((size,), np.float16), layout.before, width, stride)
    spread = np.full((count, stride), np.nan, np.float16)
    spread[layout.before :, :width] = values
    return Rows(memory.copy(spread.reshape(-1)[:size]), layout.before, width, stride)


class HostAttention:
    """The kernels for attention of a library."""

    def __init__(self, kernels: HostKernels) -> None:
        self.kernels = kernels
        self.library = kernels.library
        for name in ("tiled_blocks", "partial_floats", "tiled_partial_floats", "arrival_counters"):
            getattr(self.library, name).restype = ctypes.c_longlong
        assert self.library.paged_attention_bytes() == ctypes.sizeof(PagedAttention)
        assert self.library.cache_write_bytes() == ctypes.sizeof(CacheWrite)

    @property
    def unit(self) -> int:
        """Keys that are the least a thread block of split attention gets."""
        return int(self.library.split_unit())

    def split(
        self,
        problem: Attention,
        fragments: str,
        rows: int,
        blocks: int,
        layout: Layout = PLAIN,
        order: Order = IN_ORDER,
    ) -> Array:
        """The result by attention_split_*, tiles of `rows` rows on `blocks` thread blocks.

        Raises KernelFault, also where arrivals are not zero again or other rows were written.
        """
        head_size, tokens = problem.head_size, problem.query.shape[0]
        padded = self.library.padded_head_size(head_size)
        counters = self.library.arrival_counters(tokens, len(problem.requests), problem.kv_heads, problem.group, rows)
        with self.kernels.memory(order) as memory:
            partial = memory.empty((self.library.partial_floats(blocks, rows, padded),), np.float32)
            arrivals = memory.empty((counters,), np.uint32)
            arrivals[:] = 0
            work, out = self._work(memory, problem, layout)
            work.partial, work.arrivals = partial.ctypes.data, arrivals.ctypes.data
            kernel = f"attention_split_{fragments}_{head_size}_{rows}"
            threads = self.library.split_threads()
            self.kernels.launch("run_paged_attention", kernel, ctypes.byref(work), blocks, order, threads)
            return self._result(problem, out.mine(), out.others(), arrivals.copy())

    def tiled(
        self,
        problem: Attention,
        fragments: str,
        layout: Layout = PLAIN,
        order: Order = IN_ORDER,
        more_blocks: int = 0,
        parts: int = 1,
    ) -> Array:
        """The result by attention_tiled_*, with `more_blocks` thread blocks than are needed at the least.

        parts: blocks that share the keys of the same rows. Raises KernelFault as `split` does.
        """
        head_size, tokens = problem.head_size, problem.query.shape[0]
        blocks = more_blocks + self.library.tiled_blocks(tokens, len(problem.requests), problem.group, head_size)
        sharing = blocks * problem.kv_heads if parts > 1 else 0
        with self.kernels.memory(order) as memory:
            partial = memory.empty((self.library.tiled_partial_floats(sharing * parts, head_size),), np.float32)
            arrivals = memory.empty((sharing,), np.uint32)
            arrivals[:] = 0
            work, out = self._work(memory, problem, layout)
            work.partial, work.arrivals = partial.ctypes.data, arrivals.ctypes.data
            self.kernels.launch(
                "run_paged_attention",
                f"attention_tiled_{fragments}_{head_size}",
                ctypes.byref(work),
                (blocks, problem.kv_heads, parts),
                order,
                self.library.tiled_threads(),
                self.library.tiled_shared_bytes(head_size),
            )
            return self._result(problem, out.mine(), out.others(), arrivals.copy())

    def _work(self, memory: Memory, problem: Attention, layout: Layout) -> tuple[PagedAttention, Rows]:
        tokens, width = problem.query.shape[0], problem.heads * problem.head_size
        cache = cache_of(problem, layout)
        query = _rows(memory, tokens, width, layout, problem.query.reshape(tokens, width))
        out = _rows(memory, tokens, width, layout, None)
        most_ranges = max(len(request.ranges) for request in problem.requests)
        ranges = np.zeros((len(problem.requests), most_ranges, 2), np.int32)
        for number, request in enumerate(problem.requests):
            ranges[number, : len(request.ranges)] = np.array(request.ranges, np.int32).reshape(-1, 2)

        def address(values: Array | None) -> int | None:
            return None if values is None else memory.copy(values).ctypes.data

        work = PagedAttention(
            query=query.numbers.ctypes.data,
            out=out.numbers.ctypes.data,
            cache=address(cache.numbers),
            block_table=address(cache.block_table),
            query_start=address((layout.before + problem.starts()).astype(np.int32)),
            lengths=address(np.array([request.length for request in problem.requests], np.int32)),
            sinks=address(problem.sinks),
            slopes=address(problem.slopes),
            ranges=address(ranges) if most_ranges else None,
            query_stride=query.stride,
            out_stride=out.stride,
            block_stride=cache.block_stride,
            head_stride=cache.head_stride,
            block_table_stride=cache.block_table.shape[1],
            requests=len(problem.requests),
            kv_heads=problem.kv_heads,
            group=problem.group,
            head_size=problem.head_size,
            block_size=layout.block_size,
            window=problem.window,
            most_ranges=most_ranges,
            clamp_ranges=int(problem.clamp_ranges),
            scale=problem.scale,
            soft_cap=problem.soft_cap,
        )
        return work, out

    @staticmethod
    def _result(problem: Attention, mine: Array, others: Array, arrivals: Array) -> Array:
        """All arguments are copies: pytest shows them when the memory is gone."""
        if arrivals.any():
            raise KernelFault(f"arrivals are left: {arrivals}")
        if not (others.view(np.uint16) == UNTOUCHED).all():
            raise KernelFault("wrote rows of the result that are not the requests'")
        return mine.reshape(problem.query.shape)

    def write_cache(
        self,
        cache: Array,
        strides: tuple[int, int],
        key: Array,
        value: Array,
        slots: Array,
        block_size: int,
        blocks: int,
        order: Order = IN_ORDER,
        gap: int = 0,
    ) -> Array:
        """`cache`, flat, with keys and values [tokens, KV heads, head_size] at `slots` of it, by write_cache.

        strides: from block to block and from head to head. gap: numbers of NaN between tokens, twice that of values.
        """
        tokens, kv_heads, head_size = key.shape
        width = kv_heads * head_size
        with self.kernels.memory(order) as memory:
            keys = _rows(memory, tokens, width, Layout(gap=gap), key.reshape(tokens, width))
            values = _rows(memory, tokens, width, Layout(gap=2 * gap), value.reshape(tokens, width))
            written = memory.empty(cache.shape, np.float16)
            written[...] = cache
            work = CacheWrite(
                key=keys.numbers.ctypes.data,
                value=values.numbers.ctypes.data,
                cache=written.ctypes.data,
                slots=memory.copy(slots.astype(np.int64)).ctypes.data,
                key_stride=keys.stride,
                value_stride=values.stride,
                block_stride=strides[0],
                head_stride=strides[1],
                tokens=len(slots),
                kv_heads=kv_heads,
                head_size=head_size,
                block_size=block_size,
            )
            self.kernels.launch("run_cache_write", "write_cache", ctypes.byref(work), blocks, order, 256)
            return written.copy()
