"""Towers that turn pictures into embeddings, shared by families."""

from __future__ import annotations

from collections.abc import Iterator

from onecat.checkpoints.architectures import weights
from onecat.checkpoints.architectures.configuration import Configuration
from onecat.checkpoints.architectures.records import Encoder, Weight


def encoder(vision: Configuration, tokens: int | None = None) -> Encoder:
    """The tower that a `vision_config` describes, whatever the names of its fields.

    tokens: it puts into a prompt for one picture at most.
    """
    hidden = vision.positive("hidden_size", "embed_dim", "width")
    inner = vision.optional("intermediate_size")
    return Encoder(
        "vision",
        vision.integer("num_hidden_layers", "depth", "layers", "num_layers"),
        hidden,
        4 * hidden if inner is None else inner,
        vision.positive("num_attention_heads", "num_heads", "heads", "attention_heads"),
        tokens,
    )


def siglip(prefix: str, vision: Configuration) -> Iterator[Weight]:
    """SigLIP without its pooling head.

    Parameters:
        prefix: before `embeddings` and `encoder`.

    Source: transformers' modeling_siglip.py.
    """
    hidden, inner = vision.positive("hidden_size"), vision.positive("intermediate_size")
    patch = vision.positive("patch_size")
    channels = vision.positive("num_channels", default=3)
    positions = (vision.positive("image_size") // patch) ** 2
    shape = (hidden, channels, patch, patch)
    yield Weight(f"{prefix}embeddings.patch_embedding.weight", shape, "convolution", part="vision")
    yield Weight(f"{prefix}embeddings.patch_embedding.bias", (hidden,), "bias", part="vision")
    yield Weight(f"{prefix}embeddings.position_embedding.weight", (positions, hidden), "other", part="vision")
    yield from _clip_layers(prefix, vision, hidden, inner)
    yield from weights.norms(prefix, ("post_layernorm",), hidden, bias=True, part="vision")


def clip(prefix: str, vision: Configuration) -> Iterator[Weight]:
    """CLIP's vision model without the projection that its text model shares.

    Source: transformers' modeling_clip.py.
    """
    hidden, inner = vision.positive("hidden_size"), vision.positive("intermediate_size")
    patch = vision.positive("patch_size")
    positions = (vision.positive("image_size") // patch) ** 2 + 1
    shape = (hidden, vision.positive("num_channels", default=3), patch, patch)
    yield Weight(f"{prefix}embeddings.class_embedding", (hidden,), "other", part="vision")
    yield Weight(f"{prefix}embeddings.patch_embedding.weight", shape, "convolution", part="vision")
    yield Weight(f"{prefix}embeddings.position_embedding.weight", (positions, hidden), "other", part="vision")
    yield from weights.norms(prefix, ("pre_layrnorm", "post_layernorm"), hidden, bias=True, part="vision")
    yield from _clip_layers(prefix, vision, hidden, inner)


def _clip_layers(prefix: str, vision: Configuration, hidden: int, inner: int) -> Iterator[Weight]:
    for layer in range(vision.integer("num_hidden_layers")):
        inside = f"{prefix}encoder.layers.{layer}."
        yield from plain_attention(f"{inside}self_attn.", ("q_proj", "k_proj", "v_proj", "out_proj"), hidden)
        yield from plain_mlp(f"{inside}mlp.", ("fc1", "fc2"), hidden, inner)
        yield from weights.norms(inside, ("layer_norm1", "layer_norm2"), hidden, bias=True, part="vision")


def pixtral(prefix: str, vision: Configuration) -> Iterator[Weight]:
    """Pixtral's tower for pictures of any size.

    Source: transformers' modeling_pixtral.py.
    """
    hidden, inner = vision.positive("hidden_size"), vision.positive("intermediate_size")
    patch, channels = vision.positive("patch_size"), vision.positive("num_channels", default=3)
    heads = vision.positive("num_attention_heads")
    queries = heads * (vision.optional("head_dim") or hidden // heads)
    yield Weight(f"{prefix}patch_conv.weight", (hidden, channels, patch, patch), "convolution", part="vision")
    yield weights.norm(f"{prefix}ln_pre", hidden, part="vision")
    for layer in range(vision.integer("num_hidden_layers")):
        inside = f"{prefix}transformer.layers.{layer}."
        for name in ("q_proj", "k_proj", "v_proj"):
            yield from weights.linear(f"{inside}attention.{name}", queries, hidden, part="vision")
        yield from weights.linear(f"{inside}attention.o_proj", hidden, queries, part="vision")
        yield from weights.gated_mlp(f"{inside}feed_forward", None, hidden, inner, part="vision")
        yield from weights.norms(inside, ("attention_norm", "ffn_norm"), hidden, part="vision")


def plain_attention(prefix: str, names: tuple[str, ...], size: int, bias: bool = True) -> Iterator[Weight]:
    """Square projections of a tower's layer."""
    for name in names:
        yield from weights.linear(f"{prefix}{name}", size, size, bias=bias, part="vision")


def plain_mlp(prefix: str, names: tuple[str, str], size: int, inner: int, bias: bool = True) -> Iterator[Weight]:
    """Up and down of a tower's layer."""
    yield from weights.linear(f"{prefix}{names[0]}", inner, size, bias=bias, part="vision")
    yield from weights.linear(f"{prefix}{names[1]}", size, inner, bias=bias, part="vision")
