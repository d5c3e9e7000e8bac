"""Kimi-K2.5, Kimi-K2 with a vision tower, and Kimi-Linear."""

from __future__ import annotations

from collections.abc import Iterator

from onecat.checkpoints.architectures import towers, weights
from onecat.checkpoints.architectures.configuration import Configuration, IncompleteConfiguration
from onecat.checkpoints.architectures.families.deepseek import deepseek_language_model
from onecat.checkpoints.architectures.latent_attention import LatentAttention
from onecat.checkpoints.architectures.mixtures import (
    grouped_router_mixture,
    layers_after_dense,
    numbered_experts,
    of_part,
)
from onecat.checkpoints.architectures.records import Architecture, Encoder, Experts, State, StateLayers, Weight
from onecat.checkpoints.architectures.registry import family
from onecat.checkpoints.architectures.sparse_decoder import sparse_decoder


@family("KimiK25ForConditionalGeneration")
def kimi_k25(configuration: Configuration) -> Architecture:
    """Source: vllm 0.27.1, vllm/model_executor/models/kimi_k25.py and kimi_k25_vit.py."""
    language = deepseek_language_model(configuration, "language_model.model.", "language_model.lm_head")
    vision = configuration.section("vision_config")
    if vision is None:
        return language
    encoder = Encoder(
        "vision",
        vision.positive("vt_num_hidden_layers"),
        vision.positive("vt_hidden_size"),
        vision.positive("vt_intermediate_size"),
        vision.positive("vt_num_attention_heads"),
    )
    tower = of_part("vision", _tower(vision, encoder, configuration.positive("hidden_size")))
    return language.with_tower(tower, encoder)


def _tower(vision: Configuration, encoder: Encoder, out: int) -> Iterator[Weight]:
    hidden, inner, patch = encoder.hidden_size, encoder.intermediate_size, vision.positive("patch_size")
    grid = (vision.positive("init_pos_emb_height"), vision.positive("init_pos_emb_width"), hidden)
    high, across = vision.pair("merge_kernel_size") or (2, 2)
    wide = hidden * high * across
    yield Weight("vision_tower.patch_embed.proj.weight", (hidden, 3, patch, patch), "convolution")
    yield Weight("vision_tower.patch_embed.proj.bias", (hidden,), "bias")
    yield Weight("vision_tower.patch_embed.pos_emb.weight", grid, "other")
    for index in range(encoder.layers):
        block = f"vision_tower.encoder.blocks.{index}."
        yield from weights.norms(block, ("norm0", "norm1"), hidden, bias=True)
        yield from weights.linear(f"{block}wqkv", 3 * hidden, hidden, bias=True)
        yield from weights.linear(f"{block}wo", hidden, hidden, bias=True)
        yield from towers.plain_mlp(f"{block}mlp.", ("fc0", "fc1"), hidden, inner)
    yield from weights.norms("vision_tower.encoder.", ("final_layernorm",), hidden, bias=True)
    yield from weights.norms("mm_projector.", ("pre_norm",), hidden, bias=True)
    yield from weights.linear("mm_projector.proj.0", wide, wide, bias=True)
    yield from weights.linear("mm_projector.proj.2", out, wide, bias=True)


@family("KimiLinearForCausalLM")
def kimi_linear(configuration: Configuration) -> Architecture:
    """Kimi delta attention with a state for each sequence, and latent attention in every fourth layer.

    Source: vllm 0.27.1, vllm/models/kimi_k3/nvidia/model.py and kda.py; transformers' modeling_kimi_linear.py.
    """
    latent = LatentAttention.of(configuration)
    hidden, layers = latent.hidden, configuration.integer("num_hidden_layers")
    linear, heads, head, kernel = _delta(configuration, layers)
    wide = heads * head
    count, inner = configuration.positive("num_experts"), configuration.positive("moe_intermediate_size")
    shared = inner * configuration.count("num_shared_experts")
    mixed = layers_after_dense(configuration, layers)

    def attention(name: str, layer: int) -> Iterator[Weight]:
        prefix = f"{name}.self_attn"
        if layer not in linear:
            yield from latent.weights(prefix, layer)
            return
        for each in ("q", "k", "v"):
            yield from weights.linear(f"{prefix}.{each}_proj", wide, hidden, layer)
            yield Weight(f"{prefix}.{each}_conv1d.weight", (wide, 1, kernel), "convolution", layer)
        yield Weight(f"{prefix}.A_log", (1, 1, heads, 1), "state", layer)
        yield Weight(f"{prefix}.dt_bias", (wide,), "state", layer)
        for each in ("f", "g"):
            yield from weights.linear(f"{prefix}.{each}_a_proj", head, hidden, layer)
            yield from weights.linear(f"{prefix}.{each}_b_proj", wide, head, layer)
        yield from weights.linear(f"{prefix}.b_proj", heads, hidden, layer)
        yield weights.norm(f"{prefix}.o_norm", head, layer)
        yield from weights.linear(f"{prefix}.o_proj", hidden, wide, layer)

    def feed_forward(name: str, layer: int) -> Iterator[Weight]:
        if layer not in mixed:
            yield from weights.gated_mlp(f"{name}.mlp", layer, hidden, configuration.positive("intermediate_size"))
            return
        yield from grouped_router_mixture(
            f"{name}.block_sparse_moe", layer, hidden, inner, count, shared, experts_of_layer=numbered_experts
        )

    convolution = State("convolution", (kernel - 1, 3 * wide), 1, grows=0)
    recurrent = State("recurrent", (heads, head, head), 0, "float32")
    full = tuple(index for index in range(layers) if index not in linear)
    return sparse_decoder(
        configuration,
        attention,
        feed_forward,
        (*latent.caches(full), StateLayers(linear, "kimi-delta", (convolution, recurrent))),
        Experts(mixed, count, configuration.positive("num_experts_per_token"), inner, shared),
    ).replaced(head_size=latent.plain_size + latent.rope_size)


def _delta(configuration: Configuration, layers: int) -> tuple[tuple[int, ...], int, int, int]:
    """Layers of Kimi delta attention, counted from 0, its heads, their size, and the convolution's kernel.

    Kimi's own files have them in `linear_attn_config`, with layers counted from 1; transformers from 5 does not.
    """
    stated = configuration.text.get("linear_attn_config")
    if not isinstance(stated, dict):
        kinds = configuration.words("layer_types")
        linear = tuple(index for index, kind in enumerate(kinds[:layers]) if kind == "linear_attention")
        part, names = configuration, ("linear_num_heads", "linear_head_dim", "linear_conv_kernel_dim")
    else:
        numbered = stated.get("kda_layers")
        if not isinstance(numbered, list):
            raise IncompleteConfiguration("config.json does not tell `kda_layers` in `linear_attn_config`")
        linear = tuple(index for index in range(layers) if index + 1 in numbered)
        part, names = Configuration(stated, stated), ("num_heads", "head_dim", "short_conv_kernel_size")
    heads, head, kernel = (part.positive(name) for name in names)
    return linear, heads, head, kernel
