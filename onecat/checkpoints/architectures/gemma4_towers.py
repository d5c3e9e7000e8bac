"""The towers of Gemma 4: a vision transformer with Gemma's layers, and a conformer for sound.

Source: transformers' modeling_gemma4.py, configuration_gemma4.py.
"""

from __future__ import annotations

from collections.abc import Iterator

from onecat.checkpoints.architectures import weights
from onecat.checkpoints.architectures.configuration import Configuration
from onecat.checkpoints.architectures.records import Encoder, Part, Weight

BOUNDS = ("input_min", "input_max", "output_min", "output_max")
MEL_BINS = 128
"""Of the sound's spectrogram, which two convolutions of stride 2 divide by 4."""


def vision_encoder(stated: Configuration, tokens: int) -> Encoder:
    """tokens: of one picture."""
    vision = _vision_defaults(stated)
    return Encoder(
        "vision", vision.integer("num_hidden_layers"), vision.positive("hidden_size"),
        vision.positive("intermediate_size"), vision.positive("num_attention_heads"), tokens,
    )  # fmt: skip


def audio_encoder(stated: Configuration) -> Encoder:
    """How many tokens a sound becomes depends on its length, so none are stated."""
    audio = _audio_defaults(stated)
    hidden = audio.positive("hidden_size")
    return Encoder(
        "audio", audio.integer("num_hidden_layers"), hidden, 4 * hidden, audio.positive("num_attention_heads")
    )


def vision_weights(stated: Configuration, text_hidden: int) -> Iterator[Weight]:
    """The tower, and the projection into the text model's embeddings [text_hidden, hidden]."""
    vision, prefix = _vision_defaults(stated), "model.vision_tower."
    hidden, inner = vision.positive("hidden_size"), vision.positive("intermediate_size")
    head, patch = vision.positive("head_dim"), vision.positive("patch_size")
    queries = vision.positive("num_attention_heads") * head
    keys = vision.positive("num_key_value_heads") * head
    clipped = vision.flag("use_clipped_linears")
    table = (2, vision.positive("position_embedding_size"), hidden)
    yield Weight(f"{prefix}patch_embedder.position_embedding_table", table, "other", part="vision")
    yield from weights.linear(f"{prefix}patch_embedder.input_proj", hidden, 3 * patch * patch, part="vision")
    shapes = (
        ("self_attn.q_proj", queries, hidden),
        ("self_attn.k_proj", keys, hidden),
        ("self_attn.v_proj", keys, hidden),
        ("self_attn.o_proj", hidden, queries),
        ("mlp.gate_proj", inner, hidden),
        ("mlp.up_proj", inner, hidden),
        ("mlp.down_proj", hidden, inner),
    )
    for layer in range(vision.integer("num_hidden_layers")):
        inside = f"{prefix}encoder.layers.{layer}."
        for name, out, into in shapes:
            yield from _clippable(f"{inside}{name}", out, into, clipped, "vision")
        yield from weights.norms(inside, weights.FOUR_NORMS, hidden, part="vision")
        yield from weights.norms(inside, ("self_attn.q_norm", "self_attn.k_norm"), head, part="vision")
    if vision.flag("standardize"):
        yield Weight(f"{prefix}std_bias", (hidden,), "other", part="vision")
        yield Weight(f"{prefix}std_scale", (hidden,), "other", part="vision")
    yield from weights.linear("model.embed_vision.embedding_projection", text_hidden, hidden, part="vision")


def patch_weights(vision: Configuration, text_hidden: int) -> Iterator[Weight]:
    """What the unified model has in place of a tower: patches, merged by `pooling_kernel_size`, into embeddings."""
    size = vision.positive("mm_embed_dim", default=3840)
    side = vision.positive("patch_size", default=16) * vision.positive("pooling_kernel_size", default=3)
    prefix, pixels = "model.vision_embedder.", 3 * side * side
    table = (vision.positive("mm_posemb_size", default=1120), 2, size)
    yield Weight(f"{prefix}pos_embedding", table, "other", part="vision")
    yield from weights.linear(f"{prefix}patch_dense", size, pixels, bias=True, part="vision")
    yield from weights.norms(prefix, ("patch_ln1",), pixels, bias=True, part="vision")
    yield from weights.norms(prefix, ("patch_ln2", "pos_norm"), size, bias=True, part="vision")
    yield from weights.linear("model.embed_vision.embedding_projection", text_hidden, size, part="vision")


def audio_weights(stated: Configuration, text_hidden: int) -> Iterator[Weight]:
    """The tower, and the projection into the text model's embeddings."""
    audio, prefix = _audio_defaults(stated), "model.audio_tower."
    hidden, out = audio.positive("hidden_size"), audio.positive("output_proj_dims")
    head = hidden // audio.positive("num_attention_heads")
    first, second = audio.pair("subsampling_conv_channels") or (128, 32)
    begin, before = f"{prefix}subsample_conv_projection.", 1
    for index, channel in enumerate((first, second)):
        shape = (channel, before, 3, 3)
        yield Weight(f"{begin}layer{index}.conv.weight", shape, "convolution", part="audio")
        yield weights.norm(f"{begin}layer{index}.norm", channel, part="audio")
        before = channel
    yield from weights.linear(f"{begin}input_proj_linear", hidden, second * MEL_BINS // 4, part="audio")
    for layer in range(audio.integer("num_hidden_layers")):
        yield from _conformer_layer(audio, f"{prefix}layers.{layer}.", hidden, head)
    yield from weights.linear(f"{prefix}output_proj", out, hidden, bias=True, part="audio")
    yield from weights.linear("model.embed_audio.embedding_projection", text_hidden, out, part="audio")


def _conformer_layer(audio: Configuration, prefix: str, hidden: int, head: int) -> Iterator[Weight]:
    clipped = audio.flag("use_clipped_linears", True)
    shapes = [("lconv1d.linear_start", 2 * hidden, hidden), ("lconv1d.linear_end", hidden, hidden)]
    shapes += [(f"self_attn.{name}", hidden, hidden) for name in ("q_proj", "k_proj", "v_proj", "post")]
    for forward in ("feed_forward1", "feed_forward2"):
        shapes += [(f"{forward}.ffw_layer_1", 4 * hidden, hidden), (f"{forward}.ffw_layer_2", hidden, 4 * hidden)]
        yield from weights.norms(f"{prefix}{forward}.", ("pre_layer_norm", "post_layer_norm"), hidden, part="audio")
    for name, out, into in shapes:
        yield from _clippable(f"{prefix}{name}", out, into, clipped, "audio")
    yield from weights.linear(f"{prefix}self_attn.relative_k_proj", hidden, hidden, part="audio")
    yield Weight(f"{prefix}self_attn.per_dim_scale", (head,), "other", part="audio")
    kernel = (hidden, 1, audio.positive("conv_kernel_size"))
    yield Weight(f"{prefix}lconv1d.depthwise_conv1d.weight", kernel, "convolution", part="audio")
    names = ("lconv1d.pre_layer_norm", "lconv1d.conv_norm", "norm_pre_attn", "norm_post_attn", "norm_out")
    yield from weights.norms(prefix, names, hidden, part="audio")


def _clippable(name: str, out: int, into: int, clipped: bool, part: Part) -> Iterator[Weight]:
    """A matrix, with four numbers that bound its input and output where it is clipped."""
    yield from weights.linear(f"{name}.linear", out, into, part=part)
    if clipped:
        for bound in BOUNDS:
            yield Weight(f"{name}.{bound}", (), "other", part=part)


def _vision_defaults(stated: Configuration) -> Configuration:
    return stated.with_defaults(
        hidden_size=768, intermediate_size=3072, num_hidden_layers=16, num_attention_heads=12, num_key_value_heads=12,
        head_dim=64, patch_size=16, position_embedding_size=10240,
    )  # fmt: skip


def _audio_defaults(stated: Configuration) -> Configuration:
    return stated.with_defaults(
        hidden_size=1024, num_hidden_layers=12, num_attention_heads=8, conv_kernel_size=5, output_proj_dims=1536
    )
