"""AMD Quark: one specification for all modules, or by pattern or kind of module; `exclude` as compressed-tensors.

Source: vllm 0.27.1, vllm/model_executor/layers/quantization/quark/ (quark.py, utils.py, schemes/).
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from onecat.checkpoints.quantization import schemes
from onecat.checkpoints.quantization.claim import Claim
from onecat.checkpoints.quantization.flavours import modelopt
from onecat.checkpoints.quantization.records import Quantization, Rule, WeightScheme
from onecat.checkpoints.quantization.registry import Matrix, Stored, flavour, layout

_BITS = re.compile(r"(?<![0-9])[0-9]{1,2}(?![0-9])")
FLOATS = {"fp8_e4m3": "fp8", "fp8_e5m2": "fp8", "fp4": "mxfp4", "fp6_e2m3": "mxfp6", "fp6_e3m2": "mxfp6"}


@flavour("quark")
def quark(claim: Claim) -> Quantization:
    ignored = claim.words("exclude")
    rules = [Rule(each, None, "regex" if each.startswith("re:") else "wildcard") for each in ignored]
    for name, layer in claim.parts("layer_quant_config"):
        scheme = _scheme(layer)
        if scheme is not None:
            rules.append(Rule(name, scheme, "wildcard"))
    everywhere = claim.part("global_quant_config")
    default = None if everywhere is None else _scheme(everywhere)
    if default is not None:
        rules.append(Rule("*", default, "all"))
    return schemes.quantization("quark", "quark", rules, ignored=ignored, kv_cache=_kv_cache(claim))


def _scheme(stated: Claim) -> WeightScheme | None:
    weights = stated.part("weight")
    if weights is None:
        several = stated.stated.get("weight")
        last = several[-1] if isinstance(several, list) and several else None
        if not isinstance(last, dict):
            return None
        weights = Claim(last)
    inputs = stated.part("input_tensors")
    become = None if inputs is None else _name(inputs)
    static = inputs is not None and not inputs.flag("is_dynamic")
    dtype, qscheme = weights.word("dtype") or "", weights.word("qscheme") or "per_tensor"
    size = weights.group_size("group_size")
    if dtype == "fp4":
        if weights.word("scale_format") == "e8m0" or size == schemes.MX_GROUP:
            return schemes.mxfp4(become)
        return schemes.nvfp4(become, group_size=size or schemes.NVFP4_GROUP, input_scale=static)
    if dtype.startswith("fp6"):
        return WeightScheme("mxfp6", 6, schemes.MX_GROUP, None, "U8", become)
    if dtype.startswith("fp8"):
        if size == schemes.MX_GROUP:
            return schemes.mxfp8(become)
        return schemes.fp8("channel" if qscheme == "per_channel" else "tensor", become, input_scale=static)
    bits = _bits(dtype)
    return schemes.integer(
        bits, size if qscheme == "per_group" else None, activations=become,
        zero_points=not weights.flag("symmetric", True), packed=max(1, 8 // bits) if bits < 8 else 1,
        input_scale=static,
    )  # fmt: skip


def _bits(dtype: str) -> int:
    """Of a name such as `int4` or `uint8`; 8 where it tells none."""
    found = _BITS.search(dtype)
    return Claim({"bits": int(found[0])}).bits("bits") or 8 if found else 8


def _name(stated: Claim) -> str:
    dtype = stated.word("dtype") or "?"
    return FLOATS.get(dtype, dtype)


def _kv_cache(claim: Claim) -> str | None:
    """FP8 where a group of layers for the KV cache has such output tensors."""
    export = claim.part("export")
    if export is None or not export.words("kv_cache_group"):
        return None
    layers = [layer.part("output_tensors") for _, layer in claim.parts("layer_quant_config")]
    return "fp8" if any(each is not None and _name(each) == "fp8" for each in layers) else None


@layout("quark")
def tensors(matrix: Matrix, scheme: WeightScheme) -> Iterator[Stored]:
    """ModelOpt's names, which its export shares."""
    if scheme.name == "mxfp6":
        yield Stored(".weight", "U8", (*matrix.outer, matrix.out, -(-matrix.into * scheme.bits // 8)))
        yield Stored(".weight_scale", "U8", (*matrix.outer, matrix.out, -(-matrix.into // schemes.MX_GROUP)))
        return
    yield from modelopt.tensors(matrix, scheme)
