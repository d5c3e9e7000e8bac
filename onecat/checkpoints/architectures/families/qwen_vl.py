"""Qwen2-VL, Qwen2.5-VL and dense Qwen3-VL."""

from __future__ import annotations

from collections.abc import Callable

from onecat.checkpoints.architectures.configuration import Configuration
from onecat.checkpoints.architectures.decoder import Style, decoder
from onecat.checkpoints.architectures.families.qwen import QWEN2, qwen_decoder
from onecat.checkpoints.architectures.qwen2_towers import qwen2_5_vision, qwen2_vision
from onecat.checkpoints.architectures.qwen_vision import with_vision
from onecat.checkpoints.architectures.records import Architecture, Encoder, Weight
from onecat.checkpoints.architectures.registry import family

Tower = Callable[[str, Configuration, int], tuple[Encoder, tuple[Weight, ...]]]
QWEN3 = Style(query_key_norm="head", prefix="model.language_model.")


@family("Qwen2VLForConditionalGeneration")
def qwen2_vl(configuration: Configuration) -> Architecture:
    """Source: transformers' modeling_qwen2_vl.py; names of the tensors in Qwen/Qwen2-VL-7B-Instruct."""
    return _with(configuration, qwen2_vision)


@family("Qwen2_5_VLForConditionalGeneration")
def qwen2_5_vl(configuration: Configuration) -> Architecture:
    """Source: transformers' modeling_qwen2_5_vl.py; names of the tensors in Qwen/Qwen2.5-VL-7B-Instruct."""
    return _with(configuration, qwen2_5_vision)


@family("Qwen3VLForConditionalGeneration")
def qwen3_vl(configuration: Configuration) -> Architecture:
    """Source: transformers' modeling_qwen3_vl.py."""
    return with_vision(decoder(configuration, QWEN3), configuration)


def _with(configuration: Configuration, tower: Tower) -> Architecture:
    """config.json has the text model's fields at its top, or in `text_config` when a newer transformers wrote it."""
    text = qwen_decoder(configuration, QWEN2)
    vision = configuration.section("vision_config")
    if vision is None:
        return text
    encoder, weights = tower("visual.", vision, configuration.positive("hidden_size"))
    return text.with_tower(weights, encoder)
