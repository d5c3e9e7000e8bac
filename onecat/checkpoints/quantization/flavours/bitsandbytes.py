"""bitsandbytes: 4-bit codes of a table (nf4, fp4), flat, or 8-bit whole numbers with a scale for each row.

Source: https://github.com/bitsandbytes-foundation/bitsandbytes (0.46: functional.py, QuantState.as_dict), and vllm
0.27.1, vllm/model_executor/layers/quantization/bitsandbytes.py (llm_int8_skip_modules).
"""

from __future__ import annotations

from collections.abc import Iterator

from onecat.checkpoints.quantization import schemes
from onecat.checkpoints.quantization.claim import Claim
from onecat.checkpoints.quantization.records import LINEAR, Quantization, Rule, WeightScheme
from onecat.checkpoints.quantization.registry import Matrix, Stored, flavour, layout

BLOCK = 64
NESTED_BLOCK = 256
"""Elements of one scale, and scales of one scale of scales (quantize_4bit's and quantize_blockwise's defaults)."""

STATE_BYTES = 90
"""Of the JSON that describes a weight (QuantState.as_dict, packed); a few more or less with its shape."""


@flavour("bitsandbytes")
def bitsandbytes(claim: Claim) -> Quantization:
    skipped = claim.words("llm_int8_skip_modules")
    rules = [Rule(each, None, "components") for each in skipped]
    if claim.flag("load_in_8bit") or claim.flag("_load_in_8bit"):
        scheme = WeightScheme("int8", 8, None, None, "F32")
    else:
        name = claim.word("bnb_4bit_quant_type") or "fp4"
        nested = claim.flag("bnb_4bit_use_double_quant")
        scheme = WeightScheme(name, 4, BLOCK, None, "U8" if nested else "F32", packed=2)
    rules.append(Rule("*", scheme, "all", LINEAR))
    return schemes.quantization("bitsandbytes", "bitsandbytes", rules, ignored=skipped)


@layout("bitsandbytes")
def tensors(matrix: Matrix, scheme: WeightScheme) -> Iterator[Stored]:
    """`weight` [elements / 2, 1] and its state, or `weight` [out, in] and `SCB`."""
    if scheme.bits == 8:
        yield Stored(".weight", "I8", (matrix.out, matrix.into))
        yield Stored(".SCB", "F32", (matrix.out,))
        yield Stored(".weight_format", "U8", ())
        return
    elements = matrix.out * matrix.into
    scales = -(-elements // (scheme.group_size or BLOCK))
    yield Stored(".weight", "U8", (-(-elements // 2), 1))
    yield Stored(".weight.absmax", scheme.scale_dtype or "F32", (scales,))
    yield Stored(".weight.quant_map", "F32", (16,))
    if scheme.scale_dtype == "U8":
        yield Stored(".weight.nested_absmax", "F32", (-(-scales // NESTED_BLOCK),))
        yield Stored(".weight.nested_quant_map", "F32", (256,))
    yield Stored(f".weight.quant_state.bitsandbytes__{scheme.name}", "U8", (STATE_BYTES,))
