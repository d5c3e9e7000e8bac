"""EXAONE 4."""

from __future__ import annotations

from onecat.checkpoints.architectures.configuration import Configuration
from onecat.checkpoints.architectures.decoder import Style, decoder
from onecat.checkpoints.architectures.records import Architecture
from onecat.checkpoints.architectures.registry import family

EXAONE4 = Style(
    attention_bias=False, output_bias=False, mlp_bias=False, query_key_norm="head",
    norms=("post_attention_layernorm", "post_feedforward_layernorm"),
)  # fmt: skip


@family("Exaone4ForCausalLM")
def exaone4(configuration: Configuration) -> Architecture:
    """The last layer of each pattern (`LLLG`) keeps all tokens where there is a window; the small ones state none.

    Source: transformers' modeling_exaone4.py, configuration_exaone4.py (sliding_window_pattern).
    """
    stated = configuration.text.get("sliding_window_pattern")
    pattern = len(stated) if isinstance(stated, str) and stated else stated if type(stated) is int and stated > 0 else 4
    return decoder(configuration, EXAONE4, lambda layer: (layer + 1) % pattern != 0)
