"""vLLM's own Triton attention, from its two source files alone, where vLLM is not installed.

The files need torch and Triton; of vLLM they import names that are given here: no environment variable is set, no
KV cache is quantised, the platform is CUDA. Wrapper and kernels are vLLM's, as they are in the wheel.
"""

from __future__ import annotations

import contextlib
import enum
import importlib.util
import logging
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

FOLDER = Path("v1", "attention", "ops")
HELPERS, KERNELS = "triton_attention_helpers", "triton_unified_attention"
SEGMENTS = 16
"""NUM_PAR_SOFTMAX_SEGMENTS of vLLM 0.27.1's v1/attention/backends/triton_attn.py."""
LEAST_BLOCKS = 128
"""MIN_LAUNCH_GRID_SIZE_2D there."""
CAPTURE_SIZES = (1, 2, 4, *range(8, 257, 8))
"""Batch sizes for which vLLM captures CUDA graphs by default; the threshold is moved to the nearest."""


class KVQuantMode(enum.IntEnum):
    """Of vllm.v1.kv_cache_interface: those that the wrapper compares with."""

    NONE = 0
    FP8_PER_TENSOR = 1
    INT8_PER_TOKEN_HEAD = 2
    FP8_PER_TOKEN_HEAD = 3
    INT4_PER_TOKEN_HEAD = 4


def load(sources: Path) -> types.ModuleType:
    """The module with `unified_attention` and its kernels. sources: a folder `vllm`, or one with its two files at the
    same place. Raises FileNotFoundError."""
    with _stand_ins():
        _import(sources, HELPERS)
        return _import(sources, KERNELS)


def _import(sources: Path, name: str) -> types.ModuleType:
    full_name = f"vllm.{'.'.join(FOLDER.parts)}.{name}"
    spec = importlib.util.spec_from_file_location(full_name, sources / FOLDER / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[full_name] = module
    spec.loader.exec_module(module)
    return module


@contextlib.contextmanager
def _stand_ins() -> Iterator[None]:
    """What the two files import of vLLM. A vLLM that is imported already is not disturbed."""
    import torch
    import triton
    import triton.language as tl

    def is_family(number: int) -> bool:
        return torch.cuda.is_available() and torch.cuda.get_device_capability()[0] * 10 == number

    platform = types.SimpleNamespace(fp8_dtype=lambda: torch.float8_e4m3fn, is_device_capability_family=is_family)
    contents: dict[str, dict[str, Any]] = {
        "vllm": {},
        "vllm.envs": {"VLLM_BATCH_INVARIANT": False},
        "vllm.logger": {"init_logger": logging.getLogger},
        "vllm.platforms": {"current_platform": platform},
        "vllm.triton_utils": {"tl": tl, "triton": triton},
        "vllm.v1": {},
        "vllm.v1.attention": {},
        "vllm.v1.attention.ops": {},
        "vllm.v1.kv_cache_interface": {"KVQuantMode": KVQuantMode},
    }
    before = {name: module for name, module in sys.modules.items() if name.split(".")[0] == "vllm"}
    for name in before:
        del sys.modules[name]
    try:
        for name, members in contents.items():
            module = types.ModuleType(name)
            module.__path__ = []
            vars(module).update(members)
            sys.modules[name] = module
            if "." in name:
                parent, _, child = name.rpartition(".")
                setattr(sys.modules[parent], child, module)
        yield
    finally:
        for name in [name for name in sys.modules if name.split(".")[0] == "vllm"]:
            del sys.modules[name]
        sys.modules.update(before)


def threshold(kv_heads: int) -> int:
    """Requests up to which decoding is split over the keys, as TritonAttentionMetadataBuilder has it."""
    return min(CAPTURE_SIZES, key=lambda size: abs(size - LEAST_BLOCKS // kv_heads))


class UnifiedAttention:
    """vLLM's `unified_attention` for layers of one shape, with what its metadata builder keeps for it."""

    def __init__(self, module: types.ModuleType, heads: int, kv_heads: int, head_size: int, device: Any) -> None:
        import torch

        self.module = module
        self.threshold = threshold(kv_heads)
        padded = 1 << (head_size - 1).bit_length()
        shape = (self.threshold, heads, SEGMENTS)
        self.segment_output = torch.empty((*shape, padded), dtype=torch.float32, device=device)
        self.segment_max, self.segment_sum = torch.empty((2, *shape), dtype=torch.float32, device=device)
        self.one = torch.ones(1, dtype=torch.float32, device=device)

    def __call__(
        self,
        query: Any,
        cache: Any,
        out: Any,
        query_start: Any,
        lengths: Any,
        block_table: Any,
        most_queries: int,
        scale: float,
        window: int = 0,
        soft_cap: float = 0,
        sinks: Any = None,
        slopes: Any = None,
        ranges: Any = None,
        clamp_ranges: bool = False,
    ) -> None:
        """query, out [tokens, heads, head_size]; cache [blocks, kv_heads, block_size, 2 * head_size], any strides;
        the rest as in vllm_volta's csrc/attention.h. Writes to out."""
        head_size = query.shape[2]
        keys, values = cache.transpose(1, 2).split(head_size, dim=-1)
        descale = self.one.expand(lengths.shape[0], keys.shape[2])
        self.module.unified_attention(
            q=query,
            k=keys,
            v=values,
            out=out,
            cu_seqlens_q=query_start,
            max_seqlen_q=most_queries,
            seqused_k=lengths,
            max_seqlen_k=block_table.shape[1] * keys.shape[1],
            softmax_scale=scale,
            causal=True,
            alibi_slopes=slopes,
            use_alibi_sqrt=False,
            window_size=(window - 1, 0) if window else (-1, -1),
            block_table=block_table,
            softcap=soft_cap,
            q_descale=None,
            k_descale=descale,
            v_descale=descale,
            seq_threshold_3D=self.threshold,
            num_par_softmax_segments=SEGMENTS,
            softmax_segm_output=self.segment_output,
            softmax_segm_max=self.segment_max,
            softmax_segm_expsum=self.segment_sum,
            sinks=sinks,
            output_scale=None,
            mm_prefix_range=ranges,
            kv_quant_mode=KVQuantMode.NONE,
            mm_prefix_clamp_sliding_window=clamp_ranges,
        )
