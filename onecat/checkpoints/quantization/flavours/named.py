"""Methods that are recognised by their name, with the bits they state; what their tensors look like is their own.

Sources: transformers 4.57, utils/quantization_config.py (names and fields); https://github.com/turboderp-org/exllamav3.
"""

from __future__ import annotations

from collections.abc import Iterator

from onecat.checkpoints.quantization import schemes
from onecat.checkpoints.quantization.claim import Claim
from onecat.checkpoints.quantization.records import LINEAR, Quantization, Rule, WeightScheme
from onecat.checkpoints.quantization.registry import Matrix, Stored, flavour, layout

BITS = {
    "hqq": 4, "aqlm": 2, "exl2": 4, "exl3": 4, "gguf": 4, "quip": 2, "vptq": 2, "higgs": 4, "spqr": 3, "eetq": 8,
    "bitnet": 2, "fp_quant": 4, "quanto": 8, "sinq": 4, "experts_int8": 8, "moe_wna16": 4, "petit_nvfp4": 4,
    "humming": 4, "ipex": 4,
}  # fmt: skip
"""Bits of one element where the configuration does not state them."""


@flavour(*BITS)
def named(claim: Claim) -> Quantization:
    method = (claim.word("quant_method") or "").lower()
    bits = claim.average_bits("bits", "nbits", "w_bit", "weight_bits", "num_bits") or BITS[method]
    ignored = claim.words("modules_to_not_convert", "linear_weights_not_to_quantize", "skip_modules")
    size, whole = claim.group_size("group_size"), max(1, round(bits))
    scheme = WeightScheme(method, whole, size, packed=max(1, 8 // whole))
    rules = [Rule(each, None, "components") for each in ignored]
    rules.append(Rule("*", scheme, "all", LINEAR, ("language",)))
    return schemes.quantization("packed", method, rules, ignored=ignored)


@layout("packed")
def tensors(matrix: Matrix, scheme: WeightScheme) -> Iterator[Stored]:
    """Codes without gaps and a scale of 16 bits for each group: an estimate for layouts of their own."""
    yield Stored(".weight", "U8", (*matrix.outer, matrix.out, -(-matrix.into * scheme.bits // 8)))
    yield Stored(".scale", "F16", (*matrix.outer, matrix.out, -(-matrix.into // (scheme.group_size or matrix.into))))
