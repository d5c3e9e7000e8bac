"""The matrices of a checkpoint, each with what it is in the model."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from onecat.checkpoints import Architecture, describe
from onecat.checkpoints.architectures import StateLayers, Weight
from onecat.checkpoints.architectures.naming import named
from onecat.checkpoints.architectures.records import WeightKind
from onecat.nvfp4.conversion.records import Matrix, Place
from onecat.nvfp4.rewriting import SourceFiles, SourceTensor

_EXPERT = re.compile(r"\.experts\.[0-9]+(?=\.|\Z)")
WEIGHT = ".weight"
WRAPPERS = ("model", "language_model", "thinker")
"""Parts of names that libraries put before others, or leave out."""

GATE_UP, DOWN = ".experts.gate_up_proj", ".experts.down_proj"
"""Tensors that hold all experts of a layer."""

TRANSPOSED = ("gpt2",)
"""Families whose matrices are stored [in_features, out_features]. Source: transformers' pytorch_utils.py (Conv1D)."""

_STATE_SPACE = re.compile(r"\.(?:mamba|mixer)\.")


def matrices(architecture: Architecture, config: Mapping[str, Any], source: SourceFiles) -> Iterator[Matrix]:
    """All tensors of two axes and more, in the order of the files.

    Libraries moved the language model's place between versions: `model.language_model.layers` is `model.layers`, too.
    One that the architecture does not have is of the kind `other`: no engine can be expected to load it. A tensor with
    all experts of a layer gives the matrices of each, named as quantised checkpoints of that family name them; where
    the family has no such names it is one of three axes.
    """
    known = {each.name: each for each in architecture.weights}
    elsewhere = {_bare(each.name): each for each in architecture.weights}
    apart = _names_when_quantised(config)
    states = _state_layers(architecture)
    for name, tensor in source.tensors.items():
        if len(tensor.shape) < 2:
            continue
        described = _EXPERT.sub(".experts.*", name)
        weight = known.get(described) or elsewhere.get(_bare(described))
        if weight is not None and _is_joint(name, tensor, weight) and _is_separate(name, apart):
            yield from _experts(name, tensor, weight, architecture.model_type or "")
            continue
        kind: WeightKind = "other" if weight is None else weight.kind
        if weight is not None and weight.layer in states and _STATE_SPACE.search(name):
            kind = "state"
        elif architecture.model_type in TRANSPOSED and kind == "linear":
            kind = "other"
        part = named(name, tensor.shape).part if weight is None else weight.part
        layer = None if weight is None else weight.layer
        yield Matrix(name.removesuffix(WEIGHT), name, tensor.dtype, tensor.shape, tensor.bytes, kind, part, layer)


def _bare(name: str) -> str:
    """A name without the parts that libraries put before it, or leave out."""
    return ".".join(part for part in name.split(".") if part not in WRAPPERS)


def _state_layers(architecture: Architecture) -> frozenset[int]:
    """Layers with a state space that vLLM 0.27.1 holds without quantisation.

    Source: vllm/model_executor/layers/mamba/mamba_mixer.py, which takes no quantisation, as mamba_mixer2.py does.
    """
    return frozenset(
        layer
        for each in architecture.caches
        if isinstance(each, StateLayers) and each.kind == "mamba1"
        for layer in each.layers
    )


def _names_when_quantised(config: Mapping[str, Any]) -> frozenset[str]:
    """Bare names of the weights that a quantised checkpoint of this model has (`experts_as_published`)."""
    return frozenset(
        _bare(each.name)
        for each in describe({**config, "quantization_config": {"quant_method": "compressed-tensors"}}).weights
    )


def _is_joint(name: str, tensor: SourceTensor, weight: Weight) -> bool:
    return name.endswith((GATE_UP, DOWN)) and len(tensor.shape) == 3 and tensor.shape[0] == weight.count


def _is_separate(name: str, names: Collection[str]) -> bool:
    stem, _, last = _bare(name).rpartition(".")
    return f"{stem}.*.{'gate_proj' if last == 'gate_up_proj' else last}{WEIGHT}" in names


def _experts(name: str, tensor: SourceTensor, weight: Weight, model_type: str) -> Iterator[Matrix]:
    """gate_proj and up_proj, or down_proj, of each expert; the gate comes first.

    Source: transformers' modeling_llama4.py (Llama4TextExperts: [experts, in, out]), modeling_qwen3_5_moe.py and
    modeling_gemma4.py ([experts, out, in]).
    """
    out, into = weight.shape
    count, *sides = tensor.shape
    transposed = model_type.startswith("llama4") if out == into else tuple(sides) == (into, out)
    stem, _, last = name.rpartition(".")
    names = ("gate_proj", "up_proj") if last == "gate_up_proj" else (last,)
    rows = out // len(names)
    for expert in range(count):
        for position, each in enumerate(names):
            place = Place(expert, position * rows, (position + 1) * rows, transposed)
            yield Matrix(
                f"{stem}.{expert}.{each}", name, tensor.dtype, (rows, into), tensor.bytes // count // len(names),
                weight.kind, weight.part, weight.layer, place,
            )  # fmt: skip
