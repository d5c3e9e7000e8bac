"""Command R, Command A and Aya: one norm before attention and feed-forward network, which run side by side."""

from __future__ import annotations

from dataclasses import replace

from onecat.checkpoints.architectures.configuration import Configuration
from onecat.checkpoints.architectures.decoder import Style, decoder
from onecat.checkpoints.architectures.records import Architecture
from onecat.checkpoints.architectures.registry import family

COHERE = Style(mlp_bias=False, norms=("input_layernorm",), tied=True)


@family("CohereForCausalLM")
def cohere(configuration: Configuration) -> Architecture:
    """The largest have norms of q and k that differ by head.

    Source: transformers' modeling_cohere.py.
    """
    normed = configuration.flag("use_qk_norm")
    return decoder(configuration, replace(COHERE, query_key_norm="each" if normed else None))


@family("Cohere2ForCausalLM")
def cohere2(configuration: Configuration) -> Architecture:
    """Every fourth layer keeps all tokens, the others have the window.

    Source: transformers' configuration_cohere2.py (sliding_window_pattern).
    """
    pattern = configuration.optional("sliding_window_pattern", "_sliding_window_pattern") or 4
    return decoder(configuration, COHERE, lambda layer: (layer + 1) % pattern != 0)
