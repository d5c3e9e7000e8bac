"""The vision towers of Qwen2-VL and Qwen2.5-VL."""

from __future__ import annotations

from collections.abc import Iterator

from onecat.checkpoints.architectures import weights
from onecat.checkpoints.architectures.configuration import Configuration
from onecat.checkpoints.architectures.records import Encoder, Weight
from onecat.checkpoints.architectures.towers import plain_mlp

LARGEST_PICTURE = 12_845_056
"""Pixels of the largest picture, `max_pixels` in preprocessor_config.json of both."""


def qwen2_vision(prefix: str, stated: Configuration, text_hidden: int) -> tuple[Encoder, tuple[Weight, ...]]:
    """The tower, and the projection of four patches into one embedding of the text model.

    Parameters:
        prefix: before `blocks`; stated: `vision_config`, whose `hidden_size` is the text model's.

    Source: transformers' modeling_qwen2_vl.py, configuration_qwen2_vl.py (defaults).
    """
    vision = _filled(stated).with_defaults(embed_dim=1280, mlp_ratio=4)
    hidden = vision.positive("embed_dim")
    inner = hidden * vision.positive("mlp_ratio")

    def parameters() -> Iterator[Weight]:
        yield _patches(prefix, vision, hidden)
        for layer in range(vision.integer("depth")):
            block = f"{prefix}blocks.{layer}."
            yield from _attention(block, hidden)
            yield from plain_mlp(f"{block}mlp.", ("fc1", "fc2"), hidden, inner)
            yield from weights.norms(block, ("norm1", "norm2"), hidden, bias=True, part="vision")
        yield from weights.norms(f"{prefix}merger.", ("ln_q",), hidden, bias=True, part="vision")
        yield from _merger(prefix, vision, hidden, text_hidden)

    return _encoder(vision, hidden, inner), tuple(parameters())


def qwen2_5_vision(prefix: str, stated: Configuration, text_hidden: int) -> tuple[Encoder, tuple[Weight, ...]]:
    """As `qwen2_vision`, with norms without a bias and a gate in the feed-forward network.

    Source: transformers' modeling_qwen2_5_vl.py, configuration_qwen2_5_vl.py (defaults).
    """
    vision = _filled(stated).with_defaults(hidden_size=1280, intermediate_size=3420)
    hidden, inner = vision.positive("hidden_size"), vision.positive("intermediate_size")

    def parameters() -> Iterator[Weight]:
        yield _patches(prefix, vision, hidden)
        for layer in range(vision.integer("depth")):
            block = f"{prefix}blocks.{layer}."
            yield from _attention(block, hidden)
            yield from weights.gated_mlp(f"{block}mlp", None, hidden, inner, bias=True, part="vision")
            yield from weights.norms(block, ("norm1", "norm2"), hidden, part="vision")
        yield from weights.norms(f"{prefix}merger.", ("ln_q",), hidden, part="vision")
        yield from _merger(prefix, vision, hidden, text_hidden)

    return _encoder(vision, hidden, inner), tuple(parameters())


def _filled(stated: Configuration) -> Configuration:
    return stated.with_defaults(depth=32, num_heads=16, patch_size=14, spatial_merge_size=2, temporal_patch_size=2)


def _encoder(vision: Configuration, hidden: int, inner: int) -> Encoder:
    merged = vision.positive("patch_size") * vision.positive("spatial_merge_size")
    tokens = LARGEST_PICTURE // merged**2
    return Encoder("vision", vision.integer("depth"), hidden, inner, vision.positive("num_heads"), tokens)


def _patches(prefix: str, vision: Configuration, hidden: int) -> Weight:
    patch, channels = vision.positive("patch_size"), vision.positive("in_channels", "in_chans", default=3)
    shape = (hidden, channels, vision.positive("temporal_patch_size"), patch, patch)
    return Weight(f"{prefix}patch_embed.proj.weight", shape, "convolution", part="vision")


def _attention(block: str, hidden: int) -> Iterator[Weight]:
    yield from weights.linear(f"{block}attn.qkv", 3 * hidden, hidden, bias=True, part="vision")
    yield from weights.linear(f"{block}attn.proj", hidden, hidden, bias=True, part="vision")


def _merger(prefix: str, vision: Configuration, hidden: int, text_hidden: int) -> Iterator[Weight]:
    wide = hidden * vision.positive("spatial_merge_size") ** 2
    yield from weights.linear(f"{prefix}merger.mlp.0", wide, wide, bias=True, part="vision")
    yield from weights.linear(f"{prefix}merger.mlp.2", text_hidden, wide, bias=True, part="vision")
