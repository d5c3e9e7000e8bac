"""Llama 1 to 3 and what has its decoder: Mistral, Granite, Falcon3, SmolLM3."""

from __future__ import annotations

from onecat.checkpoints.architectures.configuration import Configuration
from onecat.checkpoints.architectures.decoder import Style, decoder
from onecat.checkpoints.architectures.records import Architecture
from onecat.checkpoints.architectures.registry import family


@family(
    "LlamaForCausalLM", "LLaMAForCausalLM", "MistralForCausalLM", "Ministral3ForCausalLM", "GraniteForCausalLM",
    "IQuestCoderForCausalLM",
)  # fmt: skip
def llama(configuration: Configuration) -> Architecture:
    """Source: transformers' modeling_llama.py; vLLM's registry.py (models that its llama.py serves)."""
    return decoder(configuration)


@family("SmolLM3ForCausalLM")
def smollm3(configuration: Configuration) -> Architecture:
    """Source: transformers' modeling_smollm3.py, configuration_smollm3.py (tied unless it says otherwise)."""
    return decoder(configuration.with_defaults(use_sliding_window=False), Style(tied=True))
