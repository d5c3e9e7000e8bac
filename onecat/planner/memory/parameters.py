"""The tensors of a checkpoint, each with what is known of the weight that it is part of."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass

from onecat.checkpoints import Architecture, Checkpoint, StoredTensors, WeightScheme
from onecat.checkpoints.architectures import KeyValueLayers, Weight
from onecat.checkpoints.architectures.records import Part
from onecat.checkpoints.quantization.storage import stored_tensors
from onecat.planner.memory.itself import Itself

_SUFFIXES = (
    ".weight_packed", ".weight_scale_inv", ".weight_scale_2", ".weight_scale", ".weight_global_scale",
    ".weight_zero_point", ".weight_shape", ".weight_g_idx", ".input_global_scale", ".input_scale", ".input_zero_point",
    ".qweight", ".qzeros", ".scales", ".g_idx", "_blocks", "_scales", "_bias", ".weight", ".bias", ".k_scale",
    ".v_scale", "_scale_inv", "_scale_2", "_weight_scale", "_scale", "_packed",
)  # fmt: skip
_NUMBER = re.compile(r"(?<=\.)[0-9]+(?=\.)")
_LAYER = re.compile(r"(?:^|\.)(?:layers|h|blocks|block)\.(\d+)\.")
_TOWER = re.compile(
    r"(?:^|\.)(?:visual|vision\w*|audio\w*|multi_modal_projector|mm_projector|embed_(?:vision|audio))\."
)
_DRAFT = re.compile(r"(?:^|\.)(?:mtp|nextn|eagle)\w*\.")


@dataclass(frozen=True)
class Parameter:
    """A stored tensor. weight: of the architecture that it belongs to; suffix: the end of its name after the module.

    scheme: of its quantisation, None for a tensor as it was trained.
    """

    row: StoredTensors
    weight: Weight
    suffix: str
    scheme: WeightScheme | None

    @property
    def experts(self) -> int:
        """How many experts the row holds, 1 for what is no expert."""
        return self.weight.count


def parameters_alike(checkpoint: Checkpoint) -> tuple[tuple[Parameter, tuple[int | None, ...]], ...]:
    """Parameters that differ only in their layer as one of them, with the layers that have one.

    A model has a few dozen of these and thousands of parameters, and a search for a layout asks for them a hundred
    times.
    """
    return _alike(Itself(checkpoint))


def absorbed(checkpoint: Checkpoint) -> tuple[Weight, ...]:
    """The weights that latent attention takes apart: kv_b_proj of each layer."""
    return _absorbed(Itself(checkpoint))


@functools.lru_cache(maxsize=8)
def _absorbed(key: Itself[Checkpoint]) -> tuple[Weight, ...]:
    return tuple(each for each in key.of.architecture.weights if each.name.endswith("kv_b_proj.weight"))


@functools.lru_cache(maxsize=8)
def _alike(key: Itself[Checkpoint]) -> tuple[tuple[Parameter, tuple[int | None, ...]], ...]:
    architecture = key.of.architecture
    caches = (*architecture.caches, *architecture.draft_caches)
    heads: dict[int | None, KeyValueLayers] = {
        layer: each for each in reversed(caches) if isinstance(each, KeyValueLayers) for layer in each.layers
    }
    groups: dict[tuple[object, ...], list[Parameter]] = {}
    for each in parameters(key.of):
        groups.setdefault((_without_layer(each), heads.get(each.weight.layer)), []).append(each)
    return tuple((those[0], tuple(each.weight.layer for each in those)) for those in groups.values())


def _without_layer(parameter: Parameter) -> tuple[object, ...]:
    weight, row = parameter.weight, parameter.row
    name = _NUMBER.sub("*", weight.name)
    own = (name, weight.shape, weight.kind, weight.count, weight.part, weight.layer is None)
    return (own, _NUMBER.sub("*", row.name), row.dtype, row.shape, row.count, parameter.suffix, parameter.scheme)


def parameters(checkpoint: Checkpoint) -> tuple[Parameter, ...]:
    """All tensors: those of the headers where there are weight files, else those that the architecture implies.

    Keys that are values too (Gemma 4's global layers) come twice: an engine loads k_proj into both places.
    Source: vllm/model_executor/models/gemma4.py (Gemma4Attention).
    """
    found = tuple(_parameters(checkpoint))
    double = _without_values(checkpoint.architecture)
    return (*found, *(each for each in found if each.weight.layer in double and each.weight.module.endswith(".k_proj")))


def _without_values(architecture: Architecture) -> set[int | None]:
    """Layers of the decoder that project keys and not values, in a model whose other layers project both."""
    own = [each for each in architecture.weights if each.part == "language" and each.layer is not None]
    values = {each.layer for each in own if each.module.endswith(".v_proj")}
    return {each.layer for each in own if values and each.module.endswith(".k_proj")} - values


def _parameters(checkpoint: Checkpoint) -> Iterator[Parameter]:
    architecture, quantization = checkpoint.architecture, checkpoint.quantization
    if not checkpoint.tensors:
        container = quantization.container if quantization is not None else None
        for weight in architecture.weights:
            scheme = quantization.scheme_for(weight) if quantization is not None else None
            for row in stored_tensors(weight, scheme, container, architecture.dtype):
                yield Parameter(row, weight, row.name[len(stem_of(weight.name)) :], scheme)
        return
    known = {stem_of(each.name): each for each in architecture.weights if each.kind != "bias"}
    known |= {each.name: each for each in architecture.weights}
    quantised = {stem_of(each.name) for each in checkpoint.tensors if _is_scale(each.name)}
    for row in checkpoint.tensors:
        stem = stem_of(row.name)
        weight = known.get(row.name) or known.get(stem) or _guess(row, architecture)
        scheme = quantization.scheme_for(weight) if quantization is not None and stem in quantised else None
        yield Parameter(row, weight, row.name[len(stem) :], scheme)


def stem_of(name: str) -> str:
    """The name of the module or parameter that a tensor is part of: without `.weight`, `.weight_scale`, ..."""
    for suffix in _SUFFIXES:
        if name.endswith(suffix):
            return name[: -len(suffix)]
    return name


def _is_scale(name: str) -> bool:
    return name.endswith(("scale", "scale_inv", "scale_2", "scales", "qzeros"))


def _guess(row: StoredTensors, architecture: Architecture) -> Weight:
    """What the name alone tells of a tensor that the architecture does not have."""
    found = _LAYER.search(row.name)
    layer = int(found[1]) if found else None
    if _TOWER.search(row.name):
        return Weight(row.name, row.shape, "other", layer, row.count, "vision")
    beyond = layer is not None and architecture.layers is not None and layer >= architecture.layers
    part: Part = "draft" if beyond or _DRAFT.search(row.name) else "language"
    return Weight(row.name, row.shape, "other", layer, row.count, part)
