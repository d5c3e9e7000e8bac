"""Seed-OSS: Llama's decoder with a bias that config.json states for the output on its own."""

from __future__ import annotations

from onecat.checkpoints.architectures.configuration import Configuration
from onecat.checkpoints.architectures.decoder import Style, decoder
from onecat.checkpoints.architectures.records import Architecture
from onecat.checkpoints.architectures.registry import family


@family("SeedOssForCausalLM")
def seed_oss(configuration: Configuration) -> Architecture:
    """Source: transformers' modeling_seed_oss.py, configuration_seed_oss.py (defaults of both biases)."""
    filled = configuration.with_defaults(attention_bias=True)
    return decoder(filled, Style(output_bias=filled.flag("attention_out_bias")))
