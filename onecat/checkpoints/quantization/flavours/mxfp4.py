"""MXFP4 as gpt-oss publishes it: the experts, in blocks of 32 with a power of two each; all else as it was.

Source: vllm 0.27.1, vllm/model_executor/layers/quantization/mxfp4.py (linear modules are never quantised);
transformers, integrations/mxfp4.py (`_blocks`, `_scales`).
"""

from __future__ import annotations

from collections.abc import Iterator

from onecat.checkpoints.quantization import schemes
from onecat.checkpoints.quantization.claim import Claim
from onecat.checkpoints.quantization.records import LINEAR, Quantization, Rule, WeightScheme
from onecat.checkpoints.quantization.registry import Matrix, Stored, flavour, layout

CODES_IN_ROW = 16
"""Bytes of one block of 32 elements: the last axis of `_blocks`."""


@flavour("mxfp4", "gpt_oss_mxfp4")
def mxfp4(claim: Claim) -> Quantization:
    ignored = claim.words("modules_to_not_convert", "ignored_layers")
    rules = [Rule(each, None, "components") for each in ignored]
    rules.append(Rule("experts", schemes.mxfp4(), "components", LINEAR))
    return schemes.quantization("mxfp4", "mxfp4", rules, ignored=ignored)


@layout("mxfp4")
def tensors(matrix: Matrix, scheme: WeightScheme) -> Iterator[Stored]:
    blocks = -(-matrix.into // (scheme.group_size or schemes.MX_GROUP))
    stem = "" if matrix.joint else ".weight"
    yield Stored(f"{stem}_blocks", "U8", (*matrix.outer, matrix.out, blocks, CODES_IN_ROW))
    yield Stored(f"{stem}_scales", "U8", (*matrix.outer, matrix.out, blocks))
