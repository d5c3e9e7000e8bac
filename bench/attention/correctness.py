"""Attention against float64: random and adversarial inputs, edges of lengths and windows, and what it may not touch."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from vllm_volta import attention_ops

from bench.attention import operators
from bench.attention.cases import Case, Options, random_case
from bench.attention.comparison import compare
from bench.attention.findings import FRAGMENTS, QUAD_PAIRS
from bench.attention.reference import Exact, exact
from bench.attention.shapes import HYBRID_BLOCK_SIZE, Heads
from bench.gpu.claims import Claim

ERROR, WORST_ROW = "error", "worst row"
HEAD_SIZES = (64, 80, 96, 128, 256, 512)
GROUPS = (1, 2, 3, 4, 5, 6, 7, 8, 12, 16)
FEW_GROUPS = (1, 6, 8, 16)
EDGES = (1, 2, 8, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129, 255, 257)
SPLIT, TILED = "split", "tiled"


@dataclass(frozen=True)
class Bench:
    """Where the claims are tried: the operators' device, and whether only some of the cases.

    generator: of random numbers, on the device where cases are made and results looked at, which may be another one.
    small: as few and as short cases as there can be, for a device that is slow.
    """

    device: torch.device
    generator: torch.Generator
    quick: bool
    small: bool = False

    @property
    def home(self) -> torch.device:
        """Where cases are made and results looked at."""
        return self.generator.device

    @property
    def head_sizes(self) -> Sequence[int]:
        return (64, 80, 256, 512) if self.small else HEAD_SIZES

    @property
    def fragments(self) -> Sequence[int]:
        return tuple(FRAGMENTS) if self.device.type == "cuda" else (QUAD_PAIRS,)

    def case(self, heads: Heads, lengths: Sequence[int], queries: Sequence[int], **more: object) -> Case:
        return random_case(heads, lengths, queries, self.generator, **more)  # type: ignore[arg-type]

    def ways(self, paths: Sequence[str] = (SPLIT, TILED)) -> Iterator[tuple[int, str, str]]:
        """Each order of fragments with each kernel: both, and their name."""
        for fragments, path in itertools.product(self.fragments, paths):
            yield fragments, path, f"{path}, {FRAGMENTS[fragments]}"

    def floats(self, low: float, high: float, *shape: int) -> torch.Tensor:
        return torch.rand(shape, device=self.home, generator=self.generator) * (high - low) + low


def heads_of(head_size: int, group: int, kv_heads: int = 2, block_size: int = 16) -> Heads:
    return Heads("claim", group * kv_heads, kv_heads, head_size, block_size=block_size)


def check(bench: Bench, claim: Claim, case: Case, what: str, paths: Sequence[str] = (SPLIT, TILED)) -> None:
    """One case by each kernel and order of fragments: results, what is left alone, and counts of arrivals."""
    expected = exact(case)
    for fragments, path, way in bench.ways(paths):
        found, space = operators.answer(case, fragments, case.requests if path == SPLIT else 0, bench.device)
        see(claim, found, space, expected, f"{what}, {way}")


def see(claim: Claim, found: torch.Tensor, space: operators.Workspace, expected: Exact, what: str) -> None:
    comparison = compare(found, expected)
    claim.note(ERROR, comparison.error)
    claim.note(WORST_ROW, comparison.worst_row)
    claim.see(comparison.holds, f"{what}: {comparison}")
    if not bool(torch.isnan(found[~expected.answered]).all()):
        claim.see(False, f"{what}: rows of tokens without keys were written")
    if space.arrivals.any():
        claim.see(False, f"{what}: counts of arrivals are left at {space.arrivals.max().item()}")


def head_sizes_and_groups(bench: Bench, claim: Claim) -> None:
    """Every head size with every number of query heads of a KV head, requests of different lengths."""
    groups = (1, 6) if bench.small else FEW_GROUPS if bench.quick else GROUPS
    for head_size, group in itertools.product(bench.head_sizes, groups):
        heads = heads_of(head_size, group)
        check(bench, claim, bench.case(heads, (33, 1, 150, 64), (1, 1, 1, 1)), f"D{head_size} group {group}, decoding")
        check(bench, claim, bench.case(heads, (70, 45), (37, 45)), f"D{head_size} group {group}, prompts")


def lengths(bench: Bench, claim: Claim) -> None:
    """Around multiples of groups, tiles and shares of keys; one token, all tokens, some of them new."""
    for head_size in (128,) if bench.small else (80, 128, 256):
        heads = heads_of(head_size, 4)
        edges = EDGES[:10] if bench.small else EDGES
        check(bench, claim, bench.case(heads, edges, [1] * len(edges)), f"D{head_size}, one new token")
        check(bench, claim, bench.case(heads, edges, edges), f"D{head_size}, all new")
        some = [max(1, length // 3) for length in edges]
        check(bench, claim, bench.case(heads, edges, some), f"D{head_size}, a third new")
    heads = heads_of(128, 8, kv_heads=1)
    ragged = (5, 0, 700, 16, 0, 33) if bench.small else (5, 0, 4000, 16, 0, 900, 1, 33)
    queries = [0 if length == 0 else 1 for length in ragged]
    check(bench, claim, bench.case(heads, ragged, queries), "no tokens in two requests")
    padded = [1] * len(ragged)
    check(bench, claim, bench.case(heads, ragged, padded), "tokens without keys")


def very_long(bench: Bench, claim: Claim) -> None:
    """131072 keys, few tokens; and tokens of a prompt far behind."""
    longest = 2048 if bench.small else 32768 if bench.quick else 131072
    shapes = [(128, 8, 1), (256, 6, 1)] if bench.quick else [(64, 4, 2), (128, 8, 2), (256, 6, 2), (512, 8, 1)]
    for head_size, group, kv_heads in shapes:
        heads = heads_of(head_size, group, kv_heads)
        check(bench, claim, bench.case(heads, (longest, 77), (1, 1)), f"D{head_size}, {longest} keys", (SPLIT,))
        check(bench, claim, bench.case(heads, (longest + 5,), (40,)), f"D{head_size}, 40 tokens behind {longest}")


def many_requests(bench: Bench, claim: Claim) -> None:
    """More requests than lanes of a warp, of all lengths, so that thread blocks have parts of many."""
    count = 40 if bench.small else 300
    lengths_ = (
        torch.rand(count, generator=torch.Generator().manual_seed(3)) ** 3 * 3000 / (8 if bench.small else 1)
    ).int()
    lengths_ = lengths_.clamp_min(1).tolist()
    check(bench, claim, bench.case(heads_of(128, 4, 2), lengths_, [1] * count), f"{count} requests")
    prompts = [min(length, 1 + length % 90) for length in lengths_[: count // 4]]
    check(bench, claim, bench.case(heads_of(64, 2, 2), lengths_[: count // 4], prompts), f"{count // 4} prompts")


def needles(bench: Bench, claim: Claim) -> None:
    """Each query finds one key and returns its value, exactly: no key is lost, doubled or at another's place."""
    longest = 400 if bench.small else 9000
    for head_size in (64, 128) if bench.small else (64, 80, 128, 256, 512):
        heads = heads_of(head_size, 4, 2, block_size=48)
        decoding = bench.case(heads, (longest, longest // 2, 129), (1, 1, 1))
        prompts = bench.case(heads, (longest // 8, 300), (longest // 8, 300))
        for case, what in ((decoding, "decoding"), (prompts, "prompts")):
            wanted = _place_needles(bench, case)
            for fragments, path, way in bench.ways():
                found, _ = operators.answer(case, fragments, case.requests if path == SPLIT else 0, bench.device)
                wrong = int((found != wanted).any(2).sum())
                claim.see(wrong == 0, f"D{head_size}, {what}, {way}: {wrong} rows are not their key's value")


def _place_needles(bench: Bench, case: Case) -> torch.Tensor:
    """Keys of +-1, queries that are 64 times one of them; returns the values that must come."""
    case.keys.copy_(torch.where(case.keys > 0, 1.0, -1.0))
    group = case.heads.group
    wanted = torch.empty_like(case.query)
    starts, limits = case.query_start.tolist(), case.lengths.tolist()
    for request in range(case.requests):
        slots, own = case.slots(request), starts[request + 1] - starts[request]
        for head in range(case.heads.heads):
            # Of each token a random key that it sees; of the last token of heads 0 and 1 the first and the last one.
            seen = torch.arange(limits[request] - own + 1, limits[request] + 1, device=bench.home)
            chosen = (bench.floats(0, 1, own) * seen).long()
            if head < 2:
                chosen[-1] = 0 if head == 0 else limits[request] - 1
            rows = slice(starts[request], starts[request + 1]), head
            case.query[rows] = 64 * case.keys[slots[chosen], head // group]
            wanted[rows] = case.values[slots[chosen], head // group]
    return wanted


def large_logits(bench: Bench, claim: Claim) -> None:
    """Logits in the hundreds, equal ones, tiny ones, and the largest numbers of fp16."""
    for head_size in (128,) if bench.small else (64, 128, 256, 512):
        heads = heads_of(head_size, 6, 1)
        for factor in (0.0, 1e-4, 5.0, 40.0):
            for queries in (1, 45):
                case = bench.case(heads, (300, 90), (queries, queries))
                case.query.mul_(factor)
                check(bench, claim, case, f"D{head_size}, queries times {factor}")
        case = bench.case(heads, (300,), (20,)).with_options(scale=2.0**-12)
        case.query.copy_(torch.where(case.query > 0, 65504.0, -65504.0))
        case.values.mul_(10000)
        check(bench, claim, case, f"D{head_size}, largest queries, values in the ten thousands")
        rising = bench.case(heads, (1000,), (1,))
        rising.keys[rising.slots(0)] = (
            torch.linspace(-4, 4, 1000, device=bench.home)[:, None, None].half() * rising.query[0, 0].sign()
        )
        check(bench, claim, rising, f"D{head_size}, each key larger than all before")


def positive_values(bench: Bench, claim: Claim) -> None:
    """Nothing cancels: what cutting off in sums adds up to shows in full."""
    for head_size in (128,) if bench.small else (64, 128, 256, 512):
        length = 500 if bench.small else 16384
        case = bench.case(heads_of(head_size, 8, 1), (length,), (16,))
        case.values.abs_()
        case.query.mul_(0.1)
        check(bench, claim, case, f"D{head_size}, {length} keys")


def windows(bench: Bench, claim: Claim) -> None:
    """A token sees its window to the key; what lies before the windows of all its tokens may be NaN."""
    sizes = (1, 16, 33) if bench.small else (1, 2, 16, 17, 31, 32, 33, 100, 127, 128, 129, 1024)
    for head_size, window in itertools.product((128,) if bench.quick else (64, 128, 256), sizes):
        heads = heads_of(head_size, 4, 1)
        for lengths_, queries in (((200, 33, 1, 129), (1, 1, 1, 1)), ((200, 77, 130), (90, 77, 3)), ((2300,), (40,))):
            if bench.small and lengths_[0] > 1000:
                continue
            case = bench.case(heads, lengths_, queries).with_options(window=window)
            for request, (length, count) in enumerate(zip(lengths_, queries, strict=True)):
                hidden = case.slots(request)[: max(0, length - count + 1 - window)]
                case.keys[hidden], case.values[hidden] = float("nan"), float("nan")
            check(bench, claim, case, f"D{head_size}, window {window}, {lengths_}")


def block_tables(bench: Bench, claim: Claim) -> None:
    """Blocks of several sizes in any order, the first ones shared by all requests."""
    for head_size, size in itertools.product(
        (128,) if bench.quick else (64, 96, 128, 256), (16, 32, 48, 128, HYBRID_BLOCK_SIZE)
    ):
        heads = heads_of(head_size, 6, 2, size)
        for shared in (0, 2):
            lengths_ = (size * 2 + 5, size * 3, size * 2 + size // 2)
            if bench.small and size > 48:
                continue
            case = bench.case(heads, lengths_, (1, 1, 1), shared_blocks=shared)
            check(bench, claim, case, f"D{head_size}, blocks of {size}, {shared} shared, decoding")
            case = bench.case(heads, lengths_, (size // 2, 30, size), shared_blocks=shared)
            check(bench, claim, case, f"D{head_size}, blocks of {size}, {shared} shared, prompts", (TILED,))


def options(bench: Bench, claim: Claim) -> None:
    """Sinks, ALiBi, soft cap, ranges of tokens that see each other, windows: each alone, and together."""
    for head_size in (128,) if bench.small else (64, 128, 256):
        heads = heads_of(head_size, 4, 2)
        count = heads.heads
        sinks, slopes = bench.floats(-3, 6, count), bench.floats(0.001, 0.5, count)
        ranges = torch.tensor([[[20, 60], [61, 99]], [[0, 5], [9, 9]]], dtype=torch.int32, device=bench.home)
        every = (
            Options(sinks=sinks),
            Options(sinks=sinks * 30),
            Options(slopes=slopes),
            Options(soft_cap=50.0),
            Options(soft_cap=1.5, scale=1.0),
            Options(ranges=ranges),
            Options(ranges=ranges, window=30),
            Options(ranges=ranges, window=30, clamp_ranges=True),
            Options(sinks=sinks, slopes=slopes, soft_cap=20.0, window=70),
            Options(sinks=sinks, slopes=slopes, soft_cap=20.0, window=40, ranges=ranges, clamp_ranges=True),
        )
        for given in every:
            for queries in ((1, 1), (90, 33), (5, 2)):
                case = bench.case(heads, (110, 40), queries, options=given)
                check(bench, claim, case, f"D{head_size}, {_described(given)}, {queries} new")


def _described(given: Options) -> str:
    parts = [name for name in ("sinks", "slopes", "ranges") if getattr(given, name) is not None]
    parts += [f"{name} {value}" for name in ("soft_cap", "window", "clamp_ranges") if (value := getattr(given, name))]
    return " ".join(parts)


def mixed_batches(bench: Bench, claim: Claim) -> None:
    """Decoding requests and prompts in one call; several new tokens of a decoding request, as speculation has them."""
    for head_size, group in itertools.product((128,) if bench.small else (64, 128, 256, 512), (4, 8)):
        heads = heads_of(head_size, group)
        for queries, decodes in (
            ((1, 1, 1, 60, 17), 3),
            ((1, 3, 2, 60, 17), 3),
            ((4, 4, 4, 4, 4), 5),
            ((2, 37, 9, 3, 1), 1),
        ):
            case = bench.case(heads, (300, 37, 64, 100, 17), queries)
            expected = exact(case)
            for fragments in bench.fragments:
                found, space = operators.answer(case, fragments, decodes, bench.device)
                what = f"D{head_size} group {group}, {queries} new, {decodes} decoding, {FRAGMENTS[fragments]}"
                see(claim, found, space, expected, what)


def strides(bench: Bench, claim: Claim) -> None:
    """Queries beside keys and values of one tensor, results with room between, a cache with other layers between."""
    for head_size in (80, 128):
        heads = heads_of(head_size, 4, 2)
        case = bench.case(heads, (150, 70, 20), (1, 70, 3))
        expected, slots, parts = exact(case), case.used_slots().to(bench.device), operators.decode_part(case, 1)
        there = case.to(bench.device)
        width = (heads.heads + 2 * heads.kv_heads) * head_size
        wide = torch.full((case.tokens + 2, width + 24), float("nan"), dtype=torch.float16, device=bench.device)
        query = wide[: case.tokens, : heads.heads * head_size].unflatten(1, (heads.heads, head_size))
        query.copy_(there.query)
        there = replace(there, query=query)
        shape = case.blocks, 3, heads.kv_heads, 2, heads.block_size * 2 * head_size
        storage = torch.full(shape, float("nan"), dtype=torch.float16, device=bench.device)
        cache = storage[:, 1, :, 1].unflatten(2, (heads.block_size, 2 * head_size))
        operators.filled_cache(there, slots, cache)
        beside = storage[:, 0], storage[:, 2], storage[:, 1, :, 0]
        untouched = all(bool(torch.isnan(each).all()) for each in beside)
        claim.see(untouched, f"D{head_size}: the cache beside was written to")
        for fragments in bench.fragments:
            wider = case.tokens + 3, heads.heads + 1, head_size
            room = torch.full(wider, 7.0, dtype=torch.float16, device=bench.device)
            out = room[1 : case.tokens + 1, : heads.heads]
            space = operators.workspace(there, parts[0], fragments)
            operators.attend(there, cache, space, fragments, 1, out, parts)
            see(claim, out.to(bench.home), space, expected, f"D{head_size}, {FRAGMENTS[fragments]}")
            out.fill_(7.0)
            claim.see(bool((room == 7.0).all()), f"D{head_size}, {FRAGMENTS[fragments]}: written beside the results")


def cache_layout(bench: Bench, claim: Claim) -> None:
    """Each number of a written key and value is where csrc/attention.h says, and nothing else is touched."""
    for head_size, size in itertools.product(bench.head_sizes, (16, 48)):
        case = bench.case(heads_of(head_size, 1, 3, size), (size * 4,), (1,))
        count = 2 * size + 5
        slots = torch.randperm(case.keys.shape[0], generator=bench.generator, device=bench.home)[:count]
        left_out = torch.arange(count, device=bench.home) % 7 == 3
        there = case.to(bench.device)
        cache = operators.empty_cache(there)
        given = torch.where(left_out, -1, slots).to(bench.device)
        # More keys than slots: vLLM pads them.
        attention_ops.write_cache(there.keys[: count + 9], there.values[: count + 9], cache, given)
        expected = operators.empty_cache(case)
        flat = expected.view(case.blocks, 3, size * 2 * head_size)
        dims = torch.arange(head_size, device=bench.home)
        for token in torch.nonzero(~left_out).flatten().tolist():
            block, place = divmod(int(slots[token]), size)
            group, row = place // 16 * 32 * head_size, place % 16
            flat[block][:, group + dims // 8 * 128 + row * 8 + dims % 8] = case.keys[token]
            flat[block][:, group + 16 * head_size + row * head_size + dims] = case.values[token]
        same = torch.equal(cache.view(torch.int16).to(bench.home), expected.view(torch.int16))
        claim.see(same, f"D{head_size}, blocks of {size}")


def repeated_results(bench: Bench, claim: Claim) -> None:
    """Bit for bit the same each time, also while another stream keeps multiprocessors busy."""
    side = torch.cuda.Stream()
    load = torch.randn(2048, 2048, device=bench.device)
    for head_size, group in ((64, 4), (128, 8), (256, 6), (512, 8)):
        heads = heads_of(head_size, group)
        decoding = bench.case(heads, (5000, 17, 1300, 4096), (1, 1, 1, 1))
        prompts = bench.case(heads, (900, 300), (700, 300))
        for case, path in ((decoding, SPLIT), (prompts, TILED)):
            for fragments in bench.fragments:
                cache, decodes = operators.filled_cache(case), case.requests if path == SPLIT else 0
                space = operators.workspace(case, case.tokens, fragments)
                first = operators.attend(case, cache, space, fragments, decodes)
                for busy in (False, True, True, True):
                    if busy:
                        with torch.cuda.stream(side):
                            for _ in range(4):
                                load @ load
                    again = operators.attend(case, cache, space, fragments, decodes)
                    claim.see(torch.equal(again, first), f"D{head_size}, {path}, {FRAGMENTS[fragments]}, busy={busy}")
                torch.cuda.synchronize()


def graphs(bench: Bench, claim: Claim) -> None:
    """Captured once, replayed with other lengths, blocks, queries and fewer requests: the results of plain calls."""
    for head_size, group, queries in ((64, 4, 1), (128, 8, 1), (128, 4, 3), (256, 6, 1), (512, 8, 1)):
        heads = heads_of(head_size, group)
        for fragments in bench.fragments:
            case = bench.case(heads, (3000,) * 6, (queries,) * 6)
            cache = operators.filled_cache(case)
            space = operators.workspace(case, case.tokens, fragments)
            parts = operators.decode_part(case, case.requests)
            out = torch.zeros_like(case.query)
            operators.attend(case, cache, space, fragments, case.requests, out, parts)
            case.lengths.fill_(queries)  # as vLLM captures
            torch.cuda.synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                operators.attend(case, cache, space, fragments, case.requests, out, parts)
            for lengths_ in ((3000, 17, 200, 3, 1500, 64), (5, 2999, 31, 33, 0, 0), (3000,) * 6):
                case.lengths.copy_(torch.tensor(lengths_))
                case.query.normal_(generator=bench.generator)
                out.fill_(float("nan"))
                graph.replay()
                plain = operators.attend(case, cache, space, fragments, case.requests)
                what = f"D{head_size}, {queries} new, {FRAGMENTS[fragments]}, {lengths_}"
                same = torch.equal(out.view(torch.int16), plain.view(torch.int16))
                claim.see(same, f"{what}: differs from a plain call")
                see(claim, out, space, exact(case), what)


def two_streams(bench: Bench, claim: Claim) -> None:
    """Two layers side by side, each with a workspace of its own."""
    streams = torch.cuda.Stream(), torch.cuda.Stream()
    for fragments in bench.fragments:
        cases = [bench.case(heads_of(128, 8), (4000, 900), (1, 1)), bench.case(heads_of(256, 6), (2500,), (1,))]
        caches = [operators.filled_cache(case) for case in cases]
        spaces = [operators.workspace(case, case.tokens, fragments) for case in cases]
        parts = [operators.decode_part(case, case.requests) for case in cases]

        calls = [
            functools.partial(operators.attend, case, cache, space, fragments, case.requests, None, part)
            for case, cache, space, part in zip(cases, caches, spaces, parts, strict=True)
        ]
        expected = [call() for call in calls]
        torch.cuda.synchronize()
        found: list[list[torch.Tensor]] = [[], []]
        for _ in range(20):
            for which, stream in enumerate(streams):
                with torch.cuda.stream(stream):
                    found[which].append(calls[which]())
        torch.cuda.synchronize()
        for which in range(2):
            same = all(torch.equal(each, expected[which]) for each in found[which])
            claim.see(same and not spaces[which].arrivals.any(), f"{FRAGMENTS[fragments]}, stream {which}")


def refusals(bench: Bench, claim: Claim) -> None:
    """What the kernels cannot do is refused, with nothing started."""
    case = bench.case(heads_of(64, 2), (40, 20), (1, 20))
    cache, space = operators.filled_cache(case), operators.workspace(case, case.tokens, QUAD_PAIRS)
    out = torch.full_like(case.query, float("nan"))
    operator = torch.ops.vllm_volta.paged_attention
    good: list[object] = [
        case.query, cache, out, case.query_start, case.lengths, case.block_table, space.partial, space.arrivals,
        None, None, None, 1, 1, 1, case.tokens, 0.125, 0.0, 0, False, QUAD_PAIRS,
    ]  # fmt: skip
    for index, value, what in (
        (0, case.query.float(), "fp32 queries"),
        (0, case.query[:, :3].contiguous(), "heads that are no multiple of KV heads"),
        (1, cache.transpose(1, 2), "a cache with tokens before heads"),
        (2, out[:-1], "a short result"),
        (3, case.query_start.long(), "64-bit starts"),
        (4, case.lengths[:1], "too few lengths"),
        (6, space.partial[:8], "a small workspace"),
        (7, space.arrivals[:0], "no counts of arrivals"),
        (8, torch.zeros(3, device=bench.device), "too few sinks"),
        (11, 3, "more decoding requests than requests"),
        (19, 7, "unknown fragments"),
    ):
        try:
            operator(*good[:index], value, *good[index + 1 :])
        except RuntimeError:
            claim.see(True, what)
        else:
            claim.see(False, f"{what} were accepted")
    claim.see(bool(torch.isnan(out).all()), "something was written")


def compilers(bench: Bench, claim: Claim) -> None:
    """Schemas and shapes that torch.compile relies on, by torch's own check."""
    case = bench.case(heads_of(64, 2), (40, 20), (1, 20))
    cache, space = operators.filled_cache(case), operators.workspace(case, case.tokens, QUAD_PAIRS)
    attention = (
        case.query, cache, torch.zeros_like(case.query), case.query_start, case.lengths, case.block_table,
        space.partial.zero_(), space.arrivals, None, None, None, 1, 1, 1, case.tokens, 0.125, 0.0, 0, False, QUAD_PAIRS,
    )  # fmt: skip
    slots = torch.arange(5, device=bench.device)
    write = case.keys[:5], case.values[:5], torch.zeros_like(cache), slots
    for name, arguments in (("paged_attention", attention), ("write_cache", write)):
        target = getattr(torch.ops.vllm_volta, name).default
        try:
            torch.library.opcheck(target, arguments, test_utils=("test_schema", "test_faketensor"))
        except Exception as error:  # noqa: BLE001 - whatever it raises is the finding
            claim.see(False, f"{name}: {error}")
        else:
            claim.see(True, name)


Claims = dict[str, Callable[[Bench, Claim], None]]
PORTABLE: Claims = {
    "head sizes and groups": head_sizes_and_groups,
    "lengths": lengths,
    "very long": very_long,
    "many requests": many_requests,
    "needles": needles,
    "large logits": large_logits,
    "sums of positive values": positive_values,
    "windows": windows,
    "block tables": block_tables,
    "sinks, ALiBi, soft cap, ranges": options,
    "mixed batches": mixed_batches,
    "strides": strides,
    "the cache's layout": cache_layout,
}
"""Claims that a plain device can be asked for."""
ON_A_GPU: Claims = {
    "refusals": refusals,
    "the same bits each time": repeated_results,
    "CUDA graphs": graphs,
    "two streams": two_streams,
    "schemas and shapes": compilers,
}
GUARDED = (
    "head sizes and groups",
    "lengths",
    "windows",
    "block tables",
    "mixed batches",
    "strides",
    "the cache's layout",
)
"""Claims that are tried once more between guard zones."""
