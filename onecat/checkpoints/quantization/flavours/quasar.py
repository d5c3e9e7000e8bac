"""`quasar_nvfp4`, which guides for Volta name, in config.json or in a quant_config.json beside it.

Its fields are `block_size` (or `group_size`) and `scale_bits`; it lists no modules, so the tensors tell which are
packed. The public checkpoint of that name is compressed-tensors in truth, and those are the tensors expected.
Source: https://github.com/1CatAI/1Cat-vLLM/pull/445.
"""

from __future__ import annotations

from collections.abc import Iterator

from onecat.checkpoints.quantization import schemes
from onecat.checkpoints.quantization.claim import Claim
from onecat.checkpoints.quantization.flavours import compressed_tensors
from onecat.checkpoints.quantization.kv_cache import asked_kv_cache
from onecat.checkpoints.quantization.records import LINEAR, Quantization, Rule, WeightScheme
from onecat.checkpoints.quantization.registry import Matrix, Stored, flavour, layout


@flavour("quasar_nvfp4")
def quasar(claim: Claim) -> Quantization:
    inner = claim.part("quantization") or claim
    ignored = inner.words("ignore", "exclude_modules", "modules_to_not_convert")
    size = inner.group_size("block_size", "group_size") or schemes.NVFP4_GROUP
    rules = [Rule(each, None, "components") for each in ignored]
    rules.append(Rule("*", schemes.nvfp4(group_size=size), "all", LINEAR, ("language",)))
    return schemes.quantization("quasar_nvfp4", "quasar_nvfp4", rules, ignored=ignored, kv_cache=asked_kv_cache(claim))


@layout("quasar_nvfp4")
def tensors(matrix: Matrix, scheme: WeightScheme) -> Iterator[Stored]:
    """As compressed-tensors lays NVFP4 out."""
    yield from compressed_tensors.tensors(matrix, scheme)
