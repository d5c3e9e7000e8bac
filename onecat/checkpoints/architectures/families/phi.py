"""Phi-3 and Phi-4: Llama's decoder with one matrix for q, k and v, and one for gate and up."""

from __future__ import annotations

from onecat.checkpoints.architectures.configuration import Configuration
from onecat.checkpoints.architectures.decoder import Style, decoder
from onecat.checkpoints.architectures.records import Architecture
from onecat.checkpoints.architectures.registry import family

PHI3 = Style(attention_bias=False, output_bias=False, mlp_bias=False, fused=True, fused_mlp=True)


@family("Phi3ForCausalLM")
def phi3(configuration: Configuration) -> Architecture:
    """Source: transformers' modeling_phi3.py."""
    return decoder(configuration, PHI3)
