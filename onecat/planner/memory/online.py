"""Quantisation that the engine does while it loads: `--quantization` for a checkpoint that has none."""

from __future__ import annotations

from onecat.checkpoints import WeightScheme
from onecat.checkpoints.architectures import Weight

_SCHEMES = {
    "fp8": WeightScheme("fp8-tensor", 8, None, None, "F32", "fp8"),
    "fp8_per_tensor": WeightScheme("fp8-tensor", 8, None, None, "F32", "fp8"),
    "fp8_per_channel": WeightScheme("fp8-channel", 8, None, None, "F32", "fp8"),
    "fp8_per_block": WeightScheme("fp8-block", 8, 128, (128, 128), "F32", "fp8"),
    "mxfp8": WeightScheme("mxfp8", 8, 32, None, "U8", "mxfp8"),
    "int8_per_channel_weight_only": WeightScheme("int8", 8, None, None, "F32", None),
    "bitsandbytes": WeightScheme("nf4", 4, 64, None, "F32", None),
}
"""Of linear layers alone. Source: vllm/model_executor/layers/quantization/online/ and bitsandbytes.py."""


def online_scheme(quantization: str | None, weight: Weight) -> WeightScheme | None:
    """The scheme that a weight is turned into; None for a weight that stays as it is."""
    if quantization is None or weight.kind != "linear" or weight.part not in ("language", "draft"):
        return None
    return _SCHEMES.get(quantization) if len(weight.shape) == 2 else None


def online_bytes(scheme: WeightScheme, elements: int, rows: int) -> int:
    """Bytes of a weight of so many elements and rows in that scheme, with its scales."""
    if scheme.block is not None:
        scales = elements // (scheme.block[0] * scheme.block[1]) * 4
    elif scheme.group_size is not None:
        scales = elements // scheme.group_size * (1 if scheme.scale_dtype == "U8" else 4)
    else:
        scales = rows * 4 if scheme.name != "fp8-tensor" else 4
    return elements * scheme.bits // 8 + scales
