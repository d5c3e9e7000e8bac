"""The tensors on disk that a weight of an architecture becomes."""

from __future__ import annotations

import math

from onecat.checkpoints.architectures.records import Weight
from onecat.checkpoints.quantization.records import WeightScheme
from onecat.checkpoints.quantization.registry import Matrix, Stored, layouts
from onecat.checkpoints.safetensors_header import BITS
from onecat.checkpoints.tensors import StoredTensors

SAFETENSORS_NAMES = {
    "bfloat16": "BF16", "float16": "F16", "half": "F16", "float32": "F32", "float": "F32", "float64": "F64",
    "float8_e4m3fn": "F8_E4M3",
}  # fmt: skip


def safetensors_name(dtype: str | None) -> str:
    """The name in weight files of a dtype of config.json; BF16 when none is stated."""
    return SAFETENSORS_NAMES.get((dtype or "bfloat16").removeprefix("torch."), "BF16")


def stored_tensors(
    weight: Weight, scheme: WeightScheme | None, container: str | None, dtype: str | None
) -> tuple[StoredTensors, ...]:
    """All tensors of a weight, the one with its elements first.

    Parameters:
        scheme: how it is stored, None for as it was (`Quantization.scheme_for`).
        container: of the quantisation; only matters with a scheme.
        dtype: of the model, as config.json states it (`bfloat16`), for a weight that has none of its own.
    """
    joint = not weight.name.endswith(".weight")
    outer = (weight.count,) if "*" not in weight.name and weight.count > 1 else ()
    count = 1 if outer else weight.count
    own = weight.dtype or safetensors_name(dtype)
    if scheme is None or len(weight.shape) < 2:
        return (_row(weight.name, Stored("", own, (*outer, *weight.shape)), count),)
    *more, out, into = weight.shape
    matrix = Matrix(weight.name.removesuffix(".weight"), out, into, (*outer, *more), own, joint)
    lay_out = layouts().get(container or "") or layouts()["packed"]
    return tuple(_row(matrix.stem + each.name, each, count) for each in lay_out(matrix, scheme))


def _row(name: str, stored: Stored, count: int) -> StoredTensors:
    length = (math.prod(stored.shape) * BITS.get(stored.dtype, 8) + 7) // 8
    return StoredTensors(name, stored.dtype, stored.shape, count, length * count)
