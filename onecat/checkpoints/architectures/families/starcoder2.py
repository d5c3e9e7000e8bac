"""StarCoder2: biases throughout, and a feed-forward network without a gate."""

from __future__ import annotations

from onecat.checkpoints.architectures.configuration import Configuration
from onecat.checkpoints.architectures.decoder import Style, decoder
from onecat.checkpoints.architectures.records import Architecture
from onecat.checkpoints.architectures.registry import family


@family("Starcoder2ForCausalLM")
def starcoder2(configuration: Configuration) -> Architecture:
    """Source: transformers' modeling_starcoder2.py."""
    bias = configuration.flag("use_bias", True)
    style = Style(
        attention_bias=bias, output_bias=bias, mlp_bias=bias, plain_mlp=("c_fc", "c_proj"), norm_bias=True, tied=True
    )
    return decoder(configuration, style)
