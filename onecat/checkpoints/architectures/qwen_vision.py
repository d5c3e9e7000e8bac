"""The vision tower of Qwen3-VL and Qwen3.5."""

from __future__ import annotations

from collections.abc import Iterator

from onecat.checkpoints.architectures.configuration import Configuration
from onecat.checkpoints.architectures.mixtures import of_part
from onecat.checkpoints.architectures.records import Architecture, Encoder, Weight, WeightKind

LARGEST_PICTURE = 16_777_216
"""Pixels of the largest picture, `size.longest_edge` in preprocessor_config.json of Qwen3-VL and Qwen3.5."""


def with_vision(language: Architecture, configuration: Configuration) -> Architecture:
    """A language model with the tower before it, which is that model alone without `vision_config`.

    Source: transformers' modeling_qwen3_vl.py (Qwen3VLVisionModel).
    """
    sizes = configuration.section("vision_config")
    if sizes is None:
        return language
    merged = sizes.positive("patch_size") * sizes.positive("spatial_merge_size")
    encoder = Encoder(
        "vision", sizes.positive("depth"), sizes.positive("hidden_size"), sizes.positive("intermediate_size"),
        sizes.positive("num_heads"), LARGEST_PICTURE // merged**2,
    )  # fmt: skip
    return language.with_tower(of_part("vision", _weights(sizes, encoder, "model.visual.")), encoder)


def _weights(sizes: Configuration, encoder: Encoder, prefix: str) -> Iterator[Weight]:
    hidden, inner, patch = encoder.hidden_size, encoder.intermediate_size, sizes.positive("patch_size")
    volume = (sizes.positive("in_channels", default=3), sizes.positive("temporal_patch_size"), patch, patch)
    yield from _biased(f"{prefix}patch_embed.proj", (hidden, *volume), "convolution")
    yield Weight(f"{prefix}pos_embed.weight", (sizes.positive("num_position_embeddings"), hidden), "embedding")
    for index in range(encoder.layers):
        block = f"{prefix}blocks.{index}"
        yield from _biased(f"{block}.norm1", (hidden,), "norm")
        yield from _biased(f"{block}.norm2", (hidden,), "norm")
        yield from _biased(f"{block}.attn.qkv", (3 * hidden, hidden))
        yield from _biased(f"{block}.attn.proj", (hidden, hidden))
        yield from _biased(f"{block}.mlp.linear_fc1", (inner, hidden))
        yield from _biased(f"{block}.mlp.linear_fc2", (hidden, inner))
    wide, out = hidden * sizes.positive("spatial_merge_size") ** 2, sizes.positive("out_hidden_size")
    indexes = sizes.text.get("deepstack_visual_indexes")
    deep = len(indexes) if isinstance(indexes, list) else 0
    mergers = (f"{prefix}merger", hidden), *((f"{prefix}deepstack_merger_list.{index}", wide) for index in range(deep))
    for merger, normed in mergers:
        yield from _biased(f"{merger}.norm", (normed,), "norm")
        yield from _biased(f"{merger}.linear_fc1", (wide, wide))
        yield from _biased(f"{merger}.linear_fc2", (out, wide))


def _biased(name: str, shape: tuple[int, ...], kind: WeightKind = "linear") -> Iterator[Weight]:
    yield Weight(f"{name}.weight", shape, kind)
    yield Weight(f"{name}.bias", shape[:1], "bias")
