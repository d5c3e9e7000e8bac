"""Decoders with mixtures of experts: embedding, blocks of attention and feed-forward network, norm and head."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from onecat.checkpoints.architectures import weights
from onecat.checkpoints.architectures.configuration import Configuration
from onecat.checkpoints.architectures.description import common
from onecat.checkpoints.architectures.next_token_layers import next_token_layer
from onecat.checkpoints.architectures.records import Architecture, Cache, Experts, Weight

Block = Callable[[str, int], Iterator[Weight]]
"""The parameters of a part of a layer, from the layer's name (`model.layers.3`) and its index."""

NORMS = ("input_layernorm", "post_attention_layernorm")


def sparse_decoder(
    configuration: Configuration,
    attention: Block,
    feed_forward: Block,
    caches: tuple[Cache, ...],
    experts: Experts | None,
    *,
    prefix: str = "model.",
    head: str = "lm_head",
    tied: bool = False,
    next_token_layers: int = 0,
    draft_caches: tuple[Cache, ...] = (),
) -> Architecture:
    """A decoder of such blocks.

    Parameters:
        tied: whether the head is the embedding, where the configuration does not say.
        next_token_layers: as many further blocks as drafts, with the names of DeepSeek-V3.

    Raises IncompleteConfiguration.
    """
    base = common(configuration)
    ties = configuration.ties(tied)
    hidden, vocabulary = configuration.positive("hidden_size"), configuration.positive("vocab_size")
    layers = configuration.integer("num_hidden_layers")

    def block(layer: int) -> Iterator[Weight]:
        name = f"{prefix}layers.{layer}"
        yield from weights.norms(f"{name}.", NORMS, hidden, layer)
        yield from attention(name, layer)
        yield from feed_forward(name, layer)

    def parameters() -> Iterator[Weight]:
        yield from weights.embeddings(prefix, vocabulary, hidden, ties, head)
        for layer in range(layers):
            yield from block(layer)
        yield weights.norm(f"{prefix}norm", hidden)
        for layer in range(layers, layers + next_token_layers):
            yield from next_token_layer(f"{prefix}layers.{layer}", layer, hidden, vocabulary, block(layer))

    everywhere = experts is not None and len(experts.layers) == layers
    return base.replaced(
        tied_embeddings=ties,
        intermediate_size=experts.shared_intermediate_size if experts and everywhere else base.intermediate_size,
        caches=tuple(each for each in caches if each.layers),
        draft_caches=draft_caches,
        weights=tuple(parameters()),
        experts=experts if experts is not None and experts.layers else None,
    )
