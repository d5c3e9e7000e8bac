"""Llama 4: attention within chunks in three of four layers, and experts of which each token has one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from onecat.checkpoints.architectures import towers, weights
from onecat.checkpoints.architectures.configuration import Configuration
from onecat.checkpoints.architectures.grouped_attention import GroupedAttention
from onecat.checkpoints.architectures.mixtures import experts_as_published, of_part, router
from onecat.checkpoints.architectures.records import Architecture, Encoder, Experts, Weight
from onecat.checkpoints.architectures.registry import family
from onecat.checkpoints.architectures.sparse_decoder import sparse_decoder


@family("Llama4ForCausalLM")
def llama4_text(configuration: Configuration) -> Architecture:
    """Source: transformers' modeling_llama4.py."""
    return _language_model(configuration, "model.", "lm_head")


@family("Llama4ForConditionalGeneration")
def llama4(configuration: Configuration) -> Architecture:
    """Source: transformers' modeling_llama4.py."""
    language = _language_model(configuration, "language_model.model.", "language_model.lm_head")
    vision = configuration.section("vision_config")
    if vision is None:
        return language
    side = vision.positive("image_size") // vision.positive("patch_size")
    stated = vision.text.get("pixel_shuffle_ratio")
    ratio = stated if isinstance(stated, float) and 0 < stated <= 1 else 0.5
    encoder = towers.encoder(vision, int(side**2 * ratio**2))
    tower = of_part("vision", _tower(vision, encoder, side, configuration.positive("hidden_size")))
    return language.with_tower(tower, encoder)


def _language_model(configuration: Configuration, prefix: str, head: str) -> Architecture:
    hidden, layers = configuration.positive("hidden_size"), configuration.integer("num_hidden_layers")
    grouped = GroupedAttention.of(configuration)
    count, inner = configuration.positive("num_local_experts"), configuration.positive("intermediate_size")
    mixed = _mixed(configuration, layers)
    experts_of_layer = experts_as_published(configuration)

    def attention(name: str, layer: int) -> Iterator[Weight]:
        bias = configuration.flag("attention_bias")
        return grouped.weights(f"{name}.self_attn", layer, bias=bias, output_bias=bias)

    def feed_forward(name: str, layer: int) -> Iterator[Weight]:
        inside = f"{name}.feed_forward"
        if layer not in mixed:
            yield from weights.gated_mlp(inside, layer, hidden, configuration.positive("intermediate_size_mlp"))
            return
        yield from router(f"{inside}.router", count, hidden, layer)
        yield from experts_of_layer(f"{inside}.experts", layer, hidden, inner, count)
        yield from weights.gated_mlp(f"{inside}.shared_expert", layer, hidden, inner)

    chunked = _chunked(configuration, layers)
    chunk = configuration.positive("attention_chunk_size", default=8192) if chunked else None
    whole = tuple(index for index in range(layers) if index not in chunked)
    described = sparse_decoder(
        configuration,
        attention,
        feed_forward,
        (
            grouped.cache(whole),
            replace(grouped.cache(chunked), chunk=chunk),
        ),
        Experts(mixed, count, configuration.positive("num_experts_per_tok", default=1), inner, inner),
        prefix=prefix,
        head=head,
    )
    widest = inner if len(mixed) == layers else configuration.positive("intermediate_size_mlp")
    return described.replaced(intermediate_size=widest)


def _mixed(configuration: Configuration, layers: int) -> tuple[int, ...]:
    stated = configuration.text.get("moe_layers")
    if isinstance(stated, list) and stated:
        return tuple(index for index in range(layers) if index in stated)
    step = configuration.positive("interleave_moe_layer_step", default=1)
    return tuple(range(step - 1, layers, step))


def _chunked(configuration: Configuration, layers: int) -> tuple[int, ...]:
    """Layers with rotary positions attend within chunks, if there is a chunk's size.

    Source: vllm 0.27.1, vllm/model_executor/models/llama4.py (Llama4Attention); the default of `no_rope_layers` is
    that of transformers' configuration_llama4.py.
    """
    if "attention_chunk_size" in configuration.text and not configuration.optional("attention_chunk_size"):
        return ()
    stated = configuration.text.get("no_rope_layers")
    interval = configuration.positive("no_rope_layer_interval", default=4)
    rotary = stated if isinstance(stated, list) and stated else [(index + 1) % interval for index in range(layers)]
    return tuple(index for index, each in enumerate(rotary[:layers]) if each)


def _tower(vision: Configuration, encoder: Encoder, side: int, out: int) -> Iterator[Weight]:
    hidden, inner, patch = encoder.hidden_size, encoder.intermediate_size, vision.positive("patch_size")
    yield Weight("vision_model.class_embedding", (hidden,), "other")
    yield Weight("vision_model.positional_embedding_vlm", (side**2 + 1, hidden), "other")
    channels = vision.positive("num_channels", default=3)
    yield from weights.linear("vision_model.patch_embedding.linear", hidden, channels * patch**2)
    yield from weights.norms("vision_model.", ("layernorm_pre", "layernorm_post"), hidden, bias=True)
    for index in range(encoder.layers):
        layer = f"vision_model.model.layers.{index}."
        yield from towers.plain_attention(f"{layer}self_attn.", ("q_proj", "k_proj", "v_proj", "o_proj"), hidden)
        yield from towers.plain_mlp(f"{layer}mlp.", ("fc1", "fc2"), hidden, inner)
        yield from weights.norms(layer, ("input_layernorm", "post_attention_layernorm"), hidden, bias=True)
    into, between = vision.positive("projector_input_dim"), vision.positive("projector_output_dim")
    yield from weights.linear("vision_model.vision_adapter.mlp.fc1", into, inner)
    yield from weights.linear("vision_model.vision_adapter.mlp.fc2", between, into)
    yield from weights.linear("multi_modal_projector.linear_1", out, vision.positive("vision_output_dim"))
