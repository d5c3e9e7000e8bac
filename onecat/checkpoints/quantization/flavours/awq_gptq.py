"""AWQ and GPTQ: 4-bit (or 2, 3, 8) whole numbers packed in int32, with scales and zero points of groups.

Source: vllm 0.27.1, vllm/model_executor/layers/quantization/auto_awq.py, auto_gptq.py, utils/gptq_utils.py
(dynamic rules: `+:` and `-:`), https://github.com/ModelCloud/GPTQModel (dynamic), AutoAWQ's WQLinear_GEMM.
"""

from __future__ import annotations

from collections.abc import Iterator

from onecat.checkpoints.quantization import schemes
from onecat.checkpoints.quantization.claim import Claim
from onecat.checkpoints.quantization.records import LINEAR, Quantization, Rule, WeightScheme
from onecat.checkpoints.quantization.registry import Matrix, Stored, flavour, layout

INT32 = 32


@flavour("awq", "awq_marlin", "auto_awq")
def awq(claim: Claim) -> Quantization:
    """Layers of the decoder only: what AutoAWQ does not touch it does not list."""
    ignored = claim.words("modules_to_not_convert")
    rules = [Rule(each, None, "components") for each in ignored]
    rules.append(Rule("*", _scheme(claim, claim.flag("zero_point", True)), "all", LINEAR, ("language",)))
    return schemes.quantization("awq", "awq", rules, ignored=ignored)


@flavour("gptq", "gptq_marlin", "auto_gptq")
def gptq(claim: Claim) -> Quantization:
    ignored = claim.words("modules_to_not_convert")
    default = _scheme(claim, zero_points=True, ordered=True)
    rules = [Rule(each, None, "components") for each in ignored]
    for pattern, changed in claim.parts("dynamic"):
        if pattern.startswith("-:"):
            ignored = (*ignored, pattern)
            rules.append(Rule(pattern.removeprefix("-:"), None, "regex"))
        else:
            merged = Claim({**claim.stated, **changed.stated})
            rules.append(Rule(pattern.removeprefix("+:"), _scheme(merged, True, ordered=True), "regex", LINEAR))
    head = claim.flag("lm_head")
    inside = claim.words("modules_in_block_to_quantize")
    if inside:
        rules += [Rule(each, default, "components", LINEAR, ("language",)) for each in inside]
    else:
        rules.append(Rule("*", default, "all", LINEAR, ("language",)))
    if head:
        rules.append(Rule("lm_head", default, "name"))
    return schemes.quantization("gptq", "gptq", rules, ignored=ignored, format=claim.word("checkpoint_format"))


def _scheme(claim: Claim, zero_points: bool, *, ordered: bool = False) -> WeightScheme:
    bits = claim.bits("bits", "w_bit") or 4
    size = claim.group_size("group_size", "q_group_size")
    return schemes.integer(bits, size, zero_points=zero_points, packed=INT32 // bits, ordered=ordered)


@layout("awq")
def awq_tensors(matrix: Matrix, scheme: WeightScheme) -> Iterator[Stored]:
    """Packed along out_features, transposed: [in_features, out_features / 8]."""
    groups = -(-matrix.into // (scheme.group_size or matrix.into))
    columns = -(-matrix.out * scheme.bits // INT32)
    yield Stored(".qweight", "I32", (*matrix.outer, matrix.into, columns))
    if scheme.zero_points:
        yield Stored(".qzeros", "I32", (*matrix.outer, groups, columns))
    yield Stored(".scales", "F16", (*matrix.outer, groups, matrix.out))


@layout("gptq")
def gptq_tensors(matrix: Matrix, scheme: WeightScheme) -> Iterator[Stored]:
    """Packed along in_features, transposed: [in_features / 8, out_features]. `g_idx` is stored with any order."""
    groups = -(-matrix.into // (scheme.group_size or matrix.into))
    yield Stored(".qweight", "I32", (*matrix.outer, -(-matrix.into * scheme.bits // INT32), matrix.out))
    yield Stored(".qzeros", "I32", (*matrix.outer, groups, -(-matrix.out * scheme.bits // INT32)))
    yield Stored(".scales", "F16", (*matrix.outer, groups, matrix.out))
    if scheme.ordered:
        yield Stored(".g_idx", "I32", (*matrix.outer, matrix.into))
