"""What only a GPU can show of the compiled operators for attention: checks for check_operators.py.

Results are compared with torch's scaled_dot_product_attention in float64, on the keys and values that were handed to
`write_cache`; what the cache holds besides is NaN. Whether the kernels are right for all kinds of numbers is the
benchmark's question (bench/attention); here it is about layouts, strides, threads, CUDA graphs, workspaces, refusals.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import torch

HEAD_SIZES = (64, 80, 96, 128, 256, 512)
QUAD_PAIRS, OCTETS = 0, 1
TOLERANCE = 1e-3
"""Of the norm of an error, relative: results are rounded to float16, and so are the weights of values."""
REQUESTS = ((1, 1), (1, 300), (1, 33), (3, 77), (40, 40), (130, 515))
"""Of each request: query tokens, and tokens in the cache with those. The first four are decodes."""
DECODES = 4
GUARD = -7.0
"""What stands where nothing may be written."""


@dataclass(frozen=True)
class Shape:
    """Sizes of a layer. wide: every tensor is a part of a larger one, with strides of its own."""

    heads: int = 8
    kv_heads: int = 2
    head_size: int = 128
    block_size: int = 32
    wide: bool = False


class Batch:
    """Requests with random queries, keys and values, the latter in a cache of permuted blocks."""

    def __init__(
        self,
        requests: Sequence[tuple[int, int]] = REQUESTS,
        decodes: int = DECODES,
        shape: Shape | None = None,
        device: str = "cuda",
        **options: Any,
    ) -> None:
        """options: arguments of the operator that are not made here, as `window` or `sinks`."""
        self.requests, self.shape, self.device = tuple(requests), shape or Shape(), device
        self.random = torch.Generator().manual_seed(9)
        counts = [tokens for tokens, _ in self.requests]
        self.tokens = sum(counts)
        layer = self.shape
        self.query = self.numbers(self.tokens + 3, layer.heads)
        self.keys = [self.numbers(length, layer.kv_heads) for _, length in self.requests]
        self.values = [self.numbers(length, layer.kv_heads) for _, length in self.requests]
        self.starts = list(itertools.accumulate(counts, initial=0))
        self.table, self.cache = self.blocks()
        for request in range(len(self.requests)):
            self.write(request)
        self.out = torch.full_like(self.query, GUARD)
        self.arguments: dict[str, Any] = {
            "query": self.query,
            "cache": self.cache,
            "out": self.out,
            "query_start": self.numbers_of(self.starts),
            "lengths": self.numbers_of([length for _, length in self.requests]),
            "block_table": self.table,
            "partial": None,
            "arrivals": None,
            "sinks": None,
            "slopes": None,
            "ranges": None,
            "decodes": decodes,
            "decode_tokens": self.starts[decodes],
            "most_decode_queries": max(counts[:decodes], default=0),
            "tokens": self.tokens,
            "scale": layer.head_size**-0.5,
            "soft_cap": 0.0,
            "window": 0,
            "clamp_ranges": False,
            "fragments": options["fragments"] if "fragments" in options else fragments_of(self.query),
        } | options
        if self.arguments["partial"] is None:
            floats, counters = workspace_of(self, self.arguments["fragments"])
            self.arguments["partial"] = torch.full((floats,), math.nan, device=device)
            self.arguments["arrivals"] = torch.zeros(counters, dtype=torch.int32, device=device)

    def numbers(self, tokens: int, heads: int) -> torch.Tensor:
        """Random float16 [tokens, heads, head size]."""
        size = self.shape.head_size
        values = torch.randn((tokens, heads, size), generator=self.random).half().to(self.device)
        if not self.shape.wide:
            return values
        whole = torch.full((tokens, (heads + 1) * size + 8), GUARD, dtype=torch.float16, device=self.device)
        part = whole[:, 8 : 8 + heads * size].view(tokens, heads, size)
        part.copy_(values)
        return part

    def numbers_of(self, values: Sequence[int]) -> torch.Tensor:
        return torch.tensor(values, dtype=torch.int32, device=self.device)

    def blocks(self) -> tuple[torch.Tensor, torch.Tensor]:
        """A table of blocks in random order, and a cache of NaN for them."""
        layer = self.shape
        counts = [-(-length // layer.block_size) for _, length in self.requests]
        order = torch.randperm(sum(counts) + 5, generator=self.random).tolist()
        width = max(counts, default=1) + (3 if layer.wide else 0)
        table = torch.full((len(counts), width), 2**30, dtype=torch.int32, device=self.device)
        for row, count in zip(table, counts, strict=True):
            row[:count] = self.numbers_of([order.pop() for _ in range(count)])
        run, more = layer.block_size * 2 * layer.head_size, 24 if layer.wide else 0
        sizes = (sum(counts) + 5, layer.kv_heads + (1 if more else 0), run + more)
        whole = torch.full(sizes, math.nan, dtype=torch.float16, device=self.device)
        cache = whole[:, : layer.kv_heads, :run].unflatten(2, (layer.block_size, 2 * layer.head_size))
        return table[:, : max(counts, default=1)], cache

    def slots(self, request: int) -> torch.Tensor:
        """Where the tokens of a request are."""
        positions = torch.arange(self.requests[request][1], device=self.device)
        blocks = self.table[request].long()[positions // self.shape.block_size]
        return blocks * self.shape.block_size + positions % self.shape.block_size

    def write(self, request: int) -> None:
        operator("write_cache")(self.keys[request], self.values[request], self.cache, self.slots(request))

    def __call__(self, **changes: Any) -> torch.Tensor:
        """Run the operator with other arguments; its output, of all requests' tokens."""
        arguments = self.arguments | changes
        operator("paged_attention")(*arguments.values())
        out: torch.Tensor = arguments["out"]
        return out[: self.tokens]

    def expected(self, **changes: Any) -> torch.Tensor:
        """The same by torch, float64 [tokens, heads, head size]."""
        arguments = self.arguments | changes
        results = torch.full((self.tokens, *self.query.shape[1:]), GUARD, dtype=torch.float64, device=self.device)
        for request, length in enumerate(arguments["lengths"].tolist()):
            first, last = self.starts[request], self.starts[request + 1]
            if length and last > first:
                results[first:last] = self.expected_of(request, length, arguments)
        return results

    def expected_of(self, request: int, length: int, arguments: dict[str, Any]) -> torch.Tensor:
        group = self.shape.heads // self.shape.kv_heads
        query = self.query[self.starts[request] : self.starts[request + 1]].double().transpose(0, 1)
        keys, values = (
            each[request][:length].double().repeat_interleave(group, 1).transpose(0, 1)
            for each in (self.keys, self.values)
        )
        own = torch.arange(length - query.shape[1], length, device=self.device)[:, None]
        place = torch.arange(length, device=self.device)[None]
        near = own - place < (arguments["window"] or length + 1)
        seen = (place <= own) & near
        for start, stop in [] if arguments["ranges"] is None else arguments["ranges"][request].tolist():
            together = (own >= start) & (own <= stop) & (place >= start) & (place <= stop) & (start < stop)
            seen = seen | (together & near if arguments["clamp_ranges"] else together)
        bias = torch.zeros(seen.shape, dtype=torch.float64, device=self.device).masked_fill(~seen, -math.inf)
        bias = bias.expand(self.shape.heads, -1, -1)
        if arguments["slopes"] is not None:
            bias = bias + arguments["slopes"].double()[:, None, None] * (place - own)
        scale = arguments["scale"]
        if arguments["soft_cap"]:
            cap = arguments["soft_cap"]
            logits = cap * torch.tanh(query @ keys.transpose(1, 2) * scale / cap)
            return (torch.softmax(logits + bias, 2) @ values).transpose(0, 1)
        if arguments["sinks"] is not None:
            # A key of zeros, so that its logit is the bias, with a value of zeros.
            sink = arguments["sinks"].double()[:, None, None].expand(-1, query.shape[1], 1)
            bias = torch.cat((bias, sink), 2)
            keys, values = (torch.cat((each, torch.zeros_like(each[:, :1])), 1) for each in (keys, values))
        attend = torch.nn.functional.scaled_dot_product_attention
        return attend(query[None], keys[None], values[None], attn_mask=bias[None], scale=scale)[0].transpose(0, 1)

    def check(self, **changes: Any) -> None:
        """The operator gives what torch does, writes nothing else, and leaves no arrivals."""
        close(self(**changes), self.expected(**changes), (self.shape, changes))
        assert (self.out[self.tokens :] == GUARD).all()
        assert not self.arguments["arrivals"].any()


def operator(name: str) -> Callable[..., Any]:
    return getattr(torch.ops.vllm_volta, name)


def fragments_of(like: torch.Tensor) -> int:
    return operator("panel_fragments")(like)


def workspace_of(batch: Batch, fragments: int, tokens: int = 64) -> tuple[int, int]:
    layer = batch.shape
    sizes = (layer.kv_heads, layer.heads // layer.kv_heads, layer.head_size, 16, tokens, fragments)
    return operator("attention_workspace")(batch.query, *sizes)


def close(found: torch.Tensor, expected: torch.Tensor, what: object) -> None:
    error = ((found.double() - expected).norm() / expected.norm()).item()
    assert error < TOLERANCE, (what, error)


def same(found: torch.Tensor, expected: torch.Tensor) -> None:
    assert torch.equal(found, expected), (found.float() - expected.float()).abs().max()


def all_fragments(like: torch.Tensor) -> tuple[int, ...]:
    """Those that this GPU has."""
    return (OCTETS, QUAD_PAIRS) if torch.cuda.get_device_capability(like.device)[0] >= 8 else (QUAD_PAIRS,)


def attention_first_in_a_thread() -> None:
    """The first calls of the process are in a thread that never chose a device."""
    with ThreadPoolExecutor(1) as thread:
        thread.submit(lambda: Batch().check()).result()
    Batch().check()


def attention_first_in_a_graph() -> None:
    """Kernels are loaded while a CUDA graph is captured; replays take the lengths and blocks that they find."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        first = torch.zeros(1, 2, 16, 256, dtype=torch.float16, device="cuda")
        key = torch.ones(1, 2, 128, dtype=torch.float16, device="cuda")
        operator("write_cache")(key, key, first, torch.zeros(1, dtype=torch.int64, device="cuda"))
    graph.replay()
    assert (first == 1).sum().item() == 2 * 256
    # A workspace without asking for its size, which loads kernels.
    partial = torch.full((1 << 23,), math.nan, device="cuda")
    arrivals = torch.zeros(1 << 12, dtype=torch.int32, device="cuda")
    requests = ((1, 500), (1, 300), (1, 1), (1, 170), (24, 2000))
    batch = Batch(requests, 4, Shape(heads=16, kv_heads=2), partial=partial, arrivals=arrivals)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = batch()
    lengths, table = batch.arguments["lengths"], batch.arguments["block_table"]
    for changed in ((500, 300, 1, 170, 2000), (1, 299, 0, 33, 24), (128, 129, 1, 64, 1999), (500, 300, 1, 170, 700)):
        lengths.copy_(batch.numbers_of(changed))
        batch.out.fill_(GUARD)
        graph.replay()
        close(out, batch.expected(), changed)
        replayed = out.clone()
        batch.out.fill_(GUARD)
        same(replayed, batch())
        assert not arrivals.any()
    # Two requests change places: their blocks, keys and values.
    table[:2] = table[:2].flip(0).clone()
    lengths[:2] = lengths[:2].flip(0).clone()
    for each in (batch.keys, batch.values):
        each[:2] = each[1::-1]
    graph.replay()
    close(out, batch.expected(), "exchanged")


def attention_results() -> None:
    """Each kernel with what else a layer may ask for."""
    for head_size, fragments in itertools.product(HEAD_SIZES, all_fragments(torch.zeros(1, device="cuda"))):
        for heads, kv_heads, block_size in ((2, 2, 16), (8, 2, 48), (12, 1, 256)):
            batch = Batch(shape=Shape(heads, kv_heads, head_size, block_size), fragments=fragments)
            sinks = torch.randn(heads, generator=batch.random).cuda()
            ranges = batch.numbers_of([[[0, 0], [0, 0]]] * 3 + [[[5, 75], [0, 0]]] + [[[3, 20], [30, 38]]] * 2)
            for options in (
                {},
                {"window": 50},
                {"soft_cap": 2.0},
                {"sinks": sinks},
                {"slopes": sinks.abs() / 8},
                {"ranges": ranges, "window": 16},
                {"ranges": ranges, "window": 16, "clamp_ranges": True},
            ):
                batch.check(**options)


def attention_beside_each_other() -> None:
    """All requests as decodes, and none: the kernel for few rows and that for many agree with torch alike."""
    for shape in (Shape(), Shape(head_size=256), Shape(16, 1, 512)):
        for decodes in (0, len(REQUESTS)):
            batch = Batch(decodes=decodes, shape=shape)
            floats, counters = workspace_of(batch, batch.arguments["fragments"], batch.tokens)
            more = {"partial": torch.empty(floats, device="cuda")}
            batch.check(**more, arrivals=torch.zeros(counters, dtype=torch.int32, device="cuda"))


def attention_strides() -> None:
    """Parts of larger tensors, as a layer has them, give the same bits as tensors of their own."""
    for head_size in HEAD_SIZES:
        plain = Batch(shape=Shape(head_size=head_size))
        wide = Batch(shape=Shape(head_size=head_size, wide=True))
        wide.query.copy_(plain.query)
        for request in range(len(REQUESTS)):
            wide.keys[request].copy_(plain.keys[request])
            wide.values[request].copy_(plain.values[request])
            wide.write(request)
        assert not wide.query.is_contiguous() and not wide.cache.is_contiguous()
        wide.check()
        same(wide(), plain())


def attention_of_nothing(device: str = "cuda") -> None:
    """No tokens, no requests, requests of no length: nothing is written, whatever else is there."""
    batch = Batch(device=device)
    lengths = torch.zeros_like(batch.arguments["lengths"])
    batch(lengths=lengths)
    batch(tokens=0, decode_tokens=0)
    none = {"lengths": lengths[:0], "block_table": batch.table[:0], "query_start": lengths[:1]}
    batch(**none, decodes=0, decode_tokens=0, tokens=0)
    batch(decodes=0, decode_tokens=0, lengths=lengths)
    assert (batch.out == GUARD).all()
    empty = batch.query[:0, :2]
    operator("write_cache")(empty, empty, batch.cache, batch.slots(0)[:0])


def attention_the_same_each_time() -> None:
    for shape in (Shape(), Shape(head_size=256), Shape(16, 1, 512)):
        batch = Batch(((1, 4000), (1, 9), (2, 700), (90, 1200)), 3, shape)
        expected = batch().clone()
        for _ in range(50):
            same(batch(), expected)
        assert not batch.arguments["arrivals"].any()


def attention_in_many_threads() -> None:
    """Threads with streams and workspaces of their own, all at once."""

    def work(seed: int) -> None:
        with torch.cuda.stream(torch.cuda.Stream()):
            batch = Batch(((1, 100 * seed + 7), (1, 900), (30, 60 + seed)), 2, Shape(head_size=HEAD_SIZES[seed % 6]))
            for _ in range(20):
                batch.check()

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(work, range(16)))


def cache_layout() -> None:
    """Every number is where the layout says; tokens with negative slots are left out, and all else stays."""
    for head_size, wide in itertools.product(HEAD_SIZES, (False, True)):
        batch = Batch(((1, 1),), 1, Shape(6, 3, head_size, 48, wide))
        batch.cache.fill_(GUARD)
        tokens = 70
        key, value = batch.numbers(tokens + 2, 3), batch.numbers(tokens + 2, 3)
        slots = torch.randperm(batch.cache.shape[0] * 48, generator=batch.random)[:tokens].cuda()
        slots[::7] = -1
        operator("write_cache")(key, value, batch.cache, slots)
        expected = torch.full_like(batch.cache, GUARD, memory_format=torch.contiguous_format).flatten(2)
        dims = torch.arange(head_size, device="cuda")
        for token, slot in enumerate(slots.tolist()):
            if slot >= 0:
                block, group, place = slot // 48, slot % 48 // 16, slot % 16
                start = group * 16 * 2 * head_size
                expected[block, :, start + dims // 8 * 128 + place * 8 + dims % 8] = key[token]
                expected[block, :, start + (16 + place) * head_size + dims] = value[token]
        same(batch.cache.flatten(2), expected)
        if wide:
            whole = batch.cache.as_strided(batch.cache.shape[:1] + batch.cache.stride()[:1], (batch.cache.stride(0), 1))
            run = 48 * 2 * head_size
            assert whole[:, run : batch.cache.stride(1)].isnan().all(), "between KV heads"


def attention_refusals(device: str = "cuda") -> None:
    """Each wrong argument is refused, with a text that names it; nothing was started."""
    batch = Batch(device=device)
    batch()
    before = batch.out.clone()
    for text, changes in wrong_arguments(batch):
        refused(text, lambda changes=changes: batch(**changes))
    key, slots = batch.keys[1], batch.slots(1)
    write = operator("write_cache")
    for text, arguments in (
        ("key must hold float16, it holds float32", (key.float(), key, batch.cache, slots)),
        ("value must be [at least 300, 2, 128], it is [299, 2, 128]", (key, key[1:], batch.cache, slots)),
        ("key must be [at least 300, 2, 128], it is [300, 1, 128]", (key[:, 1:], key, batch.cache, slots)),
        ("slots must hold int64, it holds int32", (key, key, batch.cache, slots.int())),
        ("slots must be [tokens], it is [300, 1]", (key, key, batch.cache, slots[:, None])),
        ("cache must be [blocks, kv_heads", (key, key, batch.cache[0], slots)),
    ):
        refused(text, lambda arguments=arguments: write(*arguments))
    workspace = operator("attention_workspace")
    for text, sizes in (
        ("kv_heads must be between 1 and 65535, it is 0", (0, 4, 128, 1, 1, 0)),
        ("group must be between 1", (2, 0, 128, 1, 1, 0)),
        ("none for 72", (2, 4, 72, 1, 1, 0)),
        ("most_requests must be between 1", (2, 4, 128, 0, 1, 0)),
        ("most_decode_tokens must be between 1", (2, 4, 128, 1, 0, 0)),
        ("heads of query in all", (64, 64, 128, 1, 1 << 20, 0)),
        ("fragments must be 0 (quad pairs) or 1 (octets), it is 5", (2, 4, 128, 1, 1, 5)),
    ):
        refused(text, lambda sizes=sizes: workspace(batch.query, *sizes))
    if device == "cuda":
        for name in ("cache", "out", "lengths", "block_table", "partial"):
            changes = {name: batch.arguments[name].cpu()}
            refused(f"{name} must be on the query's GPU", lambda changes=changes: batch(**changes))
    same(batch.out, before)


def wrong_arguments(batch: Batch) -> list[tuple[str, dict[str, Any]]]:
    """Arguments that the operator refuses, and what it says."""
    given = batch.arguments
    query, cache, table, lengths = batch.query, batch.cache, batch.table, given["lengths"]
    apart = torch.empty(query.shape[0], 8 * 128 + 4, dtype=torch.float16, device=query.device)
    heads_apart = torch.empty(query.shape[0], 8, 136, dtype=torch.float16, device=query.device)
    floats = torch.zeros(8, device=query.device)
    partial = given["partial"]
    long_table = torch.empty(1 << 26, dtype=torch.int32, device=query.device).expand(6, -1)
    seven_heads = torch.empty(query.shape[0], 7, 128, dtype=torch.float16, device=query.device)
    moved = torch.empty(query.numel() + 4, dtype=torch.float16, device=query.device)[4:].view(query.shape)
    return [
        ("query must hold float16, it holds float32", {"query": query.float()}),
        ("query must be [tokens, heads, head_size]", {"query": query.flatten(1)}),
        ("query must be [at least 176, 8, 128], it is [170, 8, 128]", {"query": query[:170]}),
        ("query must be [at least 176, 8, 128], it is [179, 8, 64]", {"query": query[:, :, :64]}),
        ("and tokens start a multiple of 8 values apart", {"query": apart[:, :1024].view(-1, 8, 128)}),
        ("the heads of a token of query must be contiguous", {"query": heads_apart[:, :, :128]}),
        ("query must be aligned to 16 bytes", {"query": moved}),
        ("out must be [at least 176, 8, 128], it is [179, 4, 128]", {"out": query[:, :4]}),
        ("the heads of a token of out must be contiguous", {"out": heads_apart[:, :, :128]}),
        ("cache must hold float16, it holds uint8", {"cache": cache.to(torch.uint8)}),
        ("cache must be [blocks, kv_heads, block_size, 2 * head_size]", {"cache": cache.flatten(2)}),
        ("cache must have blocks of a multiple of 16 tokens", {"cache": cache[:, :, :24]}),
        ("a token of cache must be a key and a value", {"cache": cache[..., :255]}),
        (
            "there are kernels for the head sizes 64, 80, 96, 128, 256, 512, none for 120",
            {"cache": cache[..., :240].contiguous()},
        ),
        ("the last two dimensions of cache must be contiguous", {"cache": cache.repeat(1, 1, 2, 1)[:, :, ::2]}),
        (
            "blocks and KV heads of cache must start a multiple of 8 values apart",
            {"cache": cache.flatten().as_strided((2, 2, 16, 256), (2 * 16 * 256 + 4, 16 * 256, 256, 1))},
        ),
        (
            "each of the 2 KV heads must have as many heads of query, which are 7",
            {"query": seven_heads, "out": seven_heads},
        ),
        ("query_start must be [7], it is [6]", {"query_start": given["query_start"][1:]}),
        ("query_start must hold int32, it holds int64", {"query_start": given["query_start"].long()}),
        ("lengths must hold int32, it holds int64", {"lengths": lengths.long()}),
        ("lengths must be contiguous, its strides are [2]", {"lengths": lengths.repeat_interleave(2)[::2]}),
        ("lengths must be [requests], it is [6, 1]", {"lengths": lengths[:, None]}),
        ("block_table must be [6, most blocks of a request], it is [5", {"block_table": table[1:]}),
        ("block_table must hold int32, it holds int64", {"block_table": table.long()}),
        ("rows of block_table must be contiguous", {"block_table": table.t().contiguous().t()}),
        ("a request must have at most", {"block_table": long_table}),
        ("partial must be [at least", {"partial": partial[: 2 * 8 * 130]}),
        ("partial must hold float32, it holds float16", {"partial": partial.half()}),
        ("partial must be aligned to 16 bytes", {"partial": torch.empty(len(partial) + 1, device=query.device)[1:]}),
        ("arrivals must be [at least", {"arrivals": given["arrivals"][:5]}),
        ("arrivals must hold int32, it holds float32", {"arrivals": given["arrivals"].float()}),
        ("sinks must be [8], it is [7]", {"sinks": floats[1:]}),
        ("slopes must hold float32, it holds float16", {"slopes": floats.half()}),
        ("ranges must be [requests, ranges, 2], it is [6, 2]", {"ranges": lengths.repeat(2, 1).t().contiguous()}),
        ("ranges must be [6, 1, 2], it is [5, 1, 2]", {"ranges": lengths.new_zeros(5, 1, 2)}),
        ("decodes must be between 0 and 6 requests, they are 7", {"decodes": 7}),
        ("decode_tokens must be those of 0 of 6 requests with 176 tokens, they are 6", {"decodes": 0}),
        ("decode_tokens must be those of 6 of 6 requests with 176 tokens, they are 6", {"decodes": 6}),
        ("decode_tokens must be those of 4 of 6 requests", {"decode_tokens": 177}),
        ("most_decode_queries must be between 1", {"most_decode_queries": 0}),
        ("tokens must be between 0", {"tokens": -1}),
        ("scale must be finite", {"scale": math.nan}),
        ("soft_cap 0 or more", {"soft_cap": -1.0}),
        ("window must be between 0", {"window": -1}),
        ("fragments must be 0 (quad pairs) or 1 (octets), it is 2", {"fragments": 2}),
    ]


def refused(text: str, call: Callable[[], object]) -> None:
    try:
        call()
    except RuntimeError as error:
        assert text in str(error), (text, str(error))
    else:
        raise AssertionError(f"not refused: {text}")


def attention_on_the_host() -> None:
    """How long a call takes before the GPU has to do with it; printed."""
    batch = Batch(((1, 16), (1, 16)), 2)
    call, arguments = operator("paged_attention").default, list(batch.arguments.values())
    best = math.inf
    for _ in range(10):
        torch.cuda.synchronize()
        began = time.perf_counter()
        for _ in range(100):
            call(*arguments)
        best = min(best, (time.perf_counter() - began) / 100)
    print(f"{best * 1e6:.1f} us of host time a call of paged_attention")


CHECKS: dict[str, Callable[[], None]] = {
    check.__name__: check
    for check in (
        attention_first_in_a_thread,
        attention_first_in_a_graph,
        attention_results,
        attention_beside_each_other,
        attention_strides,
        attention_of_nothing,
        attention_the_same_each_time,
        attention_in_many_threads,
        cache_layout,
        attention_refusals,
        attention_on_the_host,
    )
}
