"""NVIDIA ModelOpt: one algorithm by name for all modules but the excluded, or one for each module.

Written to hf_quant_config.json (under `quantization`) and, since 0.29, to config.json in another form.
Source: vllm 0.27.1, vllm/model_executor/layers/quantization/modelopt.py (QUANT_ALGOS, is_layer_excluded,
ModelOptMixedPrecisionConfig); https://github.com/NVIDIA/TensorRT-Model-Optimizer, modelopt/torch/export
(layer_utils.py, quant_utils.py: names and shapes).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from onecat.checkpoints.quantization import schemes
from onecat.checkpoints.quantization.claim import Claim
from onecat.checkpoints.quantization.kv_cache import asked_kv_cache
from onecat.checkpoints.quantization.records import Quantization, Rule, WeightScheme
from onecat.checkpoints.quantization.registry import Matrix, Stored, flavour, layout

Algorithm = Callable[[int | None], WeightScheme]
"""Takes the group size that is stated."""

INTEGER_GROUP = 128
"""Group size of ModelOpt's INT4 recipes (modelopt/torch/quantization/config.py, INT4_AWQ_CFG)."""

ALGORITHMS: dict[str, Algorithm] = {
    "NVFP4": lambda size: schemes.nvfp4("nvfp4", group_size=size or schemes.NVFP4_GROUP, input_scale=True),
    "NVFP4_AWQ": lambda size: _awq(schemes.nvfp4("nvfp4", group_size=size or schemes.NVFP4_GROUP, input_scale=True)),
    "W4A16_NVFP4": lambda size: schemes.nvfp4(None, group_size=size or schemes.NVFP4_GROUP),
    "W4A8_NVFP4_FP8": lambda size: schemes.nvfp4("fp8", group_size=size or schemes.NVFP4_GROUP, input_scale=True),
    "MXFP4": lambda size: schemes.mxfp4("mxfp4"),
    "W4A8_MXFP4_FP8": lambda size: schemes.mxfp4("fp8"),
    "MXFP8": lambda size: schemes.mxfp8(),
    "FP8": lambda size: schemes.fp8("tensor", input_scale=True),
    "FP8_PER_CHANNEL_PER_TOKEN": lambda size: schemes.fp8("channel"),
    "FP8_PB_WO": lambda size: schemes.fp8("block", None, block=(128, 128)),
    "FP8_PB_REAL": lambda size: schemes.fp8("block", block=(128, 128)),
    "INT8_SQ": lambda size: schemes.integer(8, None, activations="int8"),
    "INT8_WO": lambda size: schemes.integer(8, None),
    "W4A16_AWQ": lambda size: _awq(schemes.integer(4, size or INTEGER_GROUP, packed=2)),
    "INT4_AWQ": lambda size: _awq(schemes.integer(4, size or INTEGER_GROUP, packed=2)),
    "W4A8_AWQ": lambda size: _awq(schemes.integer(4, size or INTEGER_GROUP, activations="fp8", packed=2)),
    "INT4_WO": lambda size: schemes.integer(4, size or INTEGER_GROUP, packed=2),
}

NEVER = ("vision_tower", "vision_model", "vit_large_projector")
"""Towers that the engine takes as not quantised whatever the list says."""


def _awq(scheme: WeightScheme) -> WeightScheme:
    return replace(scheme, format="pre-scaled")


@flavour("modelopt", "modelopt_fp4", "modelopt_mxfp8", "modelopt_mixed")
def modelopt(claim: Claim) -> Quantization:
    inner = claim.part("quantization") or claim
    stated = (inner.word("quant_algo") or "").upper()
    ignored = inner.words("exclude_modules", "ignore")
    rules = [Rule(each, None, "wildcard") for each in ignored]
    rules += [Rule(each, None, "substring") for each in ignored if "*" not in each]
    rules += [Rule(each, None, "components") for each in NEVER]
    if stated == "MIXED_PRECISION":
        rules += _layers(inner)
    elif stated in ALGORITHMS:
        rules.append(Rule("*", ALGORITHMS[stated](inner.group_size("group_size") or _group(inner)), "all"))
    known = stated in ALGORITHMS or stated == "MIXED_PRECISION"
    return schemes.quantization(
        "modelopt", engines_name(stated), rules, ignored=ignored, kv_cache=asked_kv_cache(claim),
        scheme=None if known else "unknown",
    )  # fmt: skip


def engines_name(algorithm: str) -> str:
    """The engine's method for an algorithm; it has a class for each family of them."""
    if "MXFP8" in algorithm:
        return "modelopt_mxfp8"
    if "FP4" in algorithm:
        return "modelopt_fp4"
    return "modelopt_mixed" if algorithm == "MIXED_PRECISION" else "modelopt"


def _group(claim: Claim) -> int | None:
    """The group size of the form in config.json, where it stands with each group's weights."""
    for _, group in claim.parts("config_groups"):
        weights = group.part("weights")
        if weights is not None and (size := weights.group_size("group_size")) is not None:
            return size
    return None


def _layers(claim: Claim) -> Iterator[Rule]:
    for name, layer in claim.parts("quantized_layers"):
        algorithm = ALGORITHMS.get((layer.word("quant_algo") or "").upper())
        if algorithm is not None:
            scheme = algorithm(layer.group_size("group_size"))
            yield Rule(name, scheme, "wildcard" if "*" in name else "name")
            yield Rule(name, scheme, "below")


@layout("modelopt")
def tensors(matrix: Matrix, scheme: WeightScheme) -> Iterator[Stored]:
    """`weight`, `weight_scale`, for NVFP4 `weight_scale_2`, and `input_scale` where activations have one."""
    out, into, outer = matrix.out, matrix.into, matrix.outer
    dot = "_" if matrix.joint else "."
    own = "" if matrix.joint else ".weight"
    scale = f"{dot}weight_scale"
    group = scheme.group_size or into
    if scheme.name in ("nvfp4", "mxfp4"):
        yield Stored(own, "U8", (*outer, out, into // 2))
        yield Stored(scale, scheme.scale_dtype or "U8", (*outer, out, -(-into // group)))
        if scheme.name == "nvfp4":
            yield Stored(f"{scale}_2", "F32", outer)
    elif scheme.name == "mxfp8":
        yield Stored(own, "F8_E4M3", (*outer, out, into))
        yield Stored(scale, "U8", (*outer, out, -(-into // group)))
    elif scheme.block is not None:
        yield Stored(own, "F8_E4M3", (*outer, out, into))
        yield Stored(scale, "F32", (*outer, -(-out // scheme.block[0]), 1, -(-into // scheme.block[1]), 1))
    elif scheme.name.startswith("fp8"):
        yield Stored(own, "F8_E4M3", (*outer, out, into))
        yield Stored(scale, "F32", (*outer, out) if scheme.name == "fp8-channel" else outer)
    elif scheme.bits == 4:
        yield Stored(own, "U8", (*outer, out // 2, into))
        yield Stored(scale, matrix.dtype, (*outer, out, -(-into // group)))
    else:
        yield Stored(own, "I8", (*outer, out, into))
        yield Stored(scale, "F32", (*outer, out))
    if scheme.input_scale:
        yield Stored(f"{dot}input_scale", "F32", outer)
    if scheme.format == "pre-scaled":
        yield Stored(f"{dot}pre_quant_scale", matrix.dtype, (into,))
