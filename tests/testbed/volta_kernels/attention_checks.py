"""The attention backend of vllm_volta on the CPU: its operators next to float64, and its classes in vLLM's hands.

`python attention_checks.py '["name", ...]'` runs the named checks and writes {name: null or a traceback} as JSON. What
is expected comes from tests/unit/volta/attention_reference.py, to which the kernels are held too.
"""

from __future__ import annotations

import itertools
import json
import re
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

ROOT = Path(__file__).parents[3]
CSRC = ROOT / "patches" / "vllm-0.27.1" / "add" / "vllm_volta" / "csrc"

if TYPE_CHECKING:
    import torch

    from tests.unit.volta.attention_reference import Attention, Request

CHECKS: dict[str, Callable[[], None]] = {}
BLOCKS = 64
PLAIN, PADDED, PACKED = "plain", "padded", "packed"


def check(function: Callable[[], None]) -> Callable[[], None]:
    CHECKS[function.__name__.replace("_", " ")] = function
    return function


# ---------------------------------------------------------------- the operators


@check
def the_cache_lies_in_memory_as_the_header_says() -> None:
    """Each number, by a slow reading of csrc/attention.h; what is not written stays NaN."""
    import torch
    from vllm_volta import attention_ops

    header = (CSRC / "attention.h").read_text(encoding="utf-8")
    sizes = ", ".join(map(str, attention_ops.HEAD_SIZES))
    assert f"HEAD_SIZES[] = {{{sizes}}};" in header
    kernels = (CSRC / "attention_split.cuh").read_text(encoding="utf-8")
    for head_size in attention_ops.HEAD_SIZES:
        rows = re.findall(rf"VOLTA_SPLIT_KERNEL\(NAME, TILES, {head_size}, (\d+),", kernels)
        assert attention_ops.split_rows(head_size) == max(map(int, rows))
    for head_size, block_size, gap in ((64, 16, 0), (80, 48, 24), (256, 32, 8)):
        cache = new_cache(7, 2, block_size, head_size, gap)
        key, value = (torch.randn(5, 2, head_size).half() for _ in range(2))
        places = [(3, 0), (3, block_size - 1), (6, 7), (0, 15)]
        slots = torch.tensor([-1, *(block * block_size + place for block, place in places)])
        attention_ops.write_cache(
            torch.cat((key, key)), torch.cat((value, value)), cache, slots
        )  # tokens beyond the slots are padding
        expected = torch.full_like(cache, torch.nan)
        for token, (block, place) in enumerate(places, 1):
            for head, dimension in itertools.product(range(2), range(head_size)):
                group = place // 16 * 32 * head_size
                at = group + dimension // 8 * 128 + place % 16 * 8 + dimension % 8
                expected[block, head, at // (2 * head_size), at % (2 * head_size)] = key[token, head, dimension]
                at = group + 16 * head_size + place % 16 * head_size + dimension
                expected[block, head, at // (2 * head_size), at % (2 * head_size)] = value[token, head, dimension]
        assert torch.equal(cache.nan_to_num(nan=9), expected.nan_to_num(nan=9))
    refused(lambda: attention_ops.write_cache(key, value, new_cache(1, 2, 24, 256, 0), slots), "a multiple of 16")
    refused(lambda: attention_ops.write_cache(key, value, cache.transpose(2, 3), slots), "head size")


@check
def attention_is_that_of_float64_whatever_lies_outside_of_requests() -> None:
    """All head sizes with all that changes logits or hides keys; blocks in disorder, NaN where no key is."""
    import numpy as np

    from tests.unit.volta.attention_problems import rough
    from tests.unit.volta.attention_reference import Request

    random = np.random.default_rng(1)
    lengths = [Request(1, 150), Request(3, 40), Request(0, 9), Request(2, 0), Request(33, 33), Request(17, 100)]
    nobodys = slice(4, 6)  # tokens of the request of no length
    ranged = [Request(60, 60, ((5, 30), (40, 59))), Request(8, 90, ((70, 85),)), Request(2, 50)]
    for head_size, group in ((64, 1), (80, 4), (96, 3), (128, 8), (256, 6), (512, 2)):
        for requests, options in (
            (lengths, {}),
            (lengths, {"window": 17, "soft_cap": 20.0, "spread": 6}),
            (lengths, {"sinks": numbers(random, 2 * group, 4), "slopes": numbers(random, 2 * group, 0.05)}),
            (ranged, {"window": 9}),
            (ranged, {"window": 9, "clamp_ranges": True}),
            (ranged, {"sinks": numbers(random, 2 * group, 4)}),
        ):
            problem = rough(random, requests, 2, group, head_size, **options)
            batch = in_cache(problem, new_cache(BLOCKS, 2, 16, head_size, 8))
            found = batch.attend(decodes=0)
            within_float16(problem, found)
            assert requests is ranged or np.isnan(found[nobodys]).all(), "left alone"


@check
def what_was_evicted_from_a_window_is_never_read() -> None:
    """The null block stands for it, whose numbers are nobody's; here they are NaN."""
    import numpy as np
    import torch

    from tests.unit.volta.attention_problems import rough
    from tests.unit.volta.attention_reference import Request

    problem = rough(np.random.default_rng(2), [Request(3, 100), Request(1, 64)], 1, 4, 64, window=20)
    batch = in_cache(problem, new_cache(BLOCKS, 1, 16, 64, 0))
    for row, request in enumerate(problem.requests):
        batch.block_table[row, : (request.length - request.queries - 19) // 16] = 0
    assert (batch.block_table[0] == 0).sum() > 3
    batch.cache[0] = torch.nan
    within_float16(problem, batch.attend(decodes=2))


# ---------------------------------------------------------------- what goes to which kernel


@check
def requests_of_few_tokens_go_to_split_attention() -> None:
    from vllm_volta.attention import split

    for queries, most_queries, most_decodes, expected in (
        ([1, 1, 1], 2, 8, (3, 3, 1)),
        ([1, 2, 1, 30, 7], 2, 8, (3, 4, 2)),
        ([30, 1, 1], 2, 8, (0, 0, 0)),
        ([1, 1, 30, 1], 16, 8, (2, 2, 1)),  # the rest may be short as well
        ([4, 4, 4], 4, 8, (3, 12, 4)),  # speculation
        ([4, 4, 0, 0], 4, 8, (4, 8, 4)),  # requests that pad a batch for a CUDA graph
        ([1, 1, 1, 1, 9], 2, 3, (3, 3, 1)),  # more than fit
        ([1, 1, 1, 1], 2, 3, (3, 3, 1)),
    ):
        found = split(common_metadata(queries, [100] * len(queries)), most_queries, most_decodes)
        assert found == expected, (queries, found)
    padded = common_metadata([1, 1, 0], [9, 9, 0], tokens=8)
    assert split(padded, 2, 8) == (3, 3, 1), "at most one token for each request, whatever the batch is padded to"


@check
def metadata_is_of_the_layers_heads_and_needs_no_model() -> None:
    """Two KV cache groups as Gemma 4 has them; the layers say how many heads they have."""
    import torch

    with engine() as config:
        builders = []
        for name, heads, kv_heads, head_size in (("sliding", 32, 16, 256), ("global", 32, 4, 512), ("wide", 4, 4, 64)):
            layer = new_layer(name, heads, kv_heads, head_size)
            builders.append(new_builder(config, layer, 16))
        assert [builder.most_decode_queries for builder in builders] == [32, 4, 64]
        assert [builder.reorder_batch_threshold for builder in builders] == [32, 4, 64]
        assert builders[0].workspace is builders[1].workspace, "of the same size, on one device"
        object.__setattr__(config.parallel_config, "enable_dbo", True)
        assert config.parallel_config.use_ubatching
        alone = new_builder(config, config.compilation_config.static_forward_context["wide"], 16)
        assert alone.workspace is not builders[2].workspace, "micro-batches run at the same time"

        batch = common_metadata([1, 1, 40], [70, 9, 40])
        batch.mm_req_doc_ranges = {2: [(3, 20)], 0: []}
        metadata = builders[1].build(0, batch)
        assert (metadata.decodes, metadata.decode_tokens, metadata.tokens) == (2, 2, 42)
        assert metadata.ranges.tolist() == [[[0, 0]], [[0, 0]], [[3, 20]]]
        assert metadata.lengths.data_ptr() == batch.seq_lens.data_ptr(), "CUDA graphs read vLLM's own buffers"
        assert metadata.query_start.data_ptr() == batch.query_start_loc.data_ptr()
        assert metadata.block_table.data_ptr() == batch.block_table_tensor.data_ptr()

        batch.causal = torch.tensor([True, False, True])
        refused(lambda: builders[1].build(0, batch), "not causal", "--attention-backend TRITON_ATTN")
        batch.causal, batch.rswa_prefix_lens = True, torch.tensor([1, 2, 3])
        refused(lambda: builders[1].build(0, batch), "reference sliding window", "--attention-backend TRITON_ATTN")


@check
def speculation_raises_how_many_tokens_are_few() -> None:
    import types

    with engine() as config:
        layer = new_layer("layer", 16, 1, 64)
        assert new_builder(config, layer, 16).most_decode_queries == 4
        speculation = types.SimpleNamespace(num_speculative_tokens=4, parallel_drafting=False)
        object.__setattr__(config, "speculative_config", speculation)
        assert new_builder(config, layer, 16).most_decode_queries == 5


# ---------------------------------------------------------------- layers in vLLM's hands


@check
def layers_answer_as_float64_in_every_layout_of_the_cache() -> None:
    """vLLM's Attention layers, their caches shaped by vLLM's own code: pages that are padded, and packed ones."""
    import numpy as np

    from tests.unit.volta.attention_problems import rough
    from tests.unit.volta.attention_reference import Request

    random = np.random.default_rng(3)
    requests = [Request(1, 130), Request(4, 60), Request(1, 16), Request(50, 50), Request(20, 97)]
    images = [Request(1, 30, ((3, 9),)), Request(40, 60, ((22, 45), (50, 58))), Request(33, 33)]
    for number, (block_size, how, head_size, heads, kv_heads, options) in enumerate(
        (
            (16, PLAIN, 64, 8, 2, {}),
            (48, PADDED, 128, 8, 1, {"window": 40}),
            (784, PADDED, 256, 6, 1, {}),  # Qwen3.6: pages as long as a state of the gated delta net
            (32, PACKED, 80, 4, 4, {"soft_cap": 30.0, "spread": 4}),
            (16, PLAIN, 512, 8, 2, {"sinks": numbers(random, 8, 4)}),
            (16, PACKED, 96, 3, 3, {"slopes": np.float32([0.01, 0.1, 0.3])}),
            (32, PLAIN, 64, 4, 2, {"requests": images, "window": 9}),
            (32, PLAIN, 64, 4, 2, {"requests": images, "window": 9, "clamp_ranges": True}),
        )
    ):
        given = options.pop("requests", requests)
        problem = rough(random, given, kv_heads, heads // kv_heads, head_size, **options)
        with engine() as config:
            layer = new_layer(f"layer{number}", heads, kv_heads, head_size, problem)
            within_float16(problem, served(config, layer, problem, block_size, how))


@check
def chunks_and_shared_prefixes_give_the_same_as_one_step() -> None:
    """Two requests with one prefix in the same blocks, in steps of several lengths."""
    import numpy as np
    import torch

    from tests.unit.volta.attention_problems import rough
    from tests.unit.volta.attention_reference import Attention, Request

    whole = rough(np.random.default_rng(4), [Request(90, 90), Request(70, 70)], 2, 2, 64, shared_tokens=64, window=50)
    with engine() as config:
        layer = new_layer("layer", 4, 2, 64, whole)
        cache, builder = shaped_cache(layer, 16, PLAIN), new_builder(config, layer, 16)
        table = torch.tensor([[5, 2, 9, 7, 1, 3], [5, 2, 9, 7, 8, 0]], dtype=torch.int32)
        done, answers = [0, 64], ([], [])  # what the second shares with the first is in the cache before it comes
        for queries in ((48, 0), (16, 0), (1, 3), (24, 1), (1, 1), (0, 1)):
            order = sorted((row for row in range(2) if queries[row]), key=lambda row: queries[row])
            for row in order:
                done[row] += queries[row]
            step = Attention(
                tuple(Request(queries[row], done[row]) for row in order),
                np.concatenate(
                    [whole.query[whole.starts()[row] :][done[row] - queries[row] : done[row]] for row in order]
                ),
                tuple(whole.keys[row] for row in order),
                tuple(whole.values[row] for row in order),
                whole.scale,
            )
            found = run_step(config, layer, builder, cache, step, table[order], 16)
            for row, first in zip(order, step.starts(), strict=False):
                answers[row].append(found[first : first + queries[row]])
    assert done == [90, 70]
    one_step = np.concatenate([np.concatenate(rows).astype(np.float16) for rows in answers])
    kept = Attention((Request(90, 90), Request(6, 70)), np.delete(whole.query, slice(90, 154), 0), *whole_of(whole))
    within_float16(kept, one_step)


@check
def layers_with_local_chunks_make_more_requests_than_there_are() -> None:
    """vLLM's chunked local attention (Llama 4) on top of this backend: a token sees only keys of its own chunk."""
    import numpy as np
    import torch
    from vllm.model_executor.layers.attention.chunked_local_attention import create_chunked_local_attention_backend
    from vllm_volta.attention import VoltaAttentionBackend

    from tests.unit.volta.attention_problems import rough
    from tests.unit.volta.attention_reference import Request

    chunk = 32
    problem = rough(np.random.default_rng(5), [Request(1, 70), Request(3, 65), Request(90, 90)], 1, 2, 64)
    with engine(max_num_seqs=3) as config:
        backend = create_chunked_local_attention_backend(VoltaAttentionBackend, chunk)
        layer = new_layer("layer", 2, 1, 64, problem, backend=backend)
        found = served(config, layer, problem, 16, PLAIN)
    start = 0
    for number, request in enumerate(problem.requests):
        for token in range(request.queries):
            position = request.length - request.queries + token
            first = position // chunk * chunk
            alone = rough(np.random.default_rng(0), [Request(1, position - first + 1)], 1, 2, 64)
            alone = type(alone)(
                alone.requests,
                problem.query[start + token][None],
                (problem.keys[number][first : position + 1],),
                (problem.values[number][first : position + 1],),
                problem.scale,
            )
            within_float16(alone, found[start + token][None])
        start += request.queries
    assert torch.isfinite(torch.from_numpy(found)).all()


@check
def layers_that_share_a_cache_and_prefill_fast_write_nothing() -> None:
    """What vLLM makes of the backend for them: metadata with two fields more; keys of such layers are left alone."""
    import torch
    from vllm.v1.attention.backends.utils import create_fast_prefill_custom_backend
    from vllm_volta.attention import VoltaAttentionBackend, VoltaAttentionMetadata

    with engine() as config:
        new_layer("first", 2, 1, 64)
        layer = new_layer("second", 2, 1, 64, kv_sharing_target_layer_name="first")
        backend = create_fast_prefill_custom_backend("FastPrefill", VoltaAttentionBackend)
        batch = common_metadata([1, 30], [9, 30])
        batch.logits_indices_padded, batch.num_logits_indices = torch.tensor([0, 30], dtype=torch.int32), 2
        metadata = new_builder(config, layer, 16, backend).build(0, batch)
        assert isinstance(metadata, VoltaAttentionMetadata) and metadata.num_logits_indices == 2
        assert (metadata.decodes, metadata.tokens) == (2, 2), "one token of each"
        layer.kv_cache = torch.full((4, 1, 16, 128), torch.nan, dtype=torch.float16)
        forward(config, layer, torch.zeros(31, 2, 64), torch.zeros(31, 1, 64), torch.zeros(31, 1, 64), None, None)
        assert layer.kv_cache.isnan().all()


@check
def a_batch_that_is_padded_leaves_the_padding_alone() -> None:
    """For a CUDA graph: requests without tokens, tokens without a request, slots of -1, a query longer than all."""
    import numpy as np
    import torch

    from tests.unit.volta.attention_problems import rough
    from tests.unit.volta.attention_reference import Request

    requests = [Request(1, 40), Request(1, 17), Request(0, 0), Request(0, 0)]
    problem = rough(np.random.default_rng(6), requests, 1, 4, 64)
    with engine() as config:
        layer = new_layer("layer", 4, 1, 64, problem)
        builder, cache = new_builder(config, layer, 16), shaped_cache(layer, 16, PLAIN)
        batch = in_cache(problem, cache)
        common = common_metadata([1, 1, 0, 0], [40, 17, 0, 0], tokens=6, block_table=batch.block_table)
        metadata = builder.build_for_cudagraph_capture(common)
        assert (metadata.decodes, metadata.tokens, metadata.most_decode_queries) == (4, 4, 1)
        query = torch.cat((batch.query, torch.full((6, 4, 64), torch.nan).half()))
        out = torch.full_like(query, 7)
        layer.impl.forward(layer, query, query, query, cache, metadata, out)
        within_float16(problem, out[:2].numpy())
        assert (out[2:] == 7).all()
        before = cache.clone()
        layer.impl.do_kv_cache_update(layer, query[:, :1], query[:, :1], cache, torch.full((8,), -1))
        assert torch.equal(cache.nan_to_num(nan=9), before.nan_to_num(nan=9))


@check
def without_metadata_the_output_is_zeros() -> None:
    import torch

    with engine() as config:
        layer = new_layer("layer", 4, 2, 64)
        found = forward(config, layer, torch.ones(5, 4, 64), torch.ones(5, 2, 64), torch.ones(5, 2, 64), None, None)
        assert found.shape == (5, 256) and (found == 0).all()


# ---------------------------------------------------------------- what it says of itself


@check
def it_refuses_what_it_lacks_and_says_what_to_type() -> None:
    import torch
    from vllm_volta.attention import VoltaAttentionBackend, VoltaAttentionImpl

    def impl(**more: Any) -> VoltaAttentionImpl:
        return VoltaAttentionImpl(4, 64, 0.1, 2, **more)

    assert impl(chunk_lookback=-1).window == 0
    elsewhere = "--attention-backend TRITON_ATTN"
    refused(lambda: impl(chunk_lookback=1), "chunk_lookback=1", elsewhere)
    refused(lambda: impl(use_alibi_sqrt=True), "use_alibi_sqrt=True", elsewhere)
    refused(lambda: impl(attn_type="encoder_only"), "encoder_only", elsewhere)
    refused(lambda: impl(sinks=torch.zeros(3)), "each of 4 heads")
    out = torch.zeros(1, 4, 64)
    refused(lambda: impl().forward(None, out, out, out, out, None, out, output_scale=out), "quantise", elsewhere)
    refused(lambda: VoltaAttentionBackend.get_kv_cache_shape(5, 24, 2, 64), "multiple of 16")
    assert impl().need_to_return_lse_for_decode is False, "what vLLM refuses decode context parallelism by"


@check
def blocks_come_first_whatever_the_layout_is_called() -> None:
    import os

    from vllm.v1.attention.backends import utils
    from vllm_volta.attention import VoltaAttentionBackend as backend

    for layout in ("NHD", "HND"):
        os.environ["VLLM_KV_CACHE_LAYOUT"] = layout
        utils.get_kv_cache_layout.cache_clear()
        assert utils.get_kv_cache_layout() == layout
        assert backend.get_kv_cache_stride_order() == (0, 1, 2, 3)
        assert backend.indexes_kv_by_block_stride() and backend.get_kv_cache_block_dim(16, 2, 64) == 0
    del os.environ["VLLM_KV_CACHE_LAYOUT"]
    utils.get_kv_cache_layout.cache_clear()


@check
def sinks_are_kept_in_float32_at_one_address() -> None:
    import torch
    from vllm_volta.attention import VoltaAttentionImpl

    loaded = torch.nn.Parameter(torch.tensor([1.0, 2.0], dtype=torch.float16), requires_grad=False)
    impl = VoltaAttentionImpl(2, 64, 0.1, 1, sinks=loaded)
    impl.process_weights_after_loading(torch.float16)
    kept = impl.sinks
    assert (kept.dtype, kept.tolist()) == (torch.float32, [1.0, 2.0])
    loaded.copy_(torch.tensor([3.0, 4.0]))
    impl.process_weights_after_loading(torch.float16)
    assert impl.sinks is kept and kept.tolist() == [3.0, 4.0]


# ---------------------------------------------------------------- helpers


def numbers(random: Any, count: int, spread: float) -> Any:
    return (random.normal(size=count) * spread).astype("float32")


def new_cache(blocks: int, kv_heads: int, block_size: int, head_size: int, gap: int) -> torch.Tensor:
    """A cache of NaN whose blocks lie `gap` numbers apart."""
    import torch

    size = kv_heads * block_size * 2 * head_size
    numbers = torch.full((blocks, size + gap), torch.nan, dtype=torch.float16)
    return numbers[:, :size].unflatten(1, (kv_heads, block_size, 2 * head_size))


@dataclass(frozen=True)
class Batch:
    """A problem in a cache."""

    problem: Attention
    cache: torch.Tensor
    block_table: torch.Tensor
    query: torch.Tensor

    def attend(self, decodes: int) -> Any:
        """What paged_attention makes of it; tokens of no request stay NaN."""
        import torch
        from vllm_volta import attention_ops

        problem, nothing = self.problem, torch.empty(0)
        out = torch.full_like(self.query, torch.nan)
        starts, lengths = problem.starts(), [request.length for request in problem.requests]
        few = [request.queries for request in problem.requests[:decodes]]
        attention_ops.paged_attention(
            self.query,
            self.cache,
            out,
            torch.from_numpy(starts).int(),
            torch.tensor(lengths, dtype=torch.int32),
            self.block_table,
            nothing,
            nothing.int(),
            None if problem.sinks is None else torch.from_numpy(problem.sinks),
            None if problem.slopes is None else torch.from_numpy(problem.slopes),
            ranges_of(problem.requests),
            decodes,
            sum(few),
            max(few, default=0),
            len(self.query),
            problem.scale,
            problem.soft_cap,
            problem.window,
            problem.clamp_ranges,
            0,
        )
        return out.numpy()


def ranges_of(requests: Sequence[Request]) -> torch.Tensor | None:
    """As vLLM gives them: padded with (0, 0)."""
    import torch

    most = max(len(request.ranges) for request in requests)
    if most == 0:
        return None
    padded = [[*request.ranges, *[(0, 0)] * (most - len(request.ranges))] for request in requests]
    return torch.tensor(padded, dtype=torch.int32)


def in_cache(problem: Attention, cache: torch.Tensor) -> Batch:
    """Write a problem's keys and values into blocks in disorder."""
    import torch
    from vllm_volta import attention_ops

    block_size = cache.shape[2]
    free = iter(torch.randperm(cache.shape[0] - 1, generator=torch.Generator().manual_seed(7)).add(1).tolist())
    most = max(-(-request.length // block_size) for request in problem.requests)
    table = torch.zeros(len(problem.requests), most, dtype=torch.int32)
    for row, request in enumerate(problem.requests):
        for column in range(-(-request.length // block_size)):
            table[row, column] = next(free)
        slots = slots_of(table[row], range(request.length), block_size)
        key, value = (torch.from_numpy(each[row]) for each in (problem.keys, problem.values))
        attention_ops.write_cache(key, value, cache, slots)
    return Batch(problem, cache, table, torch.from_numpy(problem.query))


def slots_of(blocks: torch.Tensor, positions: range, block_size: int) -> torch.Tensor:
    import torch

    places = torch.arange(positions.start, positions.stop)
    return blocks[places // block_size].long() * block_size + places % block_size


def within_float16(problem: Attention, found: Any) -> None:
    """As near to float64 as the kernels have to be; what PyTorch does in float32 is nearer."""
    import numpy as np

    from tests.unit.volta.attention_reference import with_limit

    exact, limit = with_limit(problem)
    is_result = ~np.isnan(exact)
    assert is_result.any()
    off = np.abs(found.reshape(exact.shape) - exact)
    assert (off <= limit)[is_result].all(), np.nanmax(off / limit)


def common_metadata(
    queries: Sequence[int],
    lengths: Sequence[int],
    tokens: int | None = None,
    block_table: torch.Tensor | None = None,
    slots: torch.Tensor | None = None,
) -> Any:
    """vLLM's description of a batch; tokens: what it is padded to."""
    import torch
    from vllm.v1.attention.backend import CommonAttentionMetadata

    starts = torch.tensor([0, *itertools.accumulate(queries)], dtype=torch.int32)
    return CommonAttentionMetadata(
        query_start_loc=starts,
        query_start_loc_cpu=starts,
        seq_lens=torch.tensor(lengths, dtype=torch.int32),
        num_reqs=len(queries),
        num_actual_tokens=sum(queries) if tokens is None else tokens,
        max_query_len=max(queries),
        max_seq_len=max(lengths),
        block_table_tensor=torch.zeros(len(queries), 8, dtype=torch.int32) if block_table is None else block_table,
        slot_mapping=torch.zeros(sum(queries), dtype=torch.int64) if slots is None else slots,
    )


@contextmanager
def engine(max_num_seqs: int = 8) -> Iterator[Any]:
    """vLLM's configuration while a float16 model loads."""
    import types

    import torch
    from vllm.config import VllmConfig, set_current_vllm_config

    config = VllmConfig()
    config.scheduler_config.max_num_seqs = max_num_seqs
    model = types.SimpleNamespace(dtype=torch.float16, is_mm_prefix_lm=False)
    object.__setattr__(config, "model_config", model)
    torch.set_default_dtype(torch.float16)
    try:
        with set_current_vllm_config(config):
            yield config
    finally:
        torch.set_default_dtype(torch.float32)


def new_layer(
    name: str,
    heads: int,
    kv_heads: int,
    head_size: int,
    problem: Attention | None = None,
    backend: Any = None,
    **more: Any,
) -> Any:
    """vLLM's layer for a problem."""
    import torch
    from vllm.model_executor.layers.attention import Attention as Layer
    from vllm_volta.attention import VoltaAttentionBackend

    if problem is not None:
        more |= {
            "per_layer_sliding_window": problem.window or None,
            "logits_soft_cap": problem.soft_cap or None,
            "alibi_slopes": None if problem.slopes is None else problem.slopes.tolist(),
            "mm_prefix_clamp_sliding_window": problem.clamp_ranges,
        }
        if problem.sinks is not None:
            more["sinks"] = torch.nn.Parameter(torch.from_numpy(problem.sinks), requires_grad=False)
    layer = Layer(
        heads,
        head_size,
        head_size**-0.5 if problem is None else problem.scale,
        num_kv_heads=kv_heads,
        prefix=name,
        attn_backend=backend or VoltaAttentionBackend,
        **more,
    )
    layer.process_weights_after_loading(torch.float16)
    return layer


def cache_spec(layer: Any, block_size: int, **more: Any) -> Any:
    import torch
    from vllm.v1.kv_cache_interface import FullAttentionSpec

    return FullAttentionSpec(
        block_size=block_size, num_kv_heads=layer.num_kv_heads, head_size=layer.head_size, dtype=torch.float16, **more
    )


def new_builder(config: Any, layer: Any, block_size: int, backend: Any = None) -> Any:
    """The builder that vLLM's model runner makes."""
    import torch
    from vllm.v1.worker.utils import AttentionGroup

    group = AttentionGroup(backend or layer.attn_backend, [layer.layer_name], cache_spec(layer, block_size), 0)
    group.create_metadata_builders(config, torch.device("cpu"), block_size)
    return group.get_metadata_builder()


def shaped_cache(layer: Any, block_size: int, how: str) -> torch.Tensor:
    """A layer's view of raw memory full of NaN, by vLLM's own function."""
    import torch
    from vllm.v1.worker.gpu.attn_utils import _reshape_attention_kv_cache

    spec = cache_spec(layer, block_size)
    page = spec.page_size_bytes
    packing = None
    if how == PADDED:
        spec, stride = cache_spec(layer, block_size, page_size_padded=page + 4096), page + 4096
    elif how == PACKED:
        packing, stride = (512, 2 * page + 512), 2 * page + 512
    else:
        stride = page
    backend = layer.attn_backend
    raw = torch.full((BLOCKS * stride // 2,), torch.nan, dtype=torch.float16).view(torch.int8)
    shape = backend.get_kv_cache_shape(BLOCKS, block_size, layer.num_kv_heads, layer.head_size)
    order = backend.get_kv_cache_stride_order()
    cache = _reshape_attention_kv_cache(raw, spec, shape, order, BLOCKS, packing)
    assert cache.shape == shape and cache.stride(0) * 2 == stride
    return cache


def served(config: Any, layer: Any, problem: Attention, block_size: int, how: str) -> Any:
    """A problem through a layer in one step: what was there before is in the cache, the new tokens are written."""
    cache = shaped_cache(layer, block_size, how)
    batch = in_cache(problem, cache)
    for row, request in enumerate(problem.requests):  # what the step itself has to write
        for place in slots_of(
            batch.block_table[row], range(request.length - request.queries, request.length), block_size
        ):
            spoil(cache, int(place))
    return run_step(
        config, layer, new_builder(config, layer, block_size), cache, problem, batch.block_table, block_size
    )


def spoil(cache: torch.Tensor, slot: int) -> None:
    import torch
    from vllm_volta import attention_ops

    nothing = torch.full((1, cache.shape[1], cache.shape[3] // 2), torch.nan, dtype=torch.float16)
    attention_ops.write_cache(nothing, nothing, cache, torch.tensor([slot]))


def run_step(
    config: Any,
    layer: Any,
    builder: Any,
    cache: torch.Tensor,
    problem: Attention,
    table: torch.Tensor,
    block_size: int,
) -> Any:
    """One step of vLLM: the new keys and values of each request are written, then its new tokens look at all."""
    import numpy as np
    import torch

    fresh = [slice(request.length - request.queries, request.length) for request in problem.requests]
    key, value = (
        torch.from_numpy(np.concatenate([each[row][part] for row, part in enumerate(fresh)]))
        for each in (problem.keys, problem.values)
    )
    slots = torch.cat(
        [slots_of(table[row], range(part.start, part.stop), block_size) for row, part in enumerate(fresh)]
    )
    queries = [request.queries for request in problem.requests]
    common = common_metadata(queries, [request.length for request in problem.requests], None, table, slots)
    if any(request.ranges for request in problem.requests):
        common.mm_req_doc_ranges = {row: list(request.ranges) for row, request in enumerate(problem.requests)}
    layer.kv_cache = cache
    found = forward(config, layer, torch.from_numpy(problem.query), key, value, builder.build(0, common), slots)
    return found.numpy().reshape(problem.query.shape)


def forward(
    config: Any,
    layer: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    metadata: Any,
    slots: torch.Tensor | None,
) -> torch.Tensor:
    """The layer's own forward, in the context that the model runner gives it."""
    import torch
    from vllm.forward_context import set_forward_context

    name = layer.layer_name
    mapping = {} if slots is None else {name: slots}
    arguments = (each.half().flatten(1) for each in (query, key, value))
    with set_forward_context(None if metadata is None else {name: metadata}, config, slot_mapping=mapping):
        return torch.as_tensor(layer(*arguments))


def whole_of(problem: Attention) -> tuple[Any, ...]:
    """The last fields of a problem, which are not those of its requests."""
    return problem.keys, problem.values, problem.scale, problem.window


def refused(action: Callable[[], Any], *reasons: str) -> None:
    try:
        action()
    except (ValueError, NotImplementedError) as error:
        assert all(reason in str(error) for reason in reasons), error
    else:
        raise AssertionError("nothing was refused")


def main() -> None:
    """Write what became of each check."""
    output, sys.stdout = sys.stdout, sys.stderr  # vLLM's log goes to standard output
    sys.path.insert(0, str(ROOT))
    from vllm.config import VllmConfig, set_current_vllm_config
    from vllm.distributed import init_distributed_environment, initialize_model_parallel

    found: dict[str, str | None] = {}
    with set_current_vllm_config(VllmConfig()), tempfile.NamedTemporaryFile() as meeting_point:
        init_distributed_environment(1, 0, f"file://{meeting_point.name}", 0, "gloo")
        initialize_model_parallel(1, 1)
        for name in json.loads(sys.argv[1]):
            try:
                CHECKS[name]()
            except Exception:  # noqa: BLE001
                found[name] = traceback.format_exc()
            else:
                found[name] = None
    json.dump(found, output)


if __name__ == "__main__":
    main()
