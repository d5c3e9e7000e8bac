"""InternVL 2 to 3.5 in the layout of its publisher: InternViT before a decoder of any described family."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from onecat.checkpoints.architectures import weights
from onecat.checkpoints.architectures.configuration import Configuration, IncompleteConfiguration
from onecat.checkpoints.architectures.records import Architecture, Encoder, Weight
from onecat.checkpoints.architectures.registry import families, family
from onecat.checkpoints.architectures.towers import plain_mlp

TILES = 12
"""Tiles that a picture is cut into at most where `max_dynamic_patch` is not stated; a thumbnail is one more."""


@family("InternVLChatModel")
def internvl(configuration: Configuration) -> Architecture:
    """The decoder is described as that of `llm_config`, its tensors are below `language_model`.

    Source: modeling_internvl_chat.py and modeling_intern_vit.py beside its checkpoints; vLLM's internvl.py.
    """
    decoder = Configuration(configuration.text, configuration.text)
    described = families().get(decoder.name or "")
    if described is None or described is internvl:
        raise IncompleteConfiguration(f"config.json has a text model {decoder.name} that onecat does not know")
    text = described(decoder)
    inside = tuple(replace(each, name=f"language_model.{each.name}") for each in text.weights)
    kind = configuration.whole.get("model_type")
    text = text.replaced(
        name=configuration.name, model_type=kind if isinstance(kind, str) else None, weights=inside,
        dtype=configuration.dtype,
    )  # fmt: skip
    vision = configuration.section("vision_config")
    if vision is None:
        return text
    ratio = configuration.whole.get("downsample_ratio")
    merged = round(1 / ratio) if isinstance(ratio, float) and 0 < ratio <= 1 else 2
    projector = _projector(vision, merged, configuration.positive("hidden_size"))
    return text.with_tower((*_tower(vision), *projector), _encoder(configuration, vision, merged))


def _encoder(configuration: Configuration, vision: Configuration, merged: int) -> Encoder:
    count = configuration.of_document("max_dynamic_patch", TILES) + 1
    side = vision.positive("image_size") // (vision.positive("patch_size") * merged)
    return Encoder(
        "vision", vision.integer("num_hidden_layers"), vision.positive("hidden_size"),
        vision.positive("intermediate_size"), vision.positive("num_attention_heads"), count * side * side,
    )  # fmt: skip


def _tower(vision: Configuration) -> Iterator[Weight]:
    prefix, hidden = "vision_model.", vision.positive("hidden_size")
    patch, inner = vision.positive("patch_size"), vision.positive("intermediate_size")
    positions = (vision.positive("image_size") // patch) ** 2 + 1
    yield Weight(f"{prefix}embeddings.class_embedding", (1, 1, hidden), "other", part="vision")
    yield Weight(f"{prefix}embeddings.position_embedding", (1, positions, hidden), "other", part="vision")
    shape = (hidden, vision.positive("num_channels", default=3), patch, patch)
    yield Weight(f"{prefix}embeddings.patch_embedding.weight", shape, "convolution", part="vision")
    yield Weight(f"{prefix}embeddings.patch_embedding.bias", (hidden,), "bias", part="vision")
    for layer in range(vision.integer("num_hidden_layers")):
        inside = f"{prefix}encoder.layers.{layer}."
        yield from weights.linear(
            f"{inside}attn.qkv", 3 * hidden, hidden, bias=vision.flag("qkv_bias", True), part="vision"
        )
        yield from weights.linear(f"{inside}attn.proj", hidden, hidden, bias=True, part="vision")
        if vision.flag("qk_normalization"):
            yield from weights.norms(f"{inside}attn.", ("q_norm", "k_norm"), hidden, part="vision")
        yield from plain_mlp(f"{inside}mlp.", ("fc1", "fc2"), hidden, inner)
        biased = vision.text.get("norm_type") == "layer_norm"
        yield from weights.norms(inside, ("norm1", "norm2"), hidden, bias=biased, part="vision")
        yield Weight(f"{inside}ls1", (hidden,), "other", part="vision")
        yield Weight(f"{inside}ls2", (hidden,), "other", part="vision")


def _projector(vision: Configuration, merged: int, text_hidden: int) -> Iterator[Weight]:
    wide = vision.positive("hidden_size") * merged**2
    yield from weights.norms("mlp1.", ("0",), wide, bias=True, part="vision")
    yield from weights.linear("mlp1.1", text_hidden, wide, bias=True, part="vision")
    yield from weights.linear("mlp1.3", text_hidden, text_hidden, bias=True, part="vision")
