"""What the table of tests/testbed/test_volta_gates.py asks vLLM; runs in the engine's interpreter.

A question is a function without arguments whose answer is a plain value: the name of a chosen class, a number, a list
of names. What vLLM refuses it raises, and the exception's text is the answer.
"""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Callable, Iterator
from typing import Any

Question = Callable[[], Any]


def all_questions() -> dict[str, Question]:
    """Every question by its name, `group/subject`."""
    groups = (dtypes, methods, schemes, linear, moe, attention, sampler, operators, adapters, collectives)
    return {f"{group.__name__}/{name}": question for group in groups for name, question in group()}


def dtypes() -> Iterator[tuple[str, Question]]:
    """Which type the weights of a bfloat16 checkpoint get, and what happens to one who insists on bfloat16."""
    import torch
    from vllm.config.model import _resolve_auto_dtype
    from vllm.platforms import current_platform

    def resolved(model_type: str) -> Question:
        return lambda: str(_resolve_auto_dtype(model_type, torch.bfloat16, is_pooling_model=False))

    for model_type in ("llama", "qwen3", "qwen3_moe", "gemma2", "gemma3", "gemma3_text", "gemma4", "glm4"):
        yield model_type, resolved(model_type)
    yield "bfloat16 requested", lambda: current_platform.check_if_supports_dtype(torch.bfloat16) or "accepted"


def methods() -> Iterator[tuple[str, Question]]:
    """The least compute capability of every quantisation method (major * 10 + minor)."""
    from vllm.model_executor.layers.quantization import QUANTIZATION_METHODS, get_quantization_config

    def minimum(name: str) -> Question:
        return lambda: get_quantization_config(name).get_min_capability()

    for name in QUANTIZATION_METHODS:
        yield name, minimum(name)


def schemes() -> Iterator[tuple[str, Question]]:
    """The least compute capability of every scheme of compressed-tensors and quark."""
    from vllm.model_executor.layers.quantization.compressed_tensors import schemes as compressed_tensors
    from vllm.model_executor.layers.quantization.quark import schemes as quark

    for module in (compressed_tensors, quark):
        for name in sorted(module.__all__):
            scheme = getattr(module, name)
            if "get_min_capability" in vars(scheme) and not scheme.__abstractmethods__:
                yield name, scheme.get_min_capability


def linear() -> Iterator[tuple[str, Question]]:
    """The kernel of a linear layer of 4096 x 4096 with float16 activations, per way to store its weight."""
    import torch
    import vllm.model_executor.kernels.linear as kernels
    from vllm.model_executor.layers.quantization.utils import quant_utils as keys
    from vllm.scalar_type import scalar_types

    half, shape = torch.float16, (4096, 4096)

    def mixed(weight_type: Any, group_size: int, zero_points: bool = False) -> Question:
        config = kernels.MPLinearLayerConfig(
            full_weight_shape=shape,
            partition_weight_shape=shape,
            weight_type=weight_type,
            act_type=half,
            group_size=group_size,
            zero_points=zero_points,
            has_g_idx=False,
        )
        return lambda: kernels.choose_mp_linear_kernel(config).__name__

    def scaled(activation: Any, weight: Any) -> Question:
        return lambda: (
            type(
                kernels.init_fp8_linear_kernel(activation, weight, half, half, shape, module_name="the layer")
            ).__name__
        )

    def int8(channelwise: bool, static: bool, symmetric: bool) -> Question:
        return lambda: type(kernels.init_int8_linear_kernel(channelwise, static, symmetric, "the layer")).__name__

    def named(choose: Callable[..., Any], *arguments: Any) -> Question:
        return lambda: type(choose(*arguments)).__name__

    yield "int4 group 128", mixed(scalar_types.uint4b8, 128)
    yield "int4 group 32", mixed(scalar_types.uint4b8, 32)
    yield "int4 channel", mixed(scalar_types.uint4b8, -1)
    yield "int4 zero points", mixed(scalar_types.uint4, 128, zero_points=True)
    yield "int8 weight only", mixed(scalar_types.uint8b128, 128)
    yield "int8 channel dynamic", int8(True, False, True)
    yield "int8 channel dynamic asymmetric", int8(True, False, False)
    yield "int8 tensor static", int8(False, True, True)
    yield "fp8 tensor", scaled(keys.kFp8StaticTensorSym, keys.kFp8StaticTensorSym)
    yield "fp8 channel", scaled(keys.kFp8DynamicTokenSym, keys.kFp8StaticChannelSym)
    yield "fp8 block", scaled(keys.kFp8Dynamic128Sym, keys.kFp8Static128BlockSym)
    for subject, weight in (
        ("tensor", keys.kFp8StaticTensorSym),
        ("channel", keys.kFp8StaticChannelSym),
        ("block", keys.kFp8Static128BlockSym),
    ):
        choose = kernels.init_wfp8_a16_linear_kernel
        yield (
            f"wfp8a16 {subject}",
            named(choose, weight, keys.kFp8DynamicTokenSym, shape, half, half, None, "the layer"),
        )
    yield "nvfp4", named(kernels.init_nvfp4_linear_kernel)
    yield "nvfp4 a16", named(kernels.init_nvfp4_linear_kernel, True)
    yield "mxfp4", named(kernels.init_mxfp4_linear_kernel, keys.kMxfp4Dynamic)
    yield "mxfp4 a16", named(kernels.init_mxfp4_linear_kernel)
    yield "mxfp8", named(kernels.init_mxfp8_linear_kernel)


def moe() -> Iterator[tuple[str, Question]]:
    """The experts' kernel of a mixture of 8 experts with float16 activations, per way to store their weights."""
    import torch
    from compressed_tensors.quantization import QuantizationArgs
    from vllm.config import VllmConfig, set_current_vllm_config
    from vllm.model_executor.layers.fused_moe.activation import MoEActivation
    from vllm.model_executor.layers.fused_moe.config import FusedMoEConfig, FusedMoEParallelConfig, RoutingMethodType
    from vllm.model_executor.layers.fused_moe.oracle import fp8, int8, int_wna16, mxfp4, mxfp8, nvfp4, unquantized
    from vllm.model_executor.layers.quantization.moe_wna16 import MoeWNA16Config
    from vllm.model_executor.layers.quantization.utils import quant_utils as keys

    config = FusedMoEConfig(
        num_experts=8,
        experts_per_token=2,
        hidden_dim=2048,
        intermediate_size=1024,
        num_local_experts=8,
        num_logical_experts=8,
        activation=MoEActivation.SILU,
        device="cpu",
        routing_method=RoutingMethodType.Renormalize,
        moe_parallel_config=FusedMoEParallelConfig.make_no_parallel(),
        in_dtype=torch.float16,
    )

    def chosen(select: Callable[..., tuple[Any, Any]], *arguments: Any) -> Question:
        def answer() -> str:
            backend, experts = select(dataclasses.replace(config), *arguments)
            return f"{backend.name}: {experts.__name__ if experts else None}"

        return answer

    def with_model(question: Question) -> Question:
        def answer() -> Any:
            vllm_config = VllmConfig()
            object.__setattr__(vllm_config, "model_config", types.SimpleNamespace(quantization_config=None))
            with set_current_vllm_config(vllm_config):
                return question()

        return answer

    group = QuantizationArgs(num_bits=4, type="int", strategy="group", group_size=128, symmetric=True)
    moe_wna16 = MoeWNA16Config.from_config(
        {"quant_method": "gptq", "bits": 4, "group_size": 128, "sym": True, "desc_act": False, "lm_head": False}
    )
    yield "unquantised", chosen(unquantized.select_unquantized_moe_backend)
    yield "fp8 tensor", chosen(fp8.select_fp8_moe_backend, keys.kFp8StaticTensorSym, keys.kFp8StaticTensorSym)
    yield "fp8 channel", chosen(fp8.select_fp8_moe_backend, keys.kFp8StaticChannelSym, keys.kFp8DynamicTokenSym)
    yield "fp8 block", chosen(fp8.select_fp8_moe_backend, keys.kFp8Static128BlockSym, keys.kFp8Dynamic128Sym)
    yield "nvfp4", chosen(nvfp4.select_nvfp4_moe_backend, keys.kNvfp4Static, keys.kNvfp4Dynamic)
    yield "nvfp4 a16", chosen(nvfp4.select_nvfp4_moe_backend, keys.kNvfp4Static, None)
    yield "int4 compressed-tensors", chosen(int_wna16.select_wna16_moe_backend, keys.kInt4Static, group, False, False)
    yield "int4 moe_wna16", chosen(int_wna16.select_wna16_moe_backend, keys.kInt4Static, moe_wna16, False, False)
    yield "int4 zero points", chosen(int_wna16.select_wna16_moe_backend, keys.kInt4StaticAsym, group, True, False)
    yield "int8", chosen(int8.select_int8_moe_backend)
    yield "mxfp4", with_model(chosen(mxfp4.select_mxfp4_moe_backend))
    yield "mxfp8", chosen(mxfp8.select_mxfp8_moe_backend)


def attention() -> Iterator[tuple[str, Question]]:
    """The attention backend, or why there is none; and whether its implementation accepts the cache's type."""
    import torch
    from vllm.platforms import current_platform
    from vllm.v1.attention.backends.fa_utils import get_flash_attn_version
    from vllm.v1.attention.backends.mla.prefill import selector as prefill
    from vllm.v1.attention.selector import AttentionSelectorConfig

    half = torch.float16

    def choose(**wanted: Any) -> str:
        given = {"head_size": 128, "dtype": half, "kv_cache_dtype": "auto", "block_size": None}
        config = AttentionSelectorConfig(**{**given, **wanted})
        return str(current_platform.get_attn_backend_cls(None, config, 32))

    def backend(**wanted: Any) -> Question:
        return lambda: choose(**wanted).rpartition(".")[2]

    def implementation(cache: str) -> Question:
        def answer() -> str:
            from vllm.utils.import_utils import resolve_obj_by_qualname

            chosen = resolve_obj_by_qualname(choose(kv_cache_dtype=cache))
            chosen.get_impl_cls()(32, 128, 0.1, 8, None, None, cache)
            return str(chosen.__name__)

        return answer

    for size in (64, 80, 96, 128, 192, 256, 512):
        yield f"head size {size}", backend(head_size=size)
    yield "float32", backend(dtype=torch.float32)
    yield "sinks", backend(has_sink=True)
    yield "sliding window", backend(has_sliding_window=True)
    yield "multimodal prefix", backend(use_mm_prefix=True)
    yield "encoder only", backend(attn_type="encoder_only")
    yield "MLA", backend(head_size=576, use_mla=True)
    yield "MLA sparse", backend(head_size=576, use_mla=True, use_sparse=True)
    for cache in ("float16", "bfloat16", "fp8", "fp8_e5m2", "turboquant_k8v4"):
        yield f"cache {cache}", implementation(cache)

    def mla_prefill() -> str:
        dimensions = prefill.MLADimensions(qk_nope_head_dim=128, qk_rope_head_dim=64, v_head_dim=128)
        capability = current_platform.get_device_capability()
        config = prefill.MLAPrefillSelectorConfig(dtype=half, mla_dimensions=dimensions)
        return prefill._auto_select_mla_prefill_backend(capability, config).__name__

    yield "MLA prefill", mla_prefill
    for size in (64, 72, 80, 128):
        yield f"vision head size {size}", lambda size=size: current_platform.get_vit_attn_backend(size, half).name
    yield "FlashAttention version", get_flash_attn_version


def sampler() -> Iterator[tuple[str, Question]]:
    """Whether tokens are drawn by FlashInfer."""
    from vllm.v1.sample.ops import topk_topp_sampler

    yield "FlashInfer", topk_topp_sampler.flashinfer_sampler_supported
    yield "forward", lambda: topk_topp_sampler.TopKTopPSampler().forward.__name__


def operators() -> Iterator[tuple[str, Question]]:
    """Which code an operator reaches that has more than one."""
    import torch
    from vllm import _custom_ops
    from vllm.config import VllmConfig, set_current_vllm_config
    from vllm.model_executor.layers.quantization import awq_triton
    from vllm.model_executor.layers.rotary_embedding.common import ApplyRotaryEmb

    def awq(operator: Callable[..., Any], *arguments: Any) -> Question:
        def answer() -> str:
            reached: list[str] = []
            kept = awq_triton.awq_gemm_triton, awq_triton.awq_dequantize_triton
            awq_triton.awq_gemm_triton = awq_triton.awq_dequantize_triton = lambda *_: reached.append("Triton")
            try:
                operator(*arguments)
            except RuntimeError as error:
                reached.append(str(error))
            finally:
                awq_triton.awq_gemm_triton, awq_triton.awq_dequantize_triton = kept
            return " ".join(reached)

        return answer

    packed = torch.zeros(128, 16, dtype=torch.int32)
    scales, zeros = torch.ones(1, 128, dtype=torch.float16), torch.zeros(1, 16, dtype=torch.int32)
    yield "awq_gemm", awq(_custom_ops.awq_gemm, torch.zeros(1, 128, dtype=torch.float16), packed, scales, zeros, 8)
    yield "awq_dequantize", awq(_custom_ops.awq_dequantize, packed, scales, zeros, 0, 0, 0)

    def rotary() -> str:
        with set_current_vllm_config(VllmConfig()):
            layer = ApplyRotaryEmb(enforce_enable=True)
        x, angles = torch.rand(1, 4, 2, 8), torch.rand(4, 4)
        native = layer.forward_native(x, angles.cos(), angles.sin())
        return "as native" if torch.equal(layer.forward_cuda(x, angles.cos(), angles.sin()), native) else "otherwise"

    yield "rotary embedding", rotary

    def emulated_nvfp4() -> str:
        from vllm.model_executor.layers.quantization.utils import nvfp4_emulation_utils as emulation

        generator = torch.Generator().manual_seed(0)
        x = torch.randn(4, 64, generator=generator)
        weight = torch.randint(0, 256, (32, 32), generator=generator).to(torch.uint8)
        codes = torch.arange(128, dtype=torch.uint8)[torch.randint(0, 127, (32, 4), generator=generator)]
        scales = codes.view(torch.float8_e4m3fn)
        result = emulation.run_nvfp4_emulations(x, torch.tensor(3.0), weight, scales, torch.tensor(0.25), swizzle=False)

        values = emulation.break_fp4_bytes(weight, torch.float32).view(32, 4, 16)
        weight_wanted = (values * (scales.float() * 0.25).unsqueeze(-1)).view(32, 64)
        x_scale = (3.0 * x.view(4, 4, 16).abs().amax(-1, keepdim=True) / 6).clamp(max=448).to(torch.float8_e4m3fn)
        rounded = emulation.cast_to_fp4((x.view(4, 4, 16) * (3.0 / x_scale.float())).clamp(-6, 6))
        x_wanted = (rounded * (x_scale.float() / 3.0)).view(4, 64)
        return "right" if torch.allclose(result, x_wanted @ weight_wanted.t(), rtol=1e-5, atol=1e-3) else "wrong"

    yield "emulated NVFP4", emulated_nvfp4

    def emulated_int4(dtype: torch.dtype) -> Question:
        from vllm.model_executor.layers.fused_moe.oracle import int_wna16

        def answer() -> list[str]:
            first, second = torch.zeros(2, 8, 64, dtype=torch.int32), torch.zeros(2, 4, 64, dtype=torch.int32)
            scales = torch.ones(2, 1, 64, dtype=dtype)
            weights = int_wna16._process_weights_emulation_gptq(first, second, scales, scales, None, None)[:2]
            return [str(weight.dtype) for weight in weights]

        return answer

    yield "emulated INT4 experts of float16", emulated_int4(torch.float16)
    yield "emulated INT4 experts of bfloat16", emulated_int4(torch.bfloat16)


def adapters() -> Iterator[tuple[str, Question]]:
    """What adds low-rank adapters to a layer."""
    from vllm.platforms import current_platform

    yield "LoRA", current_platform.get_punica_wrapper


def collectives() -> Iterator[tuple[str, Question]]:
    """Which all-reduce the platform offers."""
    from vllm.platforms import current_platform

    yield "custom all-reduce", current_platform.use_custom_allreduce
    yield "communicator", current_platform.get_device_communicator_cls
