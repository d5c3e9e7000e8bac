"""FP8: E4M3 codes with a scale for the tensor, each row, each group of columns or each block.

The scale multiplies the codes in all of them, also where it is called `weight_scale_inv`.
Sources: https://github.com/vllm-project/vllm/tree/v0.27.1/vllm/model_executor/layers/quantization (fp8.py,
fbgemm_fp8.py, modelopt.py); https://github.com/vllm-project/compressed-tensors (quantization/quant_args.py);
https://huggingface.co/deepseek-ai/DeepSeek-V3/blob/main/inference/kernel.py (weight_dequant).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy

from onecat.checkpoints import WeightScheme
from onecat.nvfp4.codec import E4M3_MAX, Codec, ScaledCodes
from onecat.nvfp4.dequantisation.modules import Module, elements
from onecat.nvfp4.dequantisation.weights import Scaled, Unreadable, damaged, finite, in_range
from onecat.nvfp4.rewriting import SourceFiles
from onecat.nvfp4.tensor_types import NUMPY_TYPES, Array

SCALES = ("weight_scale", "weight_scale_inv", "scale")
"""Names of the one scale of a weight; the last is DeepSeek V4's."""
SCALE_DTYPES = frozenset({"F32", "BF16", "F16", "F8_E8M0"})
USUAL_BLOCK = (128, 128)
"""[out, in] where no block is stated: what all public checkpoints have."""


@dataclass(frozen=True)
class Lying:
    """How a scale lies over a matrix. shape: that it takes for the codec. block: as `Codec.fp8_values` wants it."""

    scheme: str
    shape: tuple[int, ...]
    block: tuple[int, int] | None


@dataclass(frozen=True)
class Fp8Weight:
    """codes, scale: names of tensors. experts: matrices along the first axis, None for one matrix.

    shared: all experts have one scale. zero_point: a tensor that must be zero, as it is in symmetric schemes.
    """

    stem: str
    shape: tuple[int, ...]
    codes: str
    scale: str
    lying: Lying
    experts: int | None = None
    shared: bool = False
    zero_point: str | None = None

    @property
    def scheme(self) -> str:
        return self.lying.scheme

    @property
    def reads(self) -> tuple[str, ...]:
        return self.scale, *(() if self.zero_point is None else (self.zero_point,)), self.codes

    def values(self, source: SourceFiles, codec: Codec, dtype: str) -> Array:
        scale = source.read(self.scale).astype(numpy.float32)
        if not numpy.isfinite(scale).all():
            wrong = int((~numpy.isfinite(scale)).sum())
            raise damaged(source, f"{wrong} of {scale.size} numbers of {self.scale} are NaN or infinite")
        if self.zero_point is not None and source.read(self.zero_point).astype(numpy.float32).any():
            raise damaged(source, f"{self.zero_point} is not 0, and FP8 weights are symmetric")
        codes = source.read(self.codes)
        finite(source, self.codes, codes)
        bound = E4M3_MAX * float(numpy.abs(scale).max(initial=0))
        if self.experts is None:
            tensors = ScaledCodes(codes, scale.reshape(self.lying.shape))
            return in_range(self.stem, Scaled(codec.fp8_values(tensors, self.lying.block, dtype), bound))
        made = numpy.empty(self.shape, NUMPY_TYPES[dtype])
        for expert in range(self.experts):
            own = scale if self.shared else scale[expert]
            tensors = ScaledCodes(codes[expert], own.reshape(self.lying.shape))
            made[expert] = codec.fp8_values(tensors, self.lying.block, dtype)
        return in_range(self.stem, Scaled(made, bound))


def recognise(module: Module, claimed: WeightScheme | None) -> Fp8Weight | Unreadable | None:
    """The weight, if it is FP8; Unreadable when it is, and its tensors contradict each other.

    Parameters:
        claimed: what the configuration says of it, of which the block's size is used.
    """
    if module.data != "weight" or not module.parts["weight"].dtype.startswith("F8_E"):
        return None
    if module.parts["weight"].dtype != "F8_E4M3":
        return Unreadable(f"fp8 of type {module.parts['weight'].dtype}", "only F8_E4M3 is read")
    present = [part for part in SCALES if part in module.parts]
    further = module.scales - set(present) - {"weight_zero_point", "weight_shape"}
    if len(present) != 1 or further:
        return Unreadable("fp8", _what_it_has(module, present, further))
    scale, shape = module.parts[present[0]], module.parts["weight"].shape
    if scale.dtype not in SCALE_DTYPES:
        return Unreadable("mxfp8" if scale.dtype == "U8" else "fp8", f"its scales have the type {scale.dtype}")
    block = claimed.block if claimed is not None else None
    experts = shape[0] if len(shape) == 3 else None
    shared = elements(scale) == 1
    if experts is not None and not shared and scale.shape[:1] != (experts,):
        return Unreadable("fp8", f"scales {list(scale.shape)} are not of {experts} experts")
    own = scale.shape if experts is None or shared else scale.shape[1:]
    lying = _lie(shape[-2:], own, block, present[0]) if len(shape) in (2, 3) else None
    if lying is None:
        return Unreadable("fp8", f"codes {list(shape)} and scales {list(scale.shape)} do not fit together")
    names = module.names
    return Fp8Weight(
        module.stem, shape, names["weight"], names[present[0]], lying, experts, shared, names.get("weight_zero_point")
    )


def _what_it_has(module: Module, scales: list[str], further: frozenset[str]) -> str:
    if not scales:
        return "it has no scale"
    return f"it has {', '.join(sorted({*scales[1:], *further}))} beside {scales[0]}"


def _lie(matrix: tuple[int, ...], scale: tuple[int, ...], stated: tuple[int, int] | None, part: str) -> Lying | None:
    """How a scale lies over [out, in]; None when it does not fit. ModelOpt writes blocks [rows, 1, columns, 1]."""
    rows, columns = matrix
    if len(scale) == 4 and scale[1] == scale[3] == 1:
        scale = (scale[0], scale[2])
    for block in (stated, USUAL_BLOCK if part != "weight_scale" else None):
        if block is not None and scale == _blocks(matrix, block):
            return Lying("fp8-block", scale, block)
    if all(each == 1 for each in scale):
        return Lying("fp8-tensor", (1,), None)
    if scale in ((rows,), (rows, 1)):
        return Lying("fp8-channel", (rows, 1), None)
    if scale == (1, columns):
        return Lying("fp8-channel", scale, (rows, 1))
    if scale == _blocks(matrix, USUAL_BLOCK):
        return Lying("fp8-block", scale, USUAL_BLOCK)
    if len(scale) == 2 and scale[0] == rows and columns % scale[1] == 0:
        return Lying("fp8-group", scale, (1, columns // scale[1]))
    return None


def _blocks(matrix: tuple[int, ...], block: tuple[int, int]) -> tuple[int, int]:
    return -(-matrix[0] // block[0]), -(-matrix[1] // block[1])
