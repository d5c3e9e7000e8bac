"""From config.json and the files beside it to a `Quantization`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from onecat.checkpoints.architectures.configuration import LANGUAGE_MODEL_PARTS
from onecat.checkpoints.quantization.claim import Claim
from onecat.checkpoints.quantization.kv_cache import asked_kv_cache
from onecat.checkpoints.quantization.records import Quantization
from onecat.checkpoints.quantization.registry import readers

SIDE_FILES = ("hf_quant_config.json", "quant_config.json", "quantize_config.json", "quantization_config.json")
"""Files that describe quantisation beside config.json: ModelOpt's, AWQ's, GPTQ's and AutoRound's (get_config_filenames
of the classes in https://github.com/vllm-project/vllm/tree/v0.27.1/vllm/model_executor/layers/quantization)."""

SIGNS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("modelopt", ("quant_algo", "quantization", "quantized_layers")),
    ("compressed-tensors", ("config_groups", "weights")),
    ("fp8", ("weight_block_size", "activation_scheme")),
    ("bitsandbytes", ("load_in_4bit", "load_in_8bit", "_load_in_4bit", "bnb_4bit_quant_type")),
    ("awq", ("zero_point", "w_bit", "q_group_size")),
    ("gptq", ("desc_act", "damp_percent")),
)
"""Fields that tell the method where `quant_method` is missing."""

METHODS_OF_FILES = {"quant_config.json": "awq", "quantize_config.json": "gptq", "hf_quant_config.json": "modelopt"}


def read_quantization(documents: Mapping[str, Mapping[str, Any]]) -> Quantization | None:
    """What a checkpoint claims of the storage of its weights; None for weights as they were trained.

    Parameters:
        documents: JSON documents by file name: config.json, hf_quant_config.json, quant_config.json, ...
    """
    claim = stated_claim(documents)
    if claim is None:
        return None
    method = stated_method(claim)
    if method is None:
        return None
    reader = readers().get(method.lower())
    if reader is None:
        return Quantization("unknown", method, method, kv_cache=asked_kv_cache(claim), stated_in=claim.where)
    return replace(reader(claim), stated_in=claim.where)


def stated_claim(documents: Mapping[str, Mapping[str, Any]]) -> Claim | None:
    """The part of the documents that engines read: config.json's own first.

    https://github.com/vllm-project/vllm/blob/v0.27.1/vllm/transformers_utils/config.py (get_config),
    .../model_executor/model_loader/weight_utils.py (get_quant_config)
    """
    claim = next(_claims(documents), None)
    layers = Claim(documents.get("hf_quant_config.json", {})).part("quantization")
    if claim is None or layers is None or claim.has("quantized_layers", "quantization"):
        return claim
    if (claim.word("quant_algo") or "").upper() == "MIXED_PRECISION" and layers.has("quantized_layers"):
        return Claim({**claim.stated, "quantized_layers": layers.stated["quantized_layers"]}, claim.where)
    return claim


def _claims(documents: Mapping[str, Mapping[str, Any]]) -> Iterator[Claim]:
    config = documents.get("config.json", {})
    places = [config, *(config.get(name) for name in LANGUAGE_MODEL_PARTS)]
    for place in places:
        for name in ("quantization_config", "compression_config"):
            if isinstance(place, Mapping) and isinstance(place.get(name), Mapping) and place[name]:
                yield Claim(place[name])
    for name in SIDE_FILES:
        if isinstance(documents.get(name), Mapping) and documents[name]:
            yield Claim(documents[name], name)


def stated_method(claim: Claim) -> str | None:
    """`quant_method`, or the method that the other fields or the file's name tell."""
    method = claim.word("quant_method", "quantization_method", "method")
    if method is None:
        method = next((method for method, signs in SIGNS if claim.has(*signs)), None)
    if method is None and claim.has("bits", "group_size", "quant_algo"):
        method = METHODS_OF_FILES.get(claim.where)
    return method
