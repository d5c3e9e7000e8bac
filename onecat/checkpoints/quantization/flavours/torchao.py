"""torchao: a configuration class by name, for all modules or by module.

Source: vllm 0.27.1, vllm/model_executor/layers/quantization/torchao.py; https://github.com/pytorch/ao
(quantization/quant_api.py: the classes; prototype/safetensors: names of the parts of a tensor).
"""

from __future__ import annotations

from collections.abc import Iterator

from onecat.checkpoints.quantization import schemes
from onecat.checkpoints.quantization.claim import Claim
from onecat.checkpoints.quantization.records import LINEAR, Quantization, Rule, WeightScheme
from onecat.checkpoints.quantization.registry import Matrix, Stored, flavour, layout

SHORT = {
    "int4_weight_only": "Int4WeightOnlyConfig", "int4wo": "Int4WeightOnlyConfig",
    "int8_weight_only": "Int8WeightOnlyConfig", "int8wo": "Int8WeightOnlyConfig",
    "int8_dynamic_activation_int8_weight": "Int8DynamicActivationInt8WeightConfig",
    "float8_weight_only": "Float8WeightOnlyConfig", "float8wo": "Float8WeightOnlyConfig",
    "float8_dynamic_activation_float8_weight": "Float8DynamicActivationFloat8WeightConfig",
}  # fmt: skip
"""Names of before 0.9."""

DEFAULT_GROUP = 128
"""group_size of Int4WeightOnlyConfig where it is not stated."""


@flavour("torchao")
def torchao(claim: Claim) -> Quantization:
    ignored = claim.words("modules_to_not_convert")
    rules = [Rule(each, None, "components") for each in ignored]
    chosen = claim.part("quant_type")
    if chosen is None:
        given = claim.part("quant_type_kwargs") or Claim()
        default = _scheme(claim.word("quant_type") or "", given)
        rules.append(Rule("*", default, "all", LINEAR))
    else:
        rules += _rules(chosen.part("default") or chosen)
    scheme = None if any(rule.scheme is not None for rule in rules) else "unknown"
    return schemes.quantization("torchao", "torchao", rules, ignored=ignored, scheme=scheme)


def _rules(stated: Claim) -> Iterator[Rule]:
    data = stated.part("_data") or Claim()
    listed = (data.part("module_fqn_to_config"), data.part("fqn_to_config"))
    by_module = dict(next((each.stated for each in listed if each is not None and each.stated), {}))
    if not by_module:
        yield Rule("*", _scheme(stated.word("_type") or "", data), "all", LINEAR)
        return
    default = by_module.pop("_default", None)
    for name, each in by_module.items():
        part = Claim(each) if isinstance(each, dict) else Claim()
        scheme = _scheme(part.word("_type") or "", part.part("_data") or Claim())
        yield Rule(name, scheme, "regex" if name.startswith("re:") else "name")
    if isinstance(default, dict):
        yield Rule("*", _scheme(str(default.get("_type")), Claim(default).part("_data") or Claim()), "all", LINEAR)


def _scheme(name: str, data: Claim) -> WeightScheme | None:
    """The scheme of a class; None of one that is not known, or that quantises nothing."""
    name = SHORT.get(name.partition("-")[0], name)
    become = None if "Dynamic" not in name else "fp8" if "ActivationFloat8" in name else "int8"
    if name.startswith("NVFP4"):
        return schemes.nvfp4("nvfp4")
    if name.startswith("MXFP"):
        return schemes.mxfp4("mxfp4")
    if "Int4Weight" in name:
        return schemes.integer(4, data.group_size("group_size") or DEFAULT_GROUP, activations=become, packed=2)
    if "Int8Weight" in name:
        return schemes.integer(8, None, activations=become)
    if "Float8" in name:
        return schemes.fp8("channel", become)
    if "IntxWeight" in name:
        return schemes.integer(8, data.group_size("group_size"), activations=become)
    return None


@layout("torchao")
def tensors(matrix: Matrix, scheme: WeightScheme) -> Iterator[Stored]:
    """Codes and scales, by the names that torchao gives the parts of a tensor in safetensors."""
    dtype = "F8_E4M3" if scheme.name.startswith("fp8") else "U8" if scheme.packed > 1 else "I8"
    yield Stored(".weight:_qdata", dtype, (matrix.out, -(-matrix.into // scheme.packed)))
    groups = -(-matrix.into // scheme.group_size) if scheme.group_size else 1
    yield Stored(".weight:_scale", scheme.scale_dtype or matrix.dtype, (matrix.out, groups))
    if scheme.bits == 4 and scheme.name.startswith("int"):
        yield Stored(".weight:_zero_point", matrix.dtype, (matrix.out, groups))
