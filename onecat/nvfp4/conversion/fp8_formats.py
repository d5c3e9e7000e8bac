"""FP8 in blocks of 128 x 128 as compressed-tensors and as DeepSeek store it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from onecat.nvfp4.codec import Codec
from onecat.nvfp4.conversion.formats import Encoded
from onecat.nvfp4.conversion.nvfp4_formats import compressed_tensors
from onecat.nvfp4.conversion.records import Group, Matrix
from onecat.nvfp4.rewriting import Made
from onecat.nvfp4.tensor_types import Array

SIDES = (128, 128)
"""Rows and columns of a block."""


@dataclass(frozen=True)
class _Fp8Block:
    """What both namings share.

    Source for what an engine can join: vllm 0.27.1, vllm/model_executor/layers/quantization/utils/fp8_utils.py
    (validate_fp8_block_shape), and fp8.py (Fp8MoEMethod.create_weights) for experts.
    """

    codec: Codec

    def unfit(self, matrix: Matrix) -> str | None:
        if ".experts." in matrix.module and any(each % side for each, side in zip(matrix.shape, SIDES, strict=True)):
            return f"an expert of {matrix.shape[0]} x {matrix.shape[1]} does not divide into blocks of 128 x 128"
        return None

    def unfit_group(self, group: Group) -> str | None:
        for each in group.members[:-1]:
            if each.shape[0] % SIDES[0]:
                last = each.module.rpartition(".")[2]
                return f"joined with others behind {last}, whose {each.shape[0]} rows blocks of 128 do not divide"
        into = {each.shape[1] for each in group.members}
        return None if len(into) == 1 else "joined matrices have different in_features"

    def largest(self, weight: Array) -> float:
        return 0.0

    def shared(self, weights: Sequence[Array], largest: float) -> float:
        return 0.0

    def encode(self, weight: Array, shared: float) -> Encoded:
        coded = self.codec.fp8_block(weight, SIDES)
        return Encoded((coded.codes, coded.scale), self.codec.fp8_deviation(weight, coded, SIDES))

    def _tensors(self, matrix: Matrix, scale: str) -> tuple[Made, ...]:
        blocks = tuple(-(-size // side) for size, side in zip(matrix.shape, SIDES, strict=True))
        return (
            Made(f"{matrix.module}.weight", "F8_E4M3", matrix.shape),
            Made(f"{matrix.module}.{scale}", "F32", blocks),
        )


@dataclass(frozen=True)
class CompressedTensorsFp8Block(_Fp8Block):
    """`float-quantized` with blocks, activations quantised as the engine goes.

    Source: compressed-tensors 0.17.0, quantization/quant_scheme.py (FP8_BLOCK).
    """

    container = "compressed-tensors"
    name = "float-quantized"

    def made(self, matrix: Matrix) -> tuple[Made, ...]:
        return self._tensors(matrix, "weight_scale")

    def documents(self, config: dict[str, Any], ignore: Sequence[str]) -> dict[str, Any]:
        both = {"num_bits": 8, "type": "float", "symmetric": True}
        weights = both | {"strategy": "block", "block_structure": list(SIDES), "dynamic": False}
        activations = both | {"strategy": "group", "group_size": SIDES[1], "dynamic": True}
        stated = compressed_tensors(self.name, weights, activations, ignore)
        return {"config.json": config | {"quantization_config": stated}}


@dataclass(frozen=True)
class DeepseekFp8Block(_Fp8Block):
    """As DeepSeek-V3 publishes it: `weight_scale_inv` is multiplied, despite its name.

    Source: vllm 0.27.1, vllm/model_executor/layers/quantization/fp8.py.
    """

    container = "fp8"

    def made(self, matrix: Matrix) -> tuple[Made, ...]:
        return self._tensors(matrix, "weight_scale_inv")

    def documents(self, config: dict[str, Any], ignore: Sequence[str]) -> dict[str, Any]:
        stated = {
            "quant_method": "fp8",
            "fmt": "e4m3",
            "activation_scheme": "dynamic",
            "weight_block_size": list(SIDES),
            "modules_to_not_convert": list(ignore),
        }
        return {"config.json": config | {"quantization_config": stated}}
