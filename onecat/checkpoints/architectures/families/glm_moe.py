"""GLM-4.5, 4.6 and 4.7, and GLM-4.5V with a tower: ordinary attention, and the mixture of DeepSeek-V3."""

from __future__ import annotations

from collections.abc import Iterator

from onecat.checkpoints.architectures import towers, weights
from onecat.checkpoints.architectures.configuration import Configuration
from onecat.checkpoints.architectures.grouped_attention import GroupedAttention
from onecat.checkpoints.architectures.mixtures import grouped_router_mixture, layers_after_dense, of_part
from onecat.checkpoints.architectures.records import Architecture, Experts, Weight
from onecat.checkpoints.architectures.registry import family
from onecat.checkpoints.architectures.sparse_decoder import sparse_decoder


@family("Glm4MoeForCausalLM")
def glm4_moe(configuration: Configuration) -> Architecture:
    """Source: transformers' modeling_glm4_moe.py; vllm 0.27.1, vllm/model_executor/models/glm4_moe_mtp.py."""
    return _language_model(configuration, "model.")


@family("Glm4vMoeForConditionalGeneration")
def glm4v_moe(configuration: Configuration) -> Architecture:
    """Source: transformers' modeling_glm4v_moe.py."""
    language = _language_model(configuration, "model.language_model.")
    vision = configuration.section("vision_config")
    if vision is None:
        return language
    return language.with_tower(of_part("vision", _tower("model.visual.", vision)), towers.encoder(vision))


def _tower(prefix: str, vision: Configuration) -> Iterator[Weight]:
    hidden, out, patch = (
        vision.positive("hidden_size"),
        vision.positive("out_hidden_size"),
        vision.positive("patch_size"),
    )
    merge, inner = vision.positive("spatial_merge_size"), vision.positive("intermediate_size")
    volume = (
        vision.positive("in_channels", default=3),
        vision.positive("temporal_patch_size", default=2),
        patch,
        patch,
    )
    places = (vision.positive("image_size") // patch) ** 2
    bias = vision.flag("attention_bias")
    yield Weight(f"{prefix}embeddings.position_embedding.weight", (places, hidden), "embedding")
    yield Weight(f"{prefix}patch_embed.proj.weight", (hidden, *volume), "convolution")
    yield Weight(f"{prefix}patch_embed.proj.bias", (hidden,), "bias")
    yield from weights.norms(prefix, ("post_conv_layernorm", "post_layernorm"), hidden)
    for index in range(vision.integer("depth")):
        block = f"{prefix}blocks.{index}."
        yield from weights.norms(block, ("norm1", "norm2"), hidden)
        yield from weights.linear(f"{block}attn.qkv", 3 * hidden, hidden, bias=bias)
        yield from weights.linear(f"{block}attn.proj", hidden, hidden)
        yield from weights.gated_mlp(f"{block}mlp", None, hidden, out)
    yield Weight(f"{prefix}downsample.weight", (out, hidden, merge, merge), "convolution")
    yield Weight(f"{prefix}downsample.bias", (out,), "bias")
    yield from weights.linear(f"{prefix}merger.proj", out, out)
    yield from weights.norms(f"{prefix}merger.", ("post_projection_norm",), out, bias=True)
    yield from weights.gated_mlp(f"{prefix}merger", None, out, inner)


def _language_model(configuration: Configuration, prefix: str) -> Architecture:
    hidden, layers = configuration.positive("hidden_size"), configuration.integer("num_hidden_layers")
    grouped = GroupedAttention.of(configuration)
    count, inner = configuration.positive("n_routed_experts"), configuration.positive("moe_intermediate_size")
    shared = inner * configuration.count("n_shared_experts")
    mixed = layers_after_dense(configuration, layers)
    drafts = configuration.count("num_nextn_predict_layers")

    def attention(name: str, layer: int) -> Iterator[Weight]:
        return grouped.weights(
            f"{name}.self_attn", layer, bias=configuration.flag("attention_bias"),
            query_key_norm="head" if configuration.flag("use_qk_norm") else None,
        )  # fmt: skip

    def feed_forward(name: str, layer: int) -> Iterator[Weight]:
        if layer in mixed or layer >= layers:
            yield from grouped_router_mixture(f"{name}.mlp", layer, hidden, inner, count, shared)
        else:
            yield from weights.gated_mlp(f"{name}.mlp", layer, hidden, configuration.positive("intermediate_size"))

    return sparse_decoder(
        configuration,
        attention,
        feed_forward,
        (grouped.cache(tuple(range(layers))),),
        Experts(mixed, count, configuration.positive("num_experts_per_tok"), inner, shared),
        prefix=prefix,
        next_token_layers=drafts,
        draft_caches=(grouped.cache(tuple(range(layers, layers + drafts))),) if drafts else (),
    )
