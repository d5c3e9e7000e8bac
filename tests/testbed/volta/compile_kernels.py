"""Compiles Triton kernels for one device: `python compile_kernels.py DOCUMENT`, JSON on standard output.

Nothing is launched: vLLM's own wrappers choose grids, tiles and types for tensors on the CPU, and the launch becomes a
compilation down to the machine code of ptxas.

DOCUMENT (JSON): capability ([7, 0]), kernels (names of `KERNELS`).
Answers: per name a list of {"kernel", "shared_memory" (bytes), "machine_code" (bytes)} or of {"kernel", "failed"}.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

import fake_cuda  # type: ignore[import-not-found]


def main() -> None:
    """Write what became of each kernel."""
    request = json.loads(sys.argv[1])
    output, sys.stdout = sys.stdout, sys.stderr  # vLLM's log goes to standard output
    fake_cuda.install(fake_cuda.DEVICES[tuple(request["capability"])], flash_attention=False)
    compiled: list[dict[str, Any]] = []
    compile_instead_of_launching(compiled)
    from vllm.config import VllmConfig, set_current_vllm_config

    answers = {}
    with set_current_vllm_config(VllmConfig()):
        for name in request["kernels"]:
            compiled.clear()
            KERNELS[name]()
            answers[name] = list(compiled)
    json.dump(answers, output)


def compile_instead_of_launching(compiled: list[dict[str, Any]]) -> None:
    """Let every launch of a Triton kernel end in its compilation, noted in `compiled`."""
    from triton.runtime.jit import JITFunction

    launch = JITFunction.run

    def compile_only(self: Any, *arguments: Any, grid: Any = None, warmup: bool = False, **options: Any) -> Any:
        name = self.fn.__name__
        try:
            kernel = launch(self, *arguments, grid=(1,), warmup=True, **options)
        except Exception as error:  # noqa: BLE001
            cause = error
            while cause.__cause__ is not None:
                cause = cause.__cause__  # type: ignore[assignment]
            compiled.append({"kernel": name, "failed": f"{type(cause).__name__}: {cause}"})
            return None
        size = len(kernel.asm["cubin"])
        compiled.append({"kernel": name, "shared_memory": kernel.metadata.shared, "machine_code": size})
        return kernel

    JITFunction.run = compile_only


def attention(decode: bool) -> None:
    """Llama's shape: 32 heads of 128 on 8 of the cache, float16."""
    import torch
    import triton
    from vllm.v1.attention.ops.triton_unified_attention import unified_attention

    half, heads, size, segments = torch.float16, 32, 128, 16
    tokens = 2 if decode else 4
    query = torch.zeros(tokens, heads, size, dtype=half)
    cache = torch.zeros(8, 16, 8, size, dtype=half)
    unified_attention(
        query,
        cache,
        torch.zeros_like(cache),
        torch.zeros_like(query),
        torch.tensor([0, tokens // 2, tokens], dtype=torch.int32),
        tokens // 2,
        torch.tensor([20, 20], dtype=torch.int32),
        20,
        0.1,
        True,
        (-1, -1),
        torch.zeros(2, 4, dtype=torch.int32),
        0.0,
        None,
        torch.ones(1),
        torch.ones(1),
        seq_threshold_3D=16,
        num_par_softmax_segments=segments,
        softmax_segm_output=torch.zeros(128, heads, segments, triton.next_power_of_2(size)),
        softmax_segm_max=torch.zeros(128, heads, segments),
        softmax_segm_expsum=torch.zeros(128, heads, segments),
    )


def cache_update() -> None:
    """Keys and values into the cache."""
    import torch
    from vllm.v1.attention.ops.triton_reshape_and_cache_flash import triton_reshape_and_cache_flash

    key, cache = torch.zeros(4, 8, 128, dtype=torch.float16), torch.zeros(8, 16, 8, 128, dtype=torch.float16)
    slots, one = torch.zeros(4, dtype=torch.long), torch.ones(1)
    triton_reshape_and_cache_flash(key, key.clone(), cache, cache.clone(), slots, "auto", one, one)


def mla_decode() -> None:
    """DeepSeek's latent attention: 512 + 64, 16 heads."""
    import torch
    from vllm.v1.attention.ops.triton_decode_attention import decode_attention_fwd

    query = torch.zeros(2, 16, 576, dtype=torch.float16)
    cache = torch.zeros(8, 16, 1, 576, dtype=torch.float16)
    decode_attention_fwd(
        query,
        cache,
        cache[..., :512],
        torch.zeros(2, 16, 512, dtype=torch.float16),
        torch.zeros(2, 16, dtype=torch.float16),
        torch.zeros(2, 4, dtype=torch.int32),
        torch.tensor([20, 20], dtype=torch.int32),
        torch.zeros(2, 16, 4, 513),
        4,
        0.1,
        16,
        is_mla=True,
    )


def turboquant() -> None:
    """The cache of 8-bit keys and 4-bit values: writing it and attending to it."""
    import torch
    from vllm.v1.attention.ops.triton_turboquant_decode import triton_turboquant_decode_attention
    from vllm.v1.attention.ops.triton_turboquant_store import triton_turboquant_store

    half, heads, size = torch.float16, 8, 128
    key_bytes, value_bytes = size, size // 2 + 4
    key = torch.zeros(4, heads, size, dtype=half)
    cache = torch.zeros(8, 16, heads, key_bytes + value_bytes, dtype=torch.uint8)
    rotation, one = torch.eye(size), torch.ones(15)
    slots = torch.zeros(4, dtype=torch.int32)
    triton_turboquant_store(key, key.clone(), cache, slots, rotation, one, 4, key_bytes, 4, key_fp8=True)
    triton_turboquant_decode_attention(
        torch.zeros(2, 32, size, dtype=half),
        cache,
        torch.zeros(2, 4, dtype=torch.int32),
        torch.tensor([20, 20], dtype=torch.int32),
        rotation,
        torch.ones(16),
        0.1,
        4,
        key_bytes,
        4,
        key_fp8=True,
        PiT=rotation,
    )


def experts() -> None:
    """Unquantised experts, float16."""
    import torch
    import triton.language as tl
    from vllm.model_executor.layers.fused_moe import fused_moe

    half, count = torch.float16, torch.int32
    fused_moe.invoke_fused_moe_triton_kernel(
        torch.zeros(16, 256, dtype=half),
        torch.zeros(8, 512, 256, dtype=half),
        torch.zeros(16, 2, 512, dtype=half),
        None,
        None,
        torch.zeros(16, 2),
        torch.zeros(256, dtype=count),
        torch.zeros(16, dtype=count),
        torch.zeros(1, dtype=count),
        False,
        2,
        {"BLOCK_SIZE_M": 16, "BLOCK_SIZE_N": 64, "BLOCK_SIZE_K": 64, "GROUP_SIZE_M": 1, "SPLIT_K": 1},
        tl.float16,
        *(False,) * 5,
    )


def int4_experts() -> None:
    """Experts of 4-bit integers in groups of 128."""
    import torch
    import triton.language as tl
    from vllm.model_executor.layers.fused_moe import fused_moe

    half, count = torch.float16, torch.int32
    fused_moe.invoke_fused_moe_wna16_triton_kernel(
        torch.zeros(16, 256, dtype=half),
        torch.zeros(8, 512, 128, dtype=torch.uint8),
        torch.zeros(16, 2, 512, dtype=half),
        torch.zeros(8, 512, 2, dtype=half),
        None,
        torch.zeros(16, 2),
        torch.zeros(256, dtype=count),
        torch.zeros(16, dtype=count),
        torch.zeros(1, dtype=count),
        False,
        2,
        {"BLOCK_SIZE_M": 16, "BLOCK_SIZE_N": 64, "BLOCK_SIZE_K": 64, "GROUP_SIZE_M": 1, "SPLIT_K": 1},
        tl.float16,
        use_int8_w8a16=False,
        use_int4_w4a16=True,
        block_shape=[0, 128],
    )


def int4_linear() -> None:
    """The Triton kernel for 4-bit weights with zero points."""
    import torch
    from vllm.model_executor.kernels.linear.mixed_precision.triton_w4a16 import triton_w4a16_gemm

    half, packed = torch.float16, torch.int32
    weight, scales = torch.zeros(512, 32, dtype=packed), torch.zeros(4, 256, dtype=half)
    triton_w4a16_gemm(torch.zeros(8, 512, dtype=half), weight, scales, torch.zeros(4, 32, dtype=packed), 128)


def awq() -> None:
    """What ops.awq_gemm and ops.awq_dequantize come to below 7.5."""
    import torch
    from vllm import _custom_ops

    half, packed = torch.float16, torch.int32
    weight, zeros = torch.zeros(512, 32, dtype=packed), torch.zeros(4, 32, dtype=packed)
    scales = torch.zeros(4, 256, dtype=half)
    _custom_ops.awq_gemm(torch.zeros(8, 512, dtype=half), weight, scales, zeros, 8)
    _custom_ops.awq_dequantize(weight, scales, zeros, 0, 0, 0)


def sampling() -> None:
    """Top-k and top-p over a vocabulary of 151936."""
    import torch
    from vllm.v1.sample.ops.topk_topp_triton import apply_top_k_top_p_triton

    top_k, top_p = torch.full((4,), 20, dtype=torch.int32), torch.full((4,), 0.9)
    apply_top_k_top_p_triton(torch.zeros(4, 151936), top_k, top_p)


def fp8_block_linear() -> None:
    """FP8 in blocks of 128 x 128."""
    import torch
    from vllm.model_executor.layers.quantization.utils.fp8_utils import w8a8_triton_block_scaled_mm

    fp8 = torch.float8_e4m3fn
    activation, weight = torch.zeros(8, 512, dtype=fp8), torch.zeros(256, 512, dtype=fp8)
    w8a8_triton_block_scaled_mm(activation, weight, torch.zeros(8, 4), torch.zeros(2, 4), [128, 128], torch.float16)


def int8_linear() -> None:
    """INT8 weights and activations."""
    import torch
    from vllm.model_executor.layers.quantization.compressed_tensors.triton_scaled_mm import triton_scaled_mm

    activation, weight = torch.zeros(16, 256, dtype=torch.int8), torch.zeros(256, 256, dtype=torch.int8)
    triton_scaled_mm(activation, weight, torch.ones(16, 1), torch.ones(256, 1), torch.float16)


def nvfp4_emulation() -> None:
    """The Triton kernels with which NVFP4 is emulated from 8.9 on."""
    import torch
    from vllm.model_executor.layers.quantization.utils import nvfp4_emulation_utils as emulation

    weight, scales = torch.zeros(256, 128, dtype=torch.uint8), torch.zeros(256, 16, dtype=torch.float8_e4m3fn)
    emulation._triton_dequantize_nvfp4(weight, scales, torch.ones(1), torch.float16)
    emulation._triton_nvfp4_quant_dequant(torch.zeros(4, 256, dtype=torch.float16), torch.ones(1), 16)


def lora() -> None:
    """A rank of 16 beside a layer of 4096 x 4096, while few and while many tokens are read."""
    import torch
    from vllm.lora.ops.triton_ops.lora_expand_op import _lora_expand
    from vllm.lora.ops.triton_ops.lora_shrink_op import _lora_shrink

    half, size, rank = torch.float16, 4096, 16
    first, second = torch.zeros(2, rank, size, dtype=half), torch.zeros(2, size, rank, dtype=half)
    for tokens in (4, 512):
        inputs, inner = torch.zeros(tokens, size, dtype=half), torch.zeros(1, tokens, rank)
        placed = (
            torch.zeros(tokens, dtype=torch.int32),
            torch.arange(tokens, dtype=torch.int32),
            torch.tensor([tokens, 0, 0], dtype=torch.int32),
            torch.tensor([0, tokens, tokens, tokens], dtype=torch.int32),
            torch.tensor([0, -1, -1], dtype=torch.int32),
            torch.tensor([False]),
            torch.tensor([1], dtype=torch.int32),
        )
        _lora_shrink(inputs, [first], inner, *placed, 1.0)
        _lora_expand(inner, [second], inputs, *placed, 0, True)


KERNELS: dict[str, Callable[[], None]] = {
    "attention prefill": lambda: attention(decode=False),
    "attention decode": lambda: attention(decode=True),
    "cache update": cache_update,
    "MLA decode": mla_decode,
    "turboquant": turboquant,
    "experts": experts,
    "int4 experts": int4_experts,
    "int4 linear": int4_linear,
    "awq": awq,
    "sampling": sampling,
    "lora": lora,
    "fp8 block linear": fp8_block_linear,
    "int8 linear": int8_linear,
    "nvfp4 emulation": nvfp4_emulation,
}


if __name__ == "__main__":
    main()
