"""The attention backend CUSTOM: vLLM's V1 interface to the paged attention of attention_ops.py, for float16.

What it serves: causal attention of decoder layers, with sliding windows, soft caps, ALiBi, sinks, the bidirectional
ranges of multimodal prefixes, KV sharing, prefix caching, chunked prefill, speculative decoding, layers of different
head sizes in one model, and hybrid models, whose blocks are of uncommon sizes and whose pages are padded. CUDA graphs
hold batches that only decode, each request with as many tokens.

What vLLM's selection leaves to TRITON_ATTN, with the reason: all that VoltaAttentionBackend says it does not support.

Beside it run, on compute capability 7.0:
- MLA (DeepSeek): nothing. Triton's decode kernel wants 192 KiB of shared memory, 96 are there, and 0003-honesty refuses
  it. With VLLM_MLA_DISABLE=1 such models have ordinary attention of head size 192, which is left to Triton.
- Gated delta net (Qwen3-Next, Qwen3.6): vLLM's own GDN_ATTN with its Triton kernels, a recurrent one for decoding and
  chunked ones for prompts. Their state is in blocks of the same memory, but in no way in this backend's cache.
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import torch
from vllm.config import get_current_vllm_config_or_none
from vllm.logger import init_logger
from vllm.v1.attention.backend import (
    AttentionBackend,
    AttentionCGSupport,
    AttentionImpl,
    AttentionLayer,
    AttentionMetadata,
    AttentionMetadataBuilder,
    AttentionType,
    CommonAttentionMetadata,
    MultipleOf,
)
from vllm.v1.attention.backends.utils import (
    compute_mm_prefix_range_tensor,
    get_num_attention_heads_from_layers,
    split_decodes_and_prefills,
)

from vllm_volta import attention_ops

if TYPE_CHECKING:
    from vllm.config import VllmConfig
    from vllm.config.cache import CacheDType
    from vllm.platforms.interface import DeviceCapability
    from vllm.v1.kv_cache_interface import AttentionSpec

logger = init_logger(f"vllm.{__name__}")

ELSEWHERE = "serve with --attention-backend TRITON_ATTN"
# Models whose layers pass what this backend lacks, and of which vLLM's selection is told nothing: vllm/model_executor/
# models/rnj1.py and step1.py. Without a word of ours vLLM would choose this backend and stop at the first layer.
LACKING = {
    "Rnj1ForCausalLM": "chunked attention with lookback not supported",
    "Step1ForCausalLM": "ALiBi with square roots not supported",
}


class VoltaAttentionBackend(AttentionBackend):
    """What vLLM asks before it chooses this backend, and how it lays out the cache."""

    supported_dtypes: ClassVar[list[torch.dtype]] = [torch.float16]
    supported_kv_cache_dtypes: ClassVar[list[CacheDType]] = ["auto", "float16"]
    forward_includes_kv_cache_update = False

    @staticmethod
    def get_name() -> str:
        """A name of vLLM's enumeration: layers look it up there."""
        return "CUSTOM"

    @staticmethod
    def get_impl_cls() -> type[VoltaAttentionImpl]:
        return VoltaAttentionImpl

    @staticmethod
    def get_builder_cls() -> type[VoltaAttentionMetadataBuilder]:
        return VoltaAttentionMetadataBuilder

    @staticmethod
    def get_supported_kernel_block_sizes() -> list[int | MultipleOf]:
        return [MultipleOf(attention_ops.CACHE_GROUP)]

    @staticmethod
    def get_kv_cache_shape(
        num_blocks: int, block_size: int, num_kv_heads: int, head_size: int, cache_dtype_str: str = "auto"
    ) -> tuple[int, ...]:
        """The shape of a layer's cache; raises ValueError for a block size that has no whole groups."""
        if block_size % attention_ops.CACHE_GROUP:
            raise ValueError(f"the block size must be a multiple of {attention_ops.CACHE_GROUP}, it is {block_size}")
        return num_blocks, num_kv_heads, block_size, 2 * head_size

    @staticmethod
    def get_kv_cache_stride_order(include_num_layers_dimension: bool = False) -> tuple[int, ...]:
        """Blocks first, then heads, whatever VLLM_KV_CACHE_LAYOUT says: the order within a head is the kernels'."""
        return (1, 0, 2, 3, 4) if include_num_layers_dimension else (0, 1, 2, 3)

    @classmethod
    def supports_head_size(cls, head_size: int) -> bool:
        return head_size in attention_ops.HEAD_SIZES

    @classmethod
    def supports_compute_capability(cls, capability: DeviceCapability) -> bool:
        return tuple(capability) >= (7, 0)

    @classmethod
    def supports_sink(cls) -> bool:
        return True

    @classmethod
    def supports_mm_prefix(cls) -> bool:
        return True

    @classmethod
    def supports_sliding_window(cls) -> bool:
        return True

    @classmethod
    def supports_non_causal(cls) -> bool:
        return False

    @classmethod
    def supports_attn_type(cls, attn_type: str) -> bool:
        return attn_type == AttentionType.DECODER

    @classmethod
    def supports_batch_invariance(cls) -> bool:
        """No: how the keys of a request are dealt out to thread blocks depends on the other requests."""
        return False

    @classmethod
    def supports_kv_connector(cls) -> bool:
        """No: connectors may look into blocks, and what is in them has an order that only these kernels know."""
        return False

    @classmethod
    def supports_combination(
        cls,
        head_size: int,
        dtype: torch.dtype,
        kv_cache_dtype: CacheDType | None,
        block_size: int | None,
        use_mla: bool,
        has_sink: bool,
        use_sparse: bool,
        use_mm_prefix: bool,
        device_capability: DeviceCapability,
    ) -> str | None:
        """What of the model and the deployment this backend lacks; None for nothing."""
        config = get_current_vllm_config_or_none()
        if config is None:
            return None
        if config.parallel_config.decode_context_parallel_size > 1:
            return "decode context parallelism not supported"
        model = config.model_config
        if model is None:
            return None
        if model.enable_cumem_allocator:
            # What wakes up has lost the zeros of Workspace.arrivals.
            return "sleep mode not supported"
        if model.rswa_window is not None:
            return "reference sliding window not supported"
        return next((LACKING[name] for name in model.architectures if name in LACKING), None)


@dataclass(frozen=True, eq=False)
class Workspace:
    """Memory that attention works in. partial: float32; arrivals: int32, zeros whenever no kernel runs."""

    partial: torch.Tensor
    arrivals: torch.Tensor


# Calls on one stream take turns, so the layers of a device share a workspace, those of a drafting model too.
_workspaces: weakref.WeakValueDictionary[tuple[torch.device, int, int], Workspace] = weakref.WeakValueDictionary()


def _new_workspace(device: torch.device, floats: int, counters: int) -> Workspace:
    return Workspace(
        torch.empty(floats, dtype=torch.float32, device=device), torch.zeros(counters, dtype=torch.int32, device=device)
    )


def _shared_workspace(device: torch.device, floats: int, counters: int) -> Workspace:
    key = device, floats, counters
    workspace = _workspaces.get(key)
    if workspace is None:
        workspace = _workspaces[key] = _new_workspace(device, floats, counters)
    return workspace


@dataclass
class VoltaAttentionMetadata(AttentionMetadata):
    """One batch, as attention_ops.paged_attention takes it. Not frozen: vLLM makes subclasses that copy the fields."""

    query_start: torch.Tensor
    lengths: torch.Tensor
    block_table: torch.Tensor
    ranges: torch.Tensor | None
    decodes: int
    decode_tokens: int
    most_decode_queries: int
    tokens: int
    workspace: Workspace
    fragments: int


class VoltaAttentionMetadataBuilder(AttentionMetadataBuilder[VoltaAttentionMetadata]):
    """Makes the metadata of the layers of one KV cache group. Waits for nothing on the device."""

    _cudagraph_support: ClassVar[AttentionCGSupport] = AttentionCGSupport.UNIFORM_BATCH

    def __init__(
        self, kv_cache_spec: AttentionSpec, layer_names: list[str], vllm_config: VllmConfig, device: torch.device
    ) -> None:
        super().__init__(kv_cache_spec, layer_names, vllm_config, device)
        # Of the layers, not of the model: models mix head sizes and numbers of heads.
        heads = get_num_attention_heads_from_layers(vllm_config, layer_names)
        if heads is None:
            heads = vllm_config.model_config.get_num_attention_heads(vllm_config.parallel_config)
        kv_heads = kv_cache_spec.num_kv_heads
        group = heads // kv_heads
        rows = attention_ops.MOST_PASSES * attention_ops.split_rows(kv_cache_spec.head_size)
        most_queries = max(rows // group, 1)
        self._init_reorder_batch_threshold(most_queries, supports_spec_as_decode=True)
        assert self.reorder_batch_threshold is not None
        self.most_decode_queries: int = self.reorder_batch_threshold
        self.most_decodes: int = vllm_config.scheduler_config.max_num_seqs
        like = torch.empty(0, device=device)
        self.fragments = attention_ops.fragments_for(like)
        sizes = attention_ops.workspace_sizes(
            like,
            kv_heads,
            group,
            kv_cache_spec.head_size,
            self.most_decodes,
            self.most_decodes * self.most_decode_queries,
            self.fragments,
        )
        # Micro-batches of one step run at the same time, on streams of their own.
        is_shared = not vllm_config.parallel_config.use_ubatching
        self.workspace = (_shared_workspace if is_shared else _new_workspace)(device, *sizes)

    def build(
        self, common_prefix_len: int, common_attn_metadata: CommonAttentionMetadata, fast_build: bool = False
    ) -> VoltaAttentionMetadata:
        """The metadata of a batch. Raises NotImplementedError for what vLLM's selection should have kept away."""
        batch = common_attn_metadata
        if batch.causal is not True:
            raise NotImplementedError(f"this batch is not causal, which CUSTOM attention does not serve: {ELSEWHERE}")
        if batch.rswa_prefix_lens is not None:
            raise NotImplementedError(
                f"this batch has a reference sliding window, which CUSTOM attention does not serve: {ELSEWHERE}"
            )
        decodes, decode_tokens, most_decode_queries = split(batch, self.most_decode_queries, self.most_decodes)
        return VoltaAttentionMetadata(
            query_start=batch.query_start_loc[: batch.num_reqs + 1],
            lengths=batch.seq_lens[: batch.num_reqs],
            block_table=batch.block_table_tensor[: batch.num_reqs],
            # None while CUDA graphs are captured, and so in them: tokens that are decoded are in no range. With
            # speculation, a prompt's last few tokens could be replayed as if they were decoded; images end before.
            ranges=compute_mm_prefix_range_tensor(batch.mm_req_doc_ranges, batch.num_reqs, batch.seq_lens.device),
            decodes=decodes,
            decode_tokens=decode_tokens,
            most_decode_queries=most_decode_queries,
            tokens=batch.num_actual_tokens if decodes < batch.num_reqs else decode_tokens,
            workspace=self.workspace,
            fragments=self.fragments,
        )


def split(batch: CommonAttentionMetadata, most_queries: int, most_decodes: int) -> tuple[int, int, int]:
    """How many requests, from the first on, go to split attention, their tokens, and the most tokens of one of them.

    Those before the first with more than `most_queries` tokens, and at most `most_decodes`: layers with chunks of local
    attention make several requests of one. A batch that is padded for a CUDA graph has requests without tokens at its
    end, and maybe tokens without a request.
    """
    decodes, _, tokens, _ = split_decodes_and_prefills(batch, most_queries)
    starts = batch.query_start_loc_cpu
    if decodes == batch.num_reqs and decodes <= most_decodes:
        longest = min(batch.max_query_len, tokens)
    else:
        decodes = min(decodes, most_decodes)
        tokens = int(starts[decodes])
        longest = int((starts[1 : decodes + 1] - starts[:decodes]).max()) if decodes else 0
    return decodes, min(tokens, decodes * longest), longest


class VoltaAttentionImpl(AttentionImpl[VoltaAttentionMetadata]):
    """The attention of one layer."""

    supports_dcp = False

    def __init__(
        self,
        num_heads: int,
        head_size: int,
        scale: float,
        num_kv_heads: int | None = None,
        alibi_slopes: list[float] | None = None,
        sliding_window: int | None = None,
        kv_cache_dtype: str = "auto",
        logits_soft_cap: float | None = None,
        attn_type: str = AttentionType.DECODER,
        kv_sharing_target_layer_name: str | None = None,
        sinks: torch.Tensor | None = None,
        chunk_lookback: int = -1,
        **others: object,
    ) -> None:
        """As vLLM's layers call it; raises NotImplementedError for what it cannot do, with what to type instead."""
        lacking = [f"{name}={value!r}" for name, value in others.items()]
        if attn_type != AttentionType.DECODER:
            lacking.append(f"attn_type={attn_type!r}")
        if chunk_lookback > -1:
            lacking.append(f"chunk_lookback={chunk_lookback}")
        if lacking:
            raise NotImplementedError(f"CUSTOM attention does not serve {', '.join(lacking)}: {ELSEWHERE}")
        if sinks is not None and sinks.shape != (num_heads,):
            raise ValueError(f"sinks must be one logit for each of {num_heads} heads, they are {list(sinks.shape)}")
        self.num_heads = num_heads
        self.head_size = head_size
        self.scale = float(scale)
        self.num_kv_heads = num_heads if num_kv_heads is None else num_kv_heads
        # vLLM makes layers in the context of their device.
        self.slopes = None if alibi_slopes is None else torch.tensor(alibi_slopes, dtype=torch.float32)
        self.window = sliding_window or 0
        self.kv_cache_dtype = kv_cache_dtype
        self.soft_cap = float(logits_soft_cap or 0)
        self.attn_type = attn_type
        self.kv_sharing_target_layer_name = kv_sharing_target_layer_name
        self.loaded_sinks = sinks
        self.sinks: torch.Tensor | None = None

    def process_weights_after_loading(self, act_dtype: torch.dtype) -> None:
        """Keep the sinks as float32, where they were before if they are loaded again: CUDA graphs read them there."""
        if self.loaded_sinks is None:
            return
        if self.sinks is None:
            self.sinks = self.loaded_sinks.detach().to(torch.float32, copy=True)
        else:
            self.sinks.copy_(self.loaded_sinks.detach())

    def do_kv_cache_update(
        self,
        layer: AttentionLayer,
        key: torch.Tensor,
        value: torch.Tensor,
        kv_cache: torch.Tensor,
        slot_mapping: torch.Tensor,
    ) -> None:
        """Write the keys and values of a step; vLLM leaves it out for layers that share another's cache."""
        attention_ops.write_cache(key, value, kv_cache, slot_mapping)

    def forward(
        self,
        layer: AttentionLayer,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        kv_cache: torch.Tensor,
        attn_metadata: VoltaAttentionMetadata | None,
        output: torch.Tensor,
        output_scale: torch.Tensor | None = None,
        output_block_scale: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Attention of query [at least tokens, heads, head_size] to the cache, into `output` of the same shape.

        Without metadata (vLLM measures memory) the output is zeros.
        """
        if output_scale is not None or output_block_scale is not None:
            raise NotImplementedError(f"CUSTOM attention does not quantise its output: {ELSEWHERE}")
        if attn_metadata is None:
            return output.fill_(0)
        batch = attn_metadata
        attention_ops.paged_attention(
            query,
            kv_cache,
            output,
            batch.query_start,
            batch.lengths,
            batch.block_table,
            batch.workspace.partial,
            batch.workspace.arrivals,
            self.sinks,
            self.slopes,
            batch.ranges,
            batch.decodes,
            batch.decode_tokens,
            batch.most_decode_queries,
            batch.tokens,
            self.scale,
            self.soft_cap,
            self.window,
            getattr(layer, "mm_prefix_clamp_sliding_window", False),
            batch.fragments,
        )
        return output
