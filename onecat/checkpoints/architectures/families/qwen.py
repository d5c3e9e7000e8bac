"""Dense Qwen 1.5, 2, 2.5 and 3."""

from __future__ import annotations

from onecat.checkpoints.architectures.configuration import Configuration
from onecat.checkpoints.architectures.decoder import Style, decoder
from onecat.checkpoints.architectures.records import Architecture
from onecat.checkpoints.architectures.registry import family

QWEN2 = Style(attention_bias=True, output_bias=False)
QWEN3 = Style(query_key_norm="head")


@family("Qwen2ForCausalLM")
def qwen2(configuration: Configuration) -> Architecture:
    """q, k and v have a bias without config.json saying so.

    Source: transformers' modeling_qwen2.py.
    """
    return qwen_decoder(configuration, QWEN2)


@family("Qwen3ForCausalLM")
def qwen3(configuration: Configuration) -> Architecture:
    """Source: transformers' modeling_qwen3.py."""
    return qwen_decoder(configuration, QWEN3)


def qwen_decoder(configuration: Configuration, style: Style) -> Architecture:
    """Layers from `max_window_layers` on have the window, when it is used at all; both are off by default.

    Source: transformers' configuration_qwen2.py (sliding_window, layer_types).
    """
    first = configuration.optional("max_window_layers")
    return decoder(
        configuration.with_defaults(use_sliding_window=False),
        style,
        lambda layer: layer >= (28 if first is None else first),
    )
