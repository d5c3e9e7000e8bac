"""Mamba beside or between attention: Granite 4, Bamba, Falcon-H1 and Jamba."""

from __future__ import annotations

from collections.abc import Iterator

from onecat.checkpoints.architectures import weights
from onecat.checkpoints.architectures.configuration import Configuration, IncompleteConfiguration
from onecat.checkpoints.architectures.description import common
from onecat.checkpoints.architectures.grouped_attention import GroupedAttention
from onecat.checkpoints.architectures.mamba import Mamba1, Mamba2
from onecat.checkpoints.architectures.mixtures import granite_mixture, router, separate_experts
from onecat.checkpoints.architectures.records import Architecture, Experts, Weight
from onecat.checkpoints.architectures.registry import family
from onecat.checkpoints.architectures.sparse_decoder import Block

ATTENTION = ("attention", "full_attention")
"""Words for attention in `layer_types`, the second of transformers from 5."""


@family("GraniteMoeHybridForCausalLM")
def granite_hybrid(configuration: Configuration) -> Architecture:
    """A network that all tokens share in every layer, beside experts where there are any.

    Source: transformers' modeling_granitemoehybrid.py; vllm 0.27.1, vllm/model_executor/models/granitemoehybrid.py
    (`load_weights`: the names of checkpoints).
    """
    hidden, attention = configuration.positive("hidden_size"), GroupedAttention.of(configuration)
    layers, bias = configuration.integer("num_hidden_layers"), configuration.flag("attention_bias")
    kinds = configuration.words("layer_types") or configuration.words("layers_block_type") or ("mamba",) * layers
    if len(kinds) != layers:
        raise IncompleteConfiguration(f"`layer_types` in config.json does not tell {layers} layers")
    mamba = _mamba2(configuration, hidden)
    count, inner = configuration.count("num_local_experts"), configuration.positive("intermediate_size")
    shared = configuration.positive("shared_intermediate_size")
    attending = tuple(index for index, kind in enumerate(kinds) if kind in ATTENTION)
    others = tuple(index for index in range(layers) if index not in attending)

    def layer_weights(name: str, layer: int) -> Iterator[Weight]:
        yield from weights.norms(f"{name}.", ("input_layernorm", "post_attention_layernorm"), hidden, layer)
        if layer in attending:
            yield from attention.weights(f"{name}.self_attn", layer, bias=bias, output_bias=bias)
        else:
            yield from mamba.weights(f"{name}.mamba", layer)
        if count:
            yield from granite_mixture(f"{name}.block_sparse_moe", layer, hidden, inner, count)
        yield from weights.linear(f"{name}.shared_mlp.input_linear", 2 * shared, hidden, layer)
        yield from weights.linear(f"{name}.shared_mlp.output_linear", hidden, shared, layer)

    def parameters() -> Iterator[Weight]:
        yield from _embeddings(configuration, hidden, True)
        for layer in range(layers):
            yield from layer_weights(f"model.layers.{layer}", layer)
        yield weights.norm("model.norm", hidden)

    per_token = configuration.count("num_experts_per_tok")
    caches = attention.cache(attending), mamba.cache(others)
    return common(configuration).replaced(
        tied_embeddings=configuration.ties(True),
        intermediate_size=shared,
        caches=tuple(each for each in caches if each.layers),
        weights=tuple(parameters()),
        experts=Experts(tuple(range(layers)), count, per_token, inner, shared) if count else None,
    )


@family("BambaForCausalLM")
def bamba(configuration: Configuration) -> Architecture:
    """Source: transformers' modeling_bamba.py."""
    hidden, attention = configuration.positive("hidden_size"), GroupedAttention.of(configuration)
    layers, bias = configuration.integer("num_hidden_layers"), configuration.flag("attention_bias")
    stated = configuration.text.get("attn_layer_indices")
    attending = tuple(index for index in range(layers) if index in stated) if isinstance(stated, list) else ()
    others = tuple(index for index in range(layers) if index not in attending)
    mamba = _mamba2(configuration, hidden)

    def layer_weights(name: str, layer: int) -> Iterator[Weight]:
        if layer in attending:
            yield from attention.weights(f"{name}.self_attn", layer, bias=bias, output_bias=bias)
        else:
            yield from mamba.weights(f"{name}.mamba", layer)
        yield from weights.gated_mlp(f"{name}.feed_forward", layer, hidden, configuration.positive("intermediate_size"))

    described = _described(configuration, hidden, layers, layer_weights)
    caches = attention.cache(attending), mamba.cache(others)
    return described.replaced(caches=tuple(each for each in caches if each.layers))


@family("FalconH1ForCausalLM")
def falcon_h1(configuration: Configuration) -> Architecture:
    """Each layer has attention and Mamba side by side.

    Source: transformers' modeling_falcon_h1.py.
    """
    hidden, attention = configuration.positive("hidden_size"), GroupedAttention.of(configuration)
    layers, bias = configuration.integer("num_hidden_layers"), configuration.flag("attention_bias")
    mamba = _mamba2(configuration, hidden, gate_norm=configuration.flag("mamba_rms_norm"))

    def layer_weights(name: str, layer: int) -> Iterator[Weight]:
        yield from mamba.weights(f"{name}.mamba", layer)
        yield from attention.weights(f"{name}.self_attn", layer, bias=bias, output_bias=bias)
        inner = configuration.positive("intermediate_size")
        mlp_bias = configuration.flag("mlp_bias")
        yield from weights.gated_mlp(f"{name}.feed_forward", layer, hidden, inner, bias=mlp_bias)

    every = tuple(range(layers))
    described = _described(configuration, hidden, layers, layer_weights)
    return described.replaced(caches=(attention.cache(every), mamba.cache(every)))


@family("JambaForCausalLM")
def jamba(configuration: Configuration) -> Architecture:
    """Mamba 1 with attention in one layer of a period, and experts in every second.

    Source: transformers' modeling_jamba.py.
    """
    hidden, attention = configuration.positive("hidden_size"), GroupedAttention.of(configuration)
    layers, bias = configuration.integer("num_hidden_layers"), configuration.flag("attention_bias")
    attending = _periodic(configuration, "attn_layer", layers, 8, 4)
    mixed = _periodic(configuration, "expert_layer", layers, 2, 1)
    count, inner = configuration.positive("num_experts", default=16), configuration.positive("intermediate_size")
    mixed = mixed if count > 1 else ()
    others = tuple(index for index in range(layers) if index not in attending)
    rank = configuration.count("mamba_dt_rank") or -(-hidden // 16)
    mamba = Mamba1(
        hidden,
        hidden * configuration.positive("mamba_expand", default=2),
        configuration.positive("mamba_d_state", default=16),
        configuration.positive("mamba_d_conv", default=4),
        rank,
        configuration.flag("mamba_proj_bias"),
        configuration.flag("mamba_conv_bias", True),
    )

    def layer_weights(name: str, layer: int) -> Iterator[Weight]:
        if layer in attending:
            yield from attention.weights(f"{name}.self_attn", layer, bias=bias, output_bias=bias)
        else:
            yield from mamba.weights(f"{name}.mamba", layer)
        if layer in mixed:
            yield from router(f"{name}.feed_forward.router", count, hidden, layer)
            yield from separate_experts(f"{name}.feed_forward.experts", layer, hidden, inner, count)
        else:
            yield from weights.gated_mlp(f"{name}.feed_forward", layer, hidden, inner)

    described = _described(configuration, hidden, layers, layer_weights)
    caches = attention.cache(attending), mamba.cache(others)
    per_token = configuration.positive("num_experts_per_tok", default=2)
    return described.replaced(
        caches=tuple(each for each in caches if each.layers),
        experts=Experts(mixed, count, per_token, inner) if mixed else None,
    )


def _mamba2(configuration: Configuration, hidden: int, *, gate_norm: bool = True) -> Mamba2:
    heads = configuration.positive("mamba_n_heads")
    inner = configuration.count("mamba_d_ssm") or hidden * configuration.positive("mamba_expand", default=2)
    stated = configuration.count("mamba_d_head")
    return Mamba2(
        hidden,
        heads,
        stated or inner // heads,
        configuration.positive("mamba_n_groups", default=1),
        configuration.positive("mamba_d_state"),
        configuration.positive("mamba_d_conv", default=4),
        configuration.flag("mamba_proj_bias"),
        configuration.flag("mamba_conv_bias", True),
        gate_norm=gate_norm,
        speculates=False,
        chunk=configuration.optional("mamba_chunk_size") or None,
    )


def _described(configuration: Configuration, hidden: int, layers: int, layer_weights: Block) -> Architecture:
    """Names that Bamba, Falcon-H1 and Jamba share."""

    def parameters() -> Iterator[Weight]:
        yield from _embeddings(configuration, hidden, False)
        for layer in range(layers):
            name = f"model.layers.{layer}"
            yield from weights.norms(f"{name}.", ("input_layernorm", "pre_ff_layernorm"), hidden, layer)
            yield from layer_weights(name, layer)
        yield weights.norm("model.final_layernorm", hidden)

    return common(configuration).replaced(weights=tuple(parameters()))


def _embeddings(configuration: Configuration, hidden: int, tied: bool) -> Iterator[Weight]:
    return weights.embeddings("model.", configuration.positive("vocab_size"), hidden, configuration.ties(tied))


def _periodic(configuration: Configuration, name: str, layers: int, period: int, offset: int) -> tuple[int, ...]:
    step = configuration.positive(f"{name}_period", default=period)
    first = configuration.integer(f"{name}_offset", default=offset)
    return tuple(index for index in range(layers) if index % step == first)
