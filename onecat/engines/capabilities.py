"""What engines ask of a card before they read a checkpoint's weights."""

from __future__ import annotations

from onecat.engines.records import FlagSchema

BFLOAT16_CAPABILITY = 80
"""Least compute capability, ten times, for bfloat16 (vllm 0.27.1, vllm/platforms/cuda.py, supported_dtypes)."""

COMPRESSED_TENSORS_CAPABILITY = dict.fromkeys(
    ("pack-quantized", "int-quantized", "float-quantized", "nvfp4-pack-quantized"), 75
)
"""Least compute capability, ten times, of the schemes behind each `format` of compressed-tensors; the method as a whole
states less (get_min_capability in vllm .../quantization/compressed_tensors/schemes/)."""


def least_capability(schema: FlagSchema, method: str, form: str | None = None) -> int | None:
    """The least compute capability, ten times, of a quantization method, or of a format of it; None when not known."""
    least = schema.quantization.get(method)
    if method == "compressed-tensors" and form is not None:
        least = COMPRESSED_TENSORS_CAPABILITY.get(form, least)
        least = schema.quantization.get(f"{method}/{form}", least)
    return least


def has_kernel(schema: FlagSchema, method: str, form: str | None = None) -> bool:
    """Whether the engine has any kernel for a quantization method, or for a format of it, on its hardware."""
    return not {method, f"{method}/{form}"} & set(schema.lacks)
