"""Dense decoders: what most families share, with the ways in which they differ as a `Style`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from onecat.checkpoints.architectures import weights
from onecat.checkpoints.architectures.configuration import Configuration
from onecat.checkpoints.architectures.description import common
from onecat.checkpoints.architectures.grouped_attention import GroupedAttention
from onecat.checkpoints.architectures.layers import LayerRule, alike, windows
from onecat.checkpoints.architectures.records import Architecture, Weight
from onecat.checkpoints.architectures.weights import QueryKeyNorm


@dataclass(frozen=True)
class Style:
    """How a family's decoder differs from Llama's.

    prefix: before `layers.N`; head: module of the output head. attention_bias, output_bias, mlp_bias: of q, k and v,
    of o_proj, of the feed-forward network; None for as the configuration says. fused: q, k and v are one matrix, and
    have no norms; fused_mlp: gate and up are one. plain_mlp: up and down of a feed-forward network without a gate.
    norms: of one layer; norm_bias: they have one. tied: when nothing says.
    """

    prefix: str = "model."
    head: str = "lm_head"
    attention_bias: bool | None = None
    output_bias: bool | None = None
    mlp_bias: bool | None = None
    query_key_norm: QueryKeyNorm | None = None
    fused: bool = False
    fused_mlp: bool = False
    plain_mlp: tuple[str, str] | None = None
    norms: tuple[str, ...] = ("input_layernorm", "post_attention_layernorm")
    norm_bias: bool = False
    tied: bool = False


LLAMA = Style()


def decoder(configuration: Configuration, style: Style = LLAMA, sliding: LayerRule | None = None) -> Architecture:
    """A dense decoder, every layer with the same shapes.

    Parameters:
        sliding: which layers have the window that the configuration states, where it has no `layer_types`.

    Raises IncompleteConfiguration.
    """
    tied = configuration.ties(style.tied)
    layers = configuration.integer("num_hidden_layers")
    attention = GroupedAttention.of(configuration)
    hidden, per_layer = attention.hidden, windows(configuration, layers, sliding)
    caches = alike(attention.cache((layer,), window) for layer, window in enumerate(per_layer))

    def parameters() -> Iterator[Weight]:
        vocabulary = configuration.positive("vocab_size")
        yield from weights.embeddings(style.prefix, vocabulary, hidden, tied, style.head)
        for layer in range(layers):
            yield from layer_of(configuration, style, f"{style.prefix}layers.{layer}", layer)
        yield from weights.norms(style.prefix, ("norm",), hidden, bias=style.norm_bias)

    return common(configuration).replaced(tied_embeddings=tied, caches=caches, weights=tuple(parameters()))


def layer_of(configuration: Configuration, style: Style, prefix: str, layer: int) -> Iterator[Weight]:
    """The parameters of one layer of such a decoder.

    Parameters:
        prefix: the layer's name (`model.layers.3`).

    Raises IncompleteConfiguration.
    """
    attention, name = GroupedAttention.of(configuration), f"{prefix}.self_attn"
    hidden = attention.hidden
    stated = configuration.flag("attention_bias")
    bias = stated if style.attention_bias is None else style.attention_bias
    output_bias = stated if style.output_bias is None else style.output_bias
    mlp_bias = configuration.flag("mlp_bias") if style.mlp_bias is None else style.mlp_bias
    inner = configuration.positive("intermediate_size")
    if style.fused:
        yield from weights.linear(f"{name}.qkv_proj", attention.fused_rows, hidden, layer, bias=bias)
        yield from weights.linear(f"{name}.o_proj", hidden, attention.inner, layer, bias=output_bias)
    else:
        yield from attention.weights(
            name, layer, bias=bias, output_bias=output_bias, query_key_norm=style.query_key_norm
        )
    if style.plain_mlp is not None:
        into, out = style.plain_mlp
        yield from weights.linear(f"{prefix}.mlp.{into}", inner, hidden, layer, bias=mlp_bias)
        yield from weights.linear(f"{prefix}.mlp.{out}", hidden, inner, layer, bias=mlp_bias)
    elif style.fused_mlp:
        yield from weights.linear(f"{prefix}.mlp.gate_up_proj", 2 * inner, hidden, layer, bias=mlp_bias)
        yield from weights.linear(f"{prefix}.mlp.down_proj", hidden, inner, layer, bias=mlp_bias)
    else:
        yield from weights.gated_mlp(f"{prefix}.mlp", layer, hidden, inner, bias=mlp_bias)
    yield from weights.norms(f"{prefix}.", style.norms, hidden, layer, bias=style.norm_bias)
