"""What a model is made of: its parameters, and what its layers keep for each token or sequence."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Literal

Part = Literal["language", "vision", "audio", "draft"]
"""draft: layers for speculative decoding (MTP), which an engine loads only when it is asked to."""

WeightKind = Literal["embedding", "head", "linear", "router", "norm", "convolution", "state", "bias", "other"]
"""linear: a matrix that quantisation may touch. router: the gate of a mixture of experts. state: A_log, dt_bias, ..."""


@dataclass(frozen=True, slots=True)
class Weight:
    """A parameter tensor as the unquantised checkpoint has it, or several alike.

    name: of the tensor in the checkpoint, with `*` for the expert's number where `count` are alike; without it, and
    `count` more than one, a single tensor holds all of them along its first axis (or transposed, as Llama 4's).
    shape: [out_features, in_features] of a linear weight, of one expert.
    layer: index of the decoder layer, None outside of them.
    dtype: as safetensors names it, of a tensor that is stored in a dtype of its own; None for the model's.
    """

    name: str
    shape: tuple[int, ...]
    kind: WeightKind = "linear"
    layer: int | None = None
    count: int = 1
    part: Part = "language"
    dtype: str | None = None

    @property
    def module(self) -> str:
        """The module that the tensor belongs to, as lists of ignored modules name it."""
        return self.name.rpartition(".")[0]

    @property
    def elements(self) -> int:
        """Elements of all `count` tensors."""
        return math.prod(self.shape) * self.count


@dataclass(frozen=True)
class KeyValueLayers:
    """Layers alike that keep a key and a value of each token for each key-value head.

    layers: indices; a layer that reads another layer's keys and values is not among them.
    head_size, value_head_size: elements. window: tokens that a sliding window keeps; chunk: tokens of a local chunk.
    cross: keys and values are those of an encoder. sinks: with a learned sink per head.
    """

    layers: tuple[int, ...]
    query_heads: int
    key_value_heads: int
    head_size: int
    value_head_size: int
    window: int | None = None
    chunk: int | None = None
    cross: bool = False
    sinks: bool = False


@dataclass(frozen=True)
class LatentLayers:
    """Layers alike that keep one compressed vector of each token (multi-head latent attention).

    A layer that keeps a window of tokens and entries for several tokens as well is in two of these groups.
    latent_rank, rope_size: elements kept for each token, the same on every rank. index_head_size: elements of the
    indexer's key for each entry, in layers with sparse attention. compress_ratio: tokens that one entry stands for.
    """

    layers: tuple[int, ...]
    query_heads: int
    latent_rank: int
    rope_size: int
    window: int | None = None
    index_head_size: int | None = None
    compress_ratio: int = 1


@dataclass(frozen=True)
class State:
    """One state tensor of a sequence. name: `convolution` or `recurrent`. divided: the axis tensor parallelism divides.

    dtype: as the configuration states it (`float32`), None for the model's own. grows: the axis that is longer by one
    for each speculative token, None for none. groups, group_size: the divided axis holds so many groups of so many
    elements beside its heads; where the ranks do not divide the groups, it is widened to one group for each rank.
    """

    name: Literal["convolution", "recurrent"]
    shape: tuple[int, ...]
    divided: int
    dtype: str | None = None
    grows: int | None = None
    groups: int = 0
    group_size: int = 0

    def on_rank(self, tensor_parallel: int, speculative_tokens: int = 0) -> tuple[int, ...]:
        """The shape on one of `tensor_parallel` ranks. Raises ValueError when they do not divide the state.

        Source: vllm 0.27.1, vllm/model_executor/layers/mamba/mamba_utils.py (MambaStateShapeCalculator).
        """
        shape = list(self.shape)
        if self.groups % tensor_parallel:
            shape[self.divided] += (tensor_parallel - self.groups) * self.group_size
        if shape[self.divided] % tensor_parallel:
            raise ValueError(
                f"{shape[self.divided]} of the {self.name} state do not divide among {tensor_parallel} ranks"
            )
        shape[self.divided] //= tensor_parallel
        if self.grows is not None:
            shape[self.grows] += speculative_tokens
        return tuple(shape)


@dataclass(frozen=True)
class StateLayers:
    """Layers alike that keep a state of fixed size for each sequence, whatever its length.

    states: the shapes before tensor parallelism, with the dimension that it divides and what the state is.
    chunk: tokens that the layer's kernel works on at once, None where there is no such notion.
    """

    layers: tuple[int, ...]
    kind: Literal["gated-delta-net", "mamba1", "mamba2", "linear", "kimi-delta", "short-convolution"]
    states: tuple[State, ...]
    chunk: int | None = None


Cache = KeyValueLayers | LatentLayers | StateLayers


@dataclass(frozen=True)
class Experts:
    """A mixture of experts. layers: those that have it. intermediate_size: of one routed expert."""

    layers: tuple[int, ...]
    count: int
    per_token: int
    intermediate_size: int
    shared_intermediate_size: int = 0


@dataclass(frozen=True)
class Encoder:
    """A tower for pictures or sound. tokens: it puts into a prompt for one item at most, None when not known."""

    part: Literal["vision", "audio"]
    layers: int
    hidden_size: int
    intermediate_size: int
    heads: int
    tokens: int | None = None


@dataclass(frozen=True)
class Architecture:
    """A model as its configuration describes it. Sizes in elements; None where the configuration does not tell.

    name: the class in `architectures`; model_type: of the configuration; dtype: `bfloat16`.
    intermediate_size: of the widest feed-forward network that is not an expert, 0 without one.
    caches: what its layers keep, groups of layers alike; draft_caches: what the layers of the part "draft" keep
    where an engine loads them, their indices counted on from the last layer; weights: all parameters.
    rope_type: how positions are stretched (`yarn`), "several" when layers differ, None for not at all.
    rotary_share: of a head's elements that positions turn; rotary_sections: positions have several parts (mrope);
    rotary_windows: layers with a window turn positions by a base of their own.
    rotary_stretch: by what linear scaling lengthens the table of sines of layers without a window.
    estimated: why caches and weights are no more than an estimate; None when they follow from the configuration.
    """

    name: str | None = None
    model_type: str | None = None
    dtype: str | None = None
    layers: int | None = None
    hidden_size: int | None = None
    intermediate_size: int | None = None
    attention_heads: int | None = None
    key_value_heads: int | None = None
    head_size: int | None = None
    vocabulary_size: int | None = None
    max_position_embeddings: int | None = None
    rope_type: str | None = None
    rotary_share: float = 1.0
    rotary_sections: bool = False
    rotary_windows: bool = False
    rotary_stretch: float = 1.0
    tied_embeddings: bool = False
    caches: tuple[Cache, ...] = ()
    draft_caches: tuple[Cache, ...] = ()
    weights: tuple[Weight, ...] = ()
    experts: Experts | None = None
    encoders: tuple[Encoder, ...] = ()
    estimated: str | None = None

    @property
    def parameters(self) -> int:
        """Elements of all parameters, those of draft layers left out, as publishers count them."""
        return sum(each.elements for each in self.weights if each.part != "draft")

    def replaced(self, **fields: Any) -> Architecture:
        """The same with other values for these fields."""
        return replace(self, **fields)

    def with_tower(self, tower: Iterable[Weight], encoder: Encoder) -> Architecture:
        """The same with a tower more: its parameters after those that are there, what brings it in among them."""
        return replace(self, weights=(*self.weights, *tower), encoders=(*self.encoders, encoder))
