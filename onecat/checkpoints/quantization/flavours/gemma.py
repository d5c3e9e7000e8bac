"""Gemma's own: whole numbers of 2, 4 or 8 bits with a scale for each row, also in embeddings.

Source: transformers 5.24, utils/quantization_config.py (GemmaQuantizationConfig) and integrations/gemma_quant.py (which
modules are replaced, names and shapes of their tensors). vLLM 0.27.1 and 0.33.0 have no such method.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from onecat.checkpoints.quantization import schemes
from onecat.checkpoints.quantization.claim import Claim
from onecat.checkpoints.quantization.records import LINEAR, Quantization, Rule, WeightScheme
from onecat.checkpoints.quantization.registry import Matrix, Stored, flavour, layout

EMBEDDING = "embedding"
"""The `format` of a table, whose tensors have names of their own."""


@flavour("gemma")
def gemma(claim: Claim) -> Quantization:
    ignored = claim.words("modules_to_not_convert")
    bits = claim.bits("num_bits") or 4
    tables = claim.flag("quantize_embeddings")
    rules = [Rule(each, None, "components") for each in ignored]
    for pattern, changed in claim.parts("module_quant_configs"):
        rules += _rules(pattern, changed.bits("num_bits") or bits, tables)
    rules += _rules("", bits, tables)
    return schemes.quantization("gemma", "gemma", rules, ignored=ignored)


def _rules(pattern: str, bits: int, tables: bool) -> Iterator[Rule]:
    scheme = schemes.integer(bits, None, packed=8 // bits if bits < 8 else 1)
    yield Rule(pattern, scheme, "search", LINEAR)
    if tables:
        yield Rule(pattern, replace(scheme, format=EMBEDDING), "search", ("embedding",))


@layout("gemma")
def tensors(matrix: Matrix, scheme: WeightScheme) -> Iterator[Stored]:
    """Codes without gaps within a row, a float32 scale for each row, and two for the activations of a linear module."""
    row = (*matrix.outer, matrix.out)
    columns, dtype = (matrix.into, "I8") if scheme.packed == 1 else (-(-matrix.into // scheme.packed), "U8")
    if scheme.format == EMBEDDING:
        yield Stored(".embedding_quantized", dtype, (*row, columns))
        yield Stored(".embedding_scale", "F32", (*row, 1))
        return
    yield Stored(".weight", dtype, (*row, columns))
    yield Stored(".weight_scale", "F32", (*row, 1))
    yield Stored(".input_activation_scale", "F32", ())
    yield Stored(".output_activation_scale", "F32", ())
