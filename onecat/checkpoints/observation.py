"""How a module's weight is stored in truth, told from its tensors alone."""

from __future__ import annotations

import math
from dataclasses import dataclass

from onecat.checkpoints.modules import Module
from onecat.checkpoints.quantization import WeightScheme
from onecat.checkpoints.quantization.schemes import MX_GROUP, NVFP4_GROUP
from onecat.checkpoints.tensors import StoredTensors

FLOATS = frozenset({"F64", "F32", "F16", "BF16"})
FP8 = frozenset({"F8_E4M3", "F8_E5M2", "F8_E4M3FNUZ", "F8_E5M2FNUZ"})
INT32_BITS = 32


@dataclass(frozen=True, slots=True)
class Observed:
    """A weight as it is stored.

    name: of the scheme (`nvfp4`, `fp8-block`, `int4`, ...; `packed` when codes cannot be told), None for a weight as it
    was. shape: of the weight, packed elements counted, as [..., out_features, in_features].
    group_size, block: from the shape of the scales. container: whose names the tensors have, None when several share
    them. missing: tensors without which it cannot be read. scale_shape: of blocks.
    """

    name: str | None
    shape: tuple[int, ...]
    dtype: str
    group_size: int | None = None
    block: tuple[int, int] | None = None
    scale_dtype: str | None = None
    container: str | None = None
    missing: tuple[str, ...] = ()
    scale_shape: tuple[int, ...] = ()

    @property
    def elements(self) -> int:
        return math.prod(self.shape)


def observe(module: Module, claimed: WeightScheme | None = None) -> Observed | None:
    """How a module is stored; None when it has no tensor with elements.

    Parameters:
        claimed: tells how many elements an int32 holds, which the tensors do not.
    """
    data = module.data
    if data is None:
        return None
    parts = module.parts
    if "qweight" in parts:
        return _transposed(module, claimed)
    if "blocks" in parts:
        *outer, blocks, inside = data.shape or (0, 0)
        missing = () if "scales" in parts else ("_scales",)
        return Observed("mxfp4", (*outer, blocks * inside * 2), data.dtype, MX_GROUP, None, "U8", "mxfp4", missing)
    if "quant_state" in parts or "absmax" in parts:
        return Observed(
            "4-bit", (data.elements // max(1, data.count) * 2,), data.dtype, None, None, None, "bitsandbytes"
        )
    if "weight_packed" in parts:
        return _packed(module, claimed)
    if data.dtype in FP8:
        return _fp8(module, claimed)
    if "embedding_quantized" in parts or "input_activation_scale" in parts:
        return _rows(module, claimed)
    if data.dtype in ("U8", "I8", "I32", "U32", "F4") and len(data.shape) >= 2:
        return _bytes(module)
    return Observed(None, data.shape, data.dtype)


def _scale_name(module: Module) -> str | None:
    return next((name for name in ("weight_scale", "weight_scale_inv", "scale", "SCB") if name in module.parts), None)


def _packed(module: Module, claimed: WeightScheme | None) -> Observed:
    """compressed-tensors: bytes of two codes each, or int32 of as many as the bits let it."""
    data, scale = module.parts["weight_packed"], module.parts.get("weight_scale")
    missing: tuple[str, ...] = () if scale is not None or "scale_packed" in module.parts else ("weight_scale",)
    *outer, columns = data.shape or (0,)
    if data.dtype == "I32":
        bits = claimed.bits if claimed is not None else 4
        into = columns * (INT32_BITS // bits)
        covered = (
            scale.shape[-1] * claimed.group_size if scale and scale.shape and claimed and claimed.group_size else 0
        )
        if 0 <= into - covered < INT32_BITS // bits:
            into = covered  # the last int32 of a row is not full
        return Observed(f"int{bits}", (*outer, into), data.dtype, _group(into, scale), None, _dtype(scale),
                        "compressed-tensors", missing)  # fmt: skip
    into = columns * 2
    group = _group(into, scale)
    name = _four_bits(scale, group)
    if name == "nvfp4" and "weight_global_scale" not in module.parts:
        missing += ("weight_global_scale",)
    return Observed(name, (*outer, into), data.dtype, group, None, _dtype(scale), "compressed-tensors", missing)


def _four_bits(scale: StoredTensors | None, group: int | None) -> str:
    dtype = _dtype(scale)
    if dtype in FP8 or (dtype is None and group == NVFP4_GROUP):
        return "nvfp4"
    return "mxfp4" if dtype in ("U8", "F8_E8M0") else "nvfp4" if group == NVFP4_GROUP else "int4"


def _fp8(module: Module, claimed: WeightScheme | None) -> Observed:
    """Which elements share a scale, by the shape of the scales; where that leaves a choice, as claimed."""
    data = module.data
    assert data is not None
    name = _scale_name(module)
    scale = module.parts.get(name) if name else None
    container = "fp8" if name == "weight_scale_inv" else None
    if scale is None:
        return Observed("fp8", data.shape, data.dtype, missing=("weight_scale",))
    *_, out, into = (1, *data.shape)[-3:] if len(data.shape) >= 2 else (1, 1, *data.shape)
    outer = len(data.shape) - 2
    four = len(scale.shape) == outer + 4  # [out, 1, in, 1], as ModelOpt writes blocks
    shape = (*scale.shape[:outer], scale.shape[-4], scale.shape[-2]) if four else scale.shape
    tail = shape[outer:] if len(shape) > outer else ()
    block = claimed.block if claimed is not None else None
    if block is not None and tail == (-(-out // block[0]), -(-into // block[1])):
        return Observed("fp8-block", data.shape, data.dtype, block[1], block, scale.dtype, container, (), tail)
    if scale.dtype == "U8" or (len(tail) == 2 and tail[0] == out and tail[1] * MX_GROUP == into and tail[1] > 1):
        return Observed("mxfp8", data.shape, data.dtype, _group(into, scale), None, scale.dtype, container)
    if len(tail) == 2 and tail[1] > 1 and tail[0] == out and out > 1:
        return Observed("fp8-group", data.shape, data.dtype, _group(into, scale), None, scale.dtype, container)
    if tail in ((out, 1), (out,)) and out > 1:
        return Observed("fp8-channel", data.shape, data.dtype, None, None, scale.dtype, container)
    if len(tail) == 2 and (name == "weight_scale_inv" or tail != (1, 1)):
        block = (_side(out, tail[0]), _side(into, tail[1]))
        return Observed("fp8-block", data.shape, data.dtype, block[1], block, scale.dtype, container, (), tail)
    return Observed("fp8-tensor", data.shape, data.dtype, None, None, scale.dtype, container)


def _side(size: int, blocks: int) -> int:
    """The side of a block when `blocks` cover `size`: the power of two that does, else the even share."""
    for power in (16, 32, 64, 128, 256, 512, 1024):
        if blocks and -(-size // power) == blocks and blocks > 1:
            return power
    return 128 if blocks == 1 and size <= 128 else -(-size // blocks) if blocks else 0


def _bytes(module: Module) -> Observed:
    """`weight` of whole numbers: ModelOpt's packed bytes, or 8-bit integers."""
    data = module.data
    assert data is not None
    name = _scale_name(module)
    scale = module.parts.get(name) if name else None
    if data.dtype in ("I8", "I32"):
        missing = () if scale is not None else ("weight_scale",)
        kind = "bitsandbytes" if name == "SCB" else None
        return Observed("int8", data.shape, data.dtype, None, None, _dtype(scale), kind, missing)
    if scale is None:
        return Observed("packed", (*data.shape[:-1], data.shape[-1] * 2), data.dtype, missing=("weight_scale",))
    into = data.shape[-1] * 2
    group = _group(into, scale)
    kind = _four_bits(scale, group)
    missing = ("weight_scale_2",) if kind == "nvfp4" and "weight_scale_2" not in module.parts else ()
    return Observed(kind, (*data.shape[:-1], into), data.dtype, group, None, _dtype(scale), "modelopt", missing)


def _rows(module: Module, claimed: WeightScheme | None) -> Observed:
    """Gemma's: codes of 8 bits, or several in a byte, with a scale for each row."""
    data = module.data
    assert data is not None
    scale = module.parts.get("weight_scale", module.parts.get("embedding_scale"))
    bits = 8 if data.dtype == "I8" else claimed.bits if claimed is not None and claimed.bits < 8 else 4
    *outer, columns = data.shape or (1,)
    missing = () if scale is not None else ("weight_scale",)
    return Observed(
        f"int{bits}", (*outer, columns * (8 // bits)), data.dtype, None, None, _dtype(scale), "gemma", missing
    )


def _transposed(module: Module, claimed: WeightScheme | None) -> Observed:
    """AWQ packs along out_features [in, out / 8], GPTQ along in_features [in / 8, out]; `scales` tells which."""
    data, scale = module.parts["qweight"], module.parts.get("scales")
    bits = claimed.bits if claimed is not None else 4
    rows, columns = (data.shape[-2], data.shape[-1]) if len(data.shape) >= 2 else (1, data.elements)
    if scale is None:
        return Observed(f"int{bits}", (rows * columns * INT32_BITS // bits,), data.dtype, missing=("scales",))
    out = scale.shape[-1] if scale.shape else 1
    awq = columns != out
    into = rows if awq else rows * INT32_BITS // bits
    groups = scale.elements // max(1, scale.count * out) if len(scale.shape) == 2 else 1
    group = -(-into // groups) if groups > 1 else None
    missing = () if "qzeros" in module.parts or awq else ("qzeros",)
    container = "awq" if awq else "gptq"
    return Observed(
        f"int{bits}", (*data.shape[:-2], out, into), data.dtype, group, None, scale.dtype, container, missing
    )


def _group(into: int, scale: StoredTensors | None) -> int | None:
    shape = scale.shape if scale is not None else ()
    return -(-into // shape[-1]) if len(shape) >= 2 and shape[-1] > 1 else None


def _dtype(scale: StoredTensors | None) -> str | None:
    return None if scale is None else scale.dtype
