"""The towers of Gemma 3n: MobileNet-V5 for pictures, and a conformer for sound.

Source: transformers' modeling_gemma3n.py, configuration_gemma3n.py; timm's mobilenetv5_300m_enc.
"""

from __future__ import annotations

from collections.abc import Iterator

from onecat.checkpoints.architectures import weights
from onecat.checkpoints.architectures.configuration import Configuration
from onecat.checkpoints.architectures.records import Encoder, Part, Weight

MOBILENET_PARAMETERS = 294_126_912
"""Of mobilenetv5_300m_enc in timm 1.0, the only picture model that Gemma 3n comes with."""

MOBILENET_FEATURES = 2048
MOBILENET_BLOCKS = 84
"""Blocks of the four stages of mobilenetv5_300m_enc."""

MEL_BINS = 128
"""Of the sound's spectrogram, which two convolutions of stride 2 divide by 4."""


def vision_encoder(tokens: int) -> Encoder:
    """A convolutional network: its heads and inner size are those of its last stage."""
    return Encoder("vision", MOBILENET_BLOCKS, MOBILENET_FEATURES, 2 * MOBILENET_FEATURES, 16, tokens)


def audio_encoder(stated: Configuration) -> Encoder:
    """How many tokens a sound becomes depends on its length, so none are stated."""
    audio = _filled(stated)
    hidden = audio.positive("hidden_size")
    heads = audio.positive("conf_num_attention_heads")
    return Encoder("audio", audio.integer("conf_num_hidden_layers"), hidden, 4 * hidden, heads)


def vision_weights(vision: Configuration, text_hidden: int) -> Iterator[Weight]:
    """The network, whose hundreds of convolutions are one row, and what brings its features into the decoder."""
    words = vision.positive("vocab_size", default=128)
    hidden = vision.positive("hidden_size", default=MOBILENET_FEATURES)
    name = "model.vision_tower.timm_model.blocks"
    yield Weight(name, (MOBILENET_PARAMETERS,), "convolution", part="vision")
    yield from _embedder("model.embed_vision.", words, hidden, text_hidden, "vision")


def audio_weights(stated: Configuration, text_hidden: int) -> Iterator[Weight]:
    """The conformer, and what brings its features into the decoder."""
    audio, prefix = _filled(stated), "model.audio_tower."
    hidden = audio.positive("hidden_size")
    first, second = audio.pair("sscp_conv_channel_size") or (128, 32)
    begin = f"{prefix}subsample_conv_projection."
    for name, channel, before in (("conv_0", first, 1), ("conv_1", second, first)):
        yield Weight(f"{begin}{name}.conv.weight", (channel, before, 3, 3), "convolution", part="audio")
        yield weights.norm(f"{begin}{name}.norm", channel, part="audio")
    yield from weights.linear(f"{begin}input_proj_linear", hidden, second * MEL_BINS // 4, part="audio")
    for layer in range(audio.integer("conf_num_hidden_layers")):
        yield from _conformer_layer(audio, f"{prefix}conformer.{layer}.", hidden)
    words = audio.positive("vocab_size", default=128)
    yield from _embedder("model.embed_audio.", words, hidden, text_hidden, "audio")


def _conformer_layer(audio: Configuration, prefix: str, hidden: int) -> Iterator[Weight]:
    for forward in ("ffw_layer_start", "ffw_layer_end"):
        inside = f"{prefix}{forward}."
        yield from weights.linear(f"{inside}ffw_layer_1", 4 * hidden, hidden, part="audio")
        yield from weights.linear(f"{inside}ffw_layer_2", hidden, 4 * hidden, part="audio")
        yield from weights.norms(inside, ("pre_layer_norm", "post_layer_norm"), hidden, part="audio")
    attention = f"{prefix}attention."
    for name in ("attn.q_proj", "attn.k_proj", "attn.v_proj", "attn.relative_position_embedding.pos_proj", "post"):
        yield from weights.linear(f"{attention}{name}", hidden, hidden, part="audio")
    head = hidden // audio.positive("conf_num_attention_heads")
    yield Weight(f"{attention}attn.per_dim_scale", (head,), "other", part="audio")
    yield from weights.norms(attention, ("pre_attn_norm", "post_norm"), hidden, part="audio")
    convolution = f"{prefix}lconv1d."
    yield from weights.linear(f"{convolution}linear_start", 2 * hidden, hidden, part="audio")
    yield from weights.linear(f"{convolution}linear_end", hidden, hidden, part="audio")
    kernel = (hidden, 1, audio.positive("conf_conv_kernel_size"))
    yield Weight(f"{convolution}depthwise_conv1d.weight", kernel, "convolution", part="audio")
    yield from weights.norms(convolution, ("pre_layer_norm", "conv_norm"), hidden, part="audio")
    yield weights.norm(f"{prefix}norm", hidden, part="audio")


def _embedder(prefix: str, words: int, hidden: int, text_hidden: int, part: Part) -> Iterator[Weight]:
    yield Weight(f"{prefix}embedding.weight", (words, hidden), "embedding", part=part)
    yield from weights.norms(prefix, ("hard_embedding_norm", "soft_embedding_norm"), hidden, part=part)
    yield from weights.linear(f"{prefix}embedding_projection", text_hidden, hidden, part=part)


def _filled(stated: Configuration) -> Configuration:
    return stated.with_defaults(
        hidden_size=1536, conf_num_attention_heads=8, conf_num_hidden_layers=12, conf_conv_kernel_size=5
    )
