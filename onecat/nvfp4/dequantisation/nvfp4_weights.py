"""NVFP4: two codes in a byte, an E4M3 scale for 16 of them, a float32 scale for all.

compressed-tensors names the tensors `weight_packed`, `weight_scale`, `weight_global_scale`, and stores the reciprocal
of the last; ModelOpt `weight`, `weight_scale`, `weight_scale_2`.
Sources: https://github.com/vllm-project/compressed-tensors (compressors/nvfp4), and its converter from ModelOpt's names
(entrypoints/convert/converters/modelopt_nvfp4.py); https://github.com/NVIDIA/Model-Optimizer,
modelopt/torch/export/quant_utils.py (maybe_transpose_expert_weight_dimensions: experts of Llama 4 and gpt-oss in one
tensor lie [experts, in, out]) and layer_utils.py (`pre_quant_scale`, which multiplies a linear module's input).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy

from onecat.nvfp4.codec import BLOCK, E2M1_MAX, Codec, Nvfp4
from onecat.nvfp4.dequantisation.modules import Module, elements
from onecat.nvfp4.dequantisation.weights import Scaled, Unreadable, damaged, finite, in_range
from onecat.nvfp4.rewriting import SourceFiles
from onecat.nvfp4.tensor_types import NUMPY_TYPES, Array


@dataclass(frozen=True)
class Nvfp4Weight:
    """packed, block_scale, tensor_scale: names of tensors. reciprocal: whether the last divides.

    The order of operations is that of the tools: block scale / scale of compressed-tensors, times it of ModelOpt.

    experts: matrices along the first axis, None for one matrix. transposed: they lie [in, out]. input_factor: the
    tensor that a module's input is multiplied with, None for none; it becomes part of the weight.
    """

    stem: str
    shape: tuple[int, ...]
    packed: str
    block_scale: str
    tensor_scale: str
    reciprocal: bool
    experts: int | None = None
    transposed: bool = False
    input_factor: str | None = None
    scheme: str = "nvfp4"

    @property
    def reads(self) -> tuple[str, ...]:
        further = () if self.input_factor is None else (self.input_factor,)
        return self.tensor_scale, self.block_scale, self.packed, *further

    def values(self, source: SourceFiles, codec: Codec, dtype: str) -> Array:
        scales = self._tensor_scales(source)
        block_scale = source.read(self.block_scale)
        finite(source, self.block_scale, block_scale)
        packed = source.read(self.packed)
        factor = None if self.input_factor is None else source.read(self.input_factor).astype(numpy.float32)
        largest = float(1 / scales.min() if self.reciprocal else scales.max())
        bound = E2M1_MAX * float(block_scale.astype(numpy.float32).max(initial=0)) * largest
        if factor is not None:
            bound *= float(numpy.abs(factor).max(initial=0))
        if self.experts is None:
            made = self._matrix(codec, Nvfp4(packed, block_scale), float(scales[0]), factor, dtype)
            return in_range(self.stem, Scaled(made, bound))
        made = numpy.empty(self.shape, NUMPY_TYPES[dtype])
        for expert in range(self.experts):
            own = float(scales[expert % scales.size])
            made[expert] = self._matrix(codec, Nvfp4(packed[expert], block_scale[expert]), own, factor, dtype)
        return in_range(self.stem, Scaled(made, bound))

    def _matrix(self, codec: Codec, tensors: Nvfp4, scale: float, factor: Array | None, dtype: str) -> Array:
        if self.transposed:
            tensors = Nvfp4(*(numpy.ascontiguousarray(each.T) for each in tensors))
        multiplier, divisor = (1.0, scale) if self.reciprocal else (scale, 1.0)
        if factor is None:
            made = codec.nvfp4_values(tensors, multiplier, dtype, divisor)
        else:
            exact = codec.nvfp4_values(tensors, multiplier, "F32", divisor)
            made = (exact * factor.reshape(-1)).astype(NUMPY_TYPES[dtype])
        return made.T if self.transposed else made

    def _tensor_scales(self, source: SourceFiles) -> Array:
        """As they are stored, float32: one, or one for each expert."""
        scales = source.read(self.tensor_scale).astype(numpy.float32).reshape(-1)
        wrong = ~numpy.isfinite(scales) | (scales <= 0 if self.reciprocal else scales < 0)
        if wrong.any():
            raise damaged(source, f"{self.tensor_scale} is {scales[wrong][0]}")
        return scales


TENSOR_SCALES = {"weight_packed": "weight_global_scale", "weight": "weight_scale_2"}
"""By the part that holds the codes."""


def recognise(module: Module) -> Nvfp4Weight | Unreadable | None:
    """The weight, if it is NVFP4; Unreadable when it is, and its tensors contradict each other."""
    data = module.data
    if data not in TENSOR_SCALES or module.parts[data].dtype != "U8" or TENSOR_SCALES[data] not in module.parts:
        return None
    further = module.scales - {"weight_scale", TENSOR_SCALES[data], "pre_quant_scale", "weight_shape"}
    if further:
        return Unreadable("nvfp4", f"it has {', '.join(sorted(further))} beside what NVFP4 has")
    if "weight_scale" not in module.parts or module.parts["weight_scale"].dtype != "F8_E4M3":
        return Unreadable("nvfp4", "it has no weight_scale of type F8_E4M3")
    packed, scale = module.parts[data].shape, module.parts["weight_scale"].shape
    laid = _plain_shape(packed, scale)
    if laid is None:
        return Unreadable("nvfp4", f"codes {list(packed)} and block scales {list(scale)} do not fit together")
    shape, transposed = laid
    experts = shape[0] if len(shape) == 3 else None
    into = shape[-2] if transposed else shape[-1]
    tensor_scales = module.parts[TENSOR_SCALES[data]]
    count = elements(tensor_scales)
    if count != 1 and count != experts:
        return Unreadable("nvfp4", f"{TENSOR_SCALES[data]} has {count} numbers, not one")
    factor = module.parts.get("pre_quant_scale")
    if factor is not None and elements(factor) != into:
        return Unreadable("nvfp4", f"pre_quant_scale {list(factor.shape)} is not of the {into} in_features")
    names = module.names
    return Nvfp4Weight(
        module.stem, shape, names[data], names["weight_scale"], names[TENSOR_SCALES[data]], data == "weight_packed",
        experts, transposed, names.get("pre_quant_scale"),
    )  # fmt: skip


def _plain_shape(packed: tuple[int, ...], scale: tuple[int, ...]) -> tuple[tuple[int, ...], bool] | None:
    """The shape of the plain weight, and whether its matrices lie [in, out]."""
    if len(packed) not in (2, 3) or len(packed) != len(scale) or packed[:-2] != scale[:-2]:
        return None
    *outer, rows, columns = packed
    if scale[-2] == rows and columns * 2 == scale[-1] * BLOCK:
        return (*outer, rows, columns * 2), False
    if outer and scale[-1] == columns and rows * 2 == scale[-2] * BLOCK:
        return (*outer, rows * 2, columns), True
    return None
