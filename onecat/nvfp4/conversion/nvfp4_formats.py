"""NVFP4 as compressed-tensors and as ModelOpt store it, both without quantised activations (W4A16)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy

from onecat import __version__
from onecat.nvfp4.codec import BLOCK, Codec, Search
from onecat.nvfp4.conversion.formats import Encoded
from onecat.nvfp4.conversion.records import Group, Matrix
from onecat.nvfp4.rewriting import Made
from onecat.nvfp4.tensor_types import Array


@dataclass(frozen=True)
class _Nvfp4:
    codec: Codec
    search: Search

    def unfit(self, matrix: Matrix) -> str | None:
        if matrix.shape[1] % BLOCK:
            return f"its {matrix.shape[1]} in_features do not divide into blocks of {BLOCK}"
        return None

    def unfit_group(self, group: Group) -> str | None:
        into = {each.shape[1] for each in group.members}
        return None if len(into) == 1 else "joined matrices have different in_features"

    def largest(self, weight: Array) -> float:
        return self.codec.largest(weight)


@dataclass(frozen=True)
class CompressedTensorsNvfp4(_Nvfp4):
    """`nvfp4-pack-quantized` of compressed-tensors.

    Sources: compressed-tensors 0.17.0, quantization/quant_scheme.py (NVFP4A16), compressors/nvfp4/base.py (names).
    """

    container = "compressed-tensors"
    name = "nvfp4-pack-quantized"

    def made(self, matrix: Matrix) -> tuple[Made, ...]:
        out, into = matrix.shape
        return (
            Made(f"{matrix.module}.weight_packed", "U8", (out, into // 2)),
            Made(f"{matrix.module}.weight_scale", "F8_E4M3", (out, into // BLOCK)),
            Made(f"{matrix.module}.weight_global_scale", "F32", (1,)),
        )

    def shared(self, weights: Sequence[Array], largest: float) -> float:
        if self.search == "minmax":
            return self.codec.global_scale(largest)
        return self.codec.best_global_scale(weights, self.search)

    def encode(self, weight: Array, shared: float) -> Encoded:
        coded = self.codec.nvfp4(weight, shared, self.search)
        multiplier = float(numpy.float32(1) / numpy.float32(shared))
        deviation = self.codec.nvfp4_deviation(weight, coded, multiplier)
        return Encoded((coded.packed, coded.block_scale, numpy.array([shared], numpy.float32)), deviation)

    def documents(self, config: dict[str, Any], ignore: Sequence[str]) -> dict[str, Any]:
        weights = {
            "num_bits": 4,
            "type": "float",
            "symmetric": True,
            "group_size": BLOCK,
            "strategy": "tensor_group",
            "dynamic": False,
            "scale_dtype": "torch.float8_e4m3fn",
            "zp_dtype": None,
            "observer": "memoryless_minmax",
            "observer_kwargs": {},
            "actorder": None,
            "block_structure": None,
        }
        return {"config.json": config | {"quantization_config": compressed_tensors(self.name, weights, None, ignore)}}


def compressed_tensors(
    form: str, weights: dict[str, Any], activations: dict[str, Any] | None, ignore: Sequence[str]
) -> dict[str, Any]:
    """`quantization_config` of compressed-tensors for one scheme on all linear modules but the ignored.

    The target class `Linear` covers experts too: vLLM has its class for them follow it.
    """
    return {
        "quant_method": "compressed-tensors",
        "format": form,
        "quantization_status": "compressed",
        "config_groups": {
            "group_0": {
                "targets": ["Linear"],
                "weights": weights,
                "input_activations": activations,
                "output_activations": None,
                "format": form,
            }
        },
        "ignore": list(ignore),
        "kv_cache_scheme": None,
    }


@dataclass(frozen=True)
class ModeloptNvfp4(_Nvfp4):
    """`W4A16_NVFP4` of ModelOpt.

    Source: vllm 0.27.1, vllm/model_executor/layers/quantization/modelopt.py (ModelOptNvFp4Config).
    """

    container = "modelopt"

    def made(self, matrix: Matrix) -> tuple[Made, ...]:
        out, into = matrix.shape
        return (
            Made(f"{matrix.module}.weight", "U8", (out, into // 2)),
            Made(f"{matrix.module}.weight_scale", "F8_E4M3", (out, into // BLOCK)),
            Made(f"{matrix.module}.weight_scale_2", "F32", ()),
        )

    def shared(self, weights: Sequence[Array], largest: float) -> float:
        return self.codec.weight_scale_2(largest)

    def encode(self, weight: Array, shared: float) -> Encoded:
        coded = self.codec.nvfp4_modelopt(weight, shared, self.search)
        deviation = self.codec.nvfp4_deviation(weight, coded, shared)
        return Encoded((coded.packed, coded.block_scale, numpy.array(shared, numpy.float32)), deviation)

    def documents(self, config: dict[str, Any], ignore: Sequence[str]) -> dict[str, Any]:
        """Both forms: hf_quant_config.json, and the part of config.json that ModelOpt writes since 0.31."""
        producer = {"producer": {"name": "onecat", "version": __version__}}
        shared = {"quant_algo": "W4A16_NVFP4", "group_size": BLOCK}
        stated = {"quant_method": "modelopt", **shared, "ignore": list(ignore), **producer}
        beside = {**shared, "kv_cache_quant_algo": None, "exclude_modules": list(ignore)}
        return {
            "config.json": config | {"quantization_config": stated},
            "hf_quant_config.json": {**producer, "quantization": beside},
        }
