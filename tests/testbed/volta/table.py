"""What vLLM decides on compute capability 7.0, what it should decide, and what then runs there.

One row per question of `questions`. Sources of the numbers: the tree itself; what a kernel needs is measured by
`compile_kernels` (Triton) or stands beside the row.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Refused:
    """An exception whose text holds all of `reasons`."""

    reasons: tuple[str, ...]

    def matches(self, answer: dict[str, Any]) -> bool:
        """Whether vLLM refuses with these reasons."""
        return all(reason in answer.get("refused", "") for reason in self.reasons) and "refused" in answer


@dataclass(frozen=True)
class Row:
    """One decision on 7.0.

    question: its name. upstream: the pristine source's answer. series: the patched source's. volta: the same with the
    plugin's kernels registered. Each an answer or `Refused`.
    runs: what computes `series` on 7.0; "Triton: NAME" is a kernel of compile_kernels that must compile and fit.
    fails: a kernel of compile_kernels that upstream chooses and that must fail there, "" if it chooses none.
    """

    question: str
    upstream: Any
    series: Any
    volta: Any
    runs: str
    fails: str


def row(question: str, upstream: Any, *, series: Any = None, volta: Any = None, runs: str = "", fails: str = "") -> Row:
    """A row; what is not given is as before."""
    series = upstream if series is None else series
    return Row(question, upstream, series, series if volta is None else volta, runs, fails)


def refused(*reasons: str) -> Refused:
    """A refusal for these reasons."""
    return Refused(reasons)


FP8, NVFP4 = "VoltaFp8LinearKernel", "VoltaNvFp4LinearKernel"
TRITON = "TritonAttentionBackend"
FROM_7_5 = refused("7.5")
NO_FP8_LINEAR = refused("FP8 Marlin requires compute capability 7.5", "requires compute capability 89 and above")
NO_INT8 = refused("CutlassInt8", "TritonInt8", "requires compute capability 75 and above", "only supported on SM75+")
NO_MLA = refused("the Triton MLA decode kernel requires compute capability 8.0", "VLLM_MLA_DISABLE=1")
NO_MODULE = refused("ModuleNotFoundError")
BEHIND_75, BEHIND_80 = "PyTorch; its methods and schemes ask for 7.5", "PyTorch; its methods and schemes ask for 8.0"

DTYPES = (
    *(row(f"dtypes/{name}", "torch.float16") for name in ("llama", "qwen3", "qwen3_moe", "gemma4")),
    *(row(f"dtypes/{name}", "torch.float32") for name in ("gemma2", "gemma3", "gemma3_text", "glm4")),
    # Kernels of bfloat16 return without having written their output below 8.0 (csrc/fused_qknorm_rope_kernel.cu).
    row("dtypes/bfloat16 requested", refused("compute capability of at least 8.0", "compute capability 7.0")),
)

METHODS = (
    *(row(f"methods/{name}", 60) for name in ("auto_gptq", "gptq", "gptq_marlin", "inc")),
    *(row(f"methods/{name}", 70) for name in ("compressed-tensors", "bitsandbytes", "quark", "moe_wna16")),
    *(row(f"methods/{name}", 75, series=70) for name in ("awq", "auto_awq", "awq_marlin")),
    *(row(f"methods/{name}", 75, volta=70) for name in ("fp8", "modelopt_fp4", "modelopt_mixed", "deepseek_v4_fp8")),
    row("methods/modelopt", 80, volta=70),
    *(row(f"methods/{name}", 75) for name in ("humming", "torchao", "online", "nvfp4_per_token")),
    *(row(f"methods/{name}", 75) for name in ("fp8_per_tensor", "fp8_per_block", "fp8_per_channel")),
    row("methods/int8_per_channel_weight_only", 75),
    *(row(f"methods/{name}", 80) for name in ("fbgemm_fp8", "modelopt_mxfp8", "experts_int8")),
    *(row(f"methods/{name}", 80) for name in ("mxfp4", "gpt_oss_mxfp4", "mxfp8")),
    row("methods/fp_quant", 100),
)
ADDED_METHODS = ("methods/quasar_nvfp4",)

SCHEMES = (
    row("schemes/CompressedTensorsW4A4Fp4", 75, volta=70),
    row("schemes/CompressedTensorsW8A16Fp8", 75, volta=70),
    row("schemes/CompressedTensorsWNA16", 75, series=70),
    *(row(f"schemes/CompressedTensors{name}", 75) for name in ("W8A8Int8", "W8A8Mxfp8", "WNA4Int", "WNA8Int")),
    row("schemes/CompressedTensorsWNA8O8Int", 70),
    row("schemes/CompressedTensorsW4A8Int", 1),
    row("schemes/CompressedTensorsW4A4Mxfp4", 80),
    row("schemes/CompressedTensorsW4A8Fp8", 90),
    row("schemes/CompressedTensorsW8A8Fp8", 89),
    row("schemes/QuarkNVFP4", 75),
    row("schemes/QuarkW8A8Int8", 75),
    row("schemes/QuarkW8A8Fp8", 89),
    *(row(f"schemes/{name}", 70) for name in ("QuarkOCP_MX", "QuarkW4A8_MXFP4_FP8")),
)

EXLLAMA = "CUDA: csrc/quantization/gptq/q_gemm.cu, SIMT and cuBLAS, minimum 6.0"
LINEAR = (
    row("linear/int4 group 128", "ExllamaLinearKernel", runs=EXLLAMA),
    row("linear/int4 group 32", "ExllamaLinearKernel", runs=EXLLAMA),
    row("linear/int8 weight only", "ExllamaLinearKernel", runs=EXLLAMA),
    row("linear/int4 channel", "TritonW4A16LinearKernel", runs="Triton: int4 linear"),
    row("linear/int4 zero points", "TritonW4A16LinearKernel", runs="Triton: int4 linear"),
    *(
        row(f"linear/int8 {name}", "CutlassInt8ScaledMMLinearKernel", series=NO_INT8, fails="int8 linear")
        for name in ("channel dynamic", "channel dynamic asymmetric", "tensor static")
    ),
    *(
        row(f"linear/fp8 {name}", "CutlassFP8ScaledMMLinearKernel", series=NO_FP8_LINEAR, volta=FP8)
        for name in ("tensor", "channel")
    ),
    row(
        "linear/fp8 block",
        "TritonFp8BlockScaledMMKernel",
        series=refused("TritonFp8BlockScaledMMKernel requires compute capability 89 and above"),
        volta=FP8,
        fails="fp8 block linear",
    ),
    *(row(f"linear/wfp8a16 {name}", FROM_7_5, volta=FP8) for name in ("tensor", "channel", "block")),
    row("linear/nvfp4", "EmulationNvFp4LinearKernel", volta=NVFP4, runs="PyTorch", fails="nvfp4 emulation"),
    row(
        "linear/nvfp4 a16",
        refused("Marlin FP4 not available"),
        series=refused("Marlin FP4 requires CUDA and compute capability 75 and above"),
        volta=NVFP4,
    ),
    row("linear/mxfp4", "EmulationMxfp4LinearKernel", runs=BEHIND_80),
    row("linear/mxfp4 a16", "EmulationMxfp4LinearKernel", runs=BEHIND_80),
    row("linear/mxfp8", "EmulationMxfp8LinearKernel", runs=BEHIND_75),
)

MOE = (
    row("moe/unquantised", "TRITON: TritonExperts", runs="Triton: experts"),
    *(
        row(
            f"moe/fp8 {name}",
            refused("No FP8 MoE backend"),
            series=refused("No FP8 MoE backend", "MARLIN", "of compute capability 7.0"),
        )
        for name in ("tensor", "channel", "block")
    ),
    row(
        "moe/nvfp4",
        "EMULATION: Nvfp4QuantizationEmulationTritonExperts",
        series=refused("'MARLIN'", "of compute capability 7.0", "requires compute capability 89 and above"),
        fails="nvfp4 emulation",
    ),
    row(
        "moe/nvfp4 a16",
        refused("No NvFp4 MoE backend"),
        series=refused("'MARLIN'", "of compute capability 7.0", "requires compute capability 89 and above"),
    ),
    row("moe/int4 compressed-tensors", "TRITON: TritonWNA16Experts", runs="Triton: int4 experts"),
    row("moe/int4 moe_wna16", "TRITON: TritonWNA16Experts", runs="Triton: int4 experts"),
    row("moe/int4 zero points", "EMULATION: Int4EmulationTritonExperts", runs="Triton: experts"),
    row("moe/int8", refused("No Int8 MoE backend"), series=refused("No Int8 MoE backend", "of compute capability 7.0")),
    row("moe/mxfp4", "EMULATION: OCP_MXQuantizationEmulationTritonExperts", runs=BEHIND_80),
    row("moe/mxfp8", "EMULATION: Mxfp8EmulationTritonExperts", runs=BEHIND_75),
)

BY_TRITON = "Triton: attention prefill, attention decode, cache update"
ATTENTION = (
    *(row(f"attention/head size {size}", TRITON, runs=BY_TRITON) for size in (64, 80, 96, 128, 192, 256, 512)),
    *(
        row(f"attention/{name}", TRITON, runs=BY_TRITON)
        for name in ("float32", "sinks", "sliding window", "multimodal prefix", "encoder only", "cache float16")
    ),
    row("attention/MLA", "TritonMLABackend", series=NO_MLA, fails="MLA decode"),
    row("attention/MLA sparse", refused("compute capability not supported")),
    row("attention/MLA prefill", "FlashAttnPrefillBackend", series=refused("compute capability 7.0 not supported")),
    row("attention/cache bfloat16", refused("compute capability 7.0", "requires SM80+")),
    row("attention/cache fp8", refused("compute capability 7.0", "requires SM89+")),
    row("attention/cache fp8_e5m2", refused("compute capability 7.0", "requires SM89+")),
    row("attention/cache turboquant_k8v4", "TurboQuantAttentionBackend", runs="Triton: turboquant"),
    *(row(f"attention/vision head size {size}", "TORCH_SDPA", runs="PyTorch") for size in (64, 72, 80, 128)),
    row("attention/FlashAttention version", None),
)

REST = (
    row("sampler/FlashInfer", NO_MODULE, series=False, runs="Triton: sampling"),
    row("sampler/forward", NO_MODULE, series="forward_native", runs="Triton: sampling"),
    row("operators/awq_gemm", "the CUDA kernel of AWQ was reached", series="Triton", runs="Triton: awq"),
    row("operators/awq_dequantize", "the CUDA kernel of AWQ was reached", series="Triton", runs="Triton: awq"),
    row("operators/rotary embedding", NO_MODULE, series="as native", runs="PyTorch"),
    row(
        "operators/emulated NVFP4", refused("CompilationError"), series="right", runs="PyTorch", fails="nvfp4 emulation"
    ),
    row(
        "operators/emulated INT4 experts of float16",
        ["torch.bfloat16", "torch.bfloat16"],
        series=["torch.float16", "torch.float16"],
        runs="Triton: experts",
    ),
    row("operators/emulated INT4 experts of bfloat16", ["torch.bfloat16", "torch.bfloat16"]),
    row("adapters/LoRA", "vllm.lora.punica_wrapper.punica_gpu.PunicaWrapperGPU", runs="Triton: lora"),
    # csrc/custom_all_reduce.cu has float16 and float32 for 7.0; what it needs is peer access, not a capability.
    row("collectives/custom all-reduce", True, runs="CUDA: csrc/custom_all_reduce.cu"),
    row(
        "collectives/communicator",
        "vllm.distributed.device_communicators.cuda_communicator.CudaCommunicator",
        runs="NCCL, and CUDA: csrc/custom_all_reduce.cu",
    ),
)

TABLE = {each.question: each for each in (*DTYPES, *METHODS, *SCHEMES, *LINEAR, *MOE, *ATTENTION, *REST)}

# What the series repairs on every GPU: upstream's answers there are those of the same faults.
REPAIRED_EVERYWHERE = {"operators/emulated INT4 experts of float16"}
REPAIRED_BELOW_8_9 = {"operators/emulated NVFP4"}
