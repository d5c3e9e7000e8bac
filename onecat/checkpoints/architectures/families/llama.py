"""Llama 1 to 3 and what has its decoder: Mistral, Granite, InternLM3, Falcon3."""

from __future__ import annotations

from onecat.checkpoints.architectures.configuration import Configuration
from onecat.checkpoints.architectures.decoder import decoder
from onecat.checkpoints.architectures.records import Architecture
from onecat.checkpoints.architectures.registry import family


@family(
    "LlamaForCausalLM", "LLaMAForCausalLM", "MistralForCausalLM", "Ministral3ForCausalLM", "GraniteForCausalLM",
    "IQuestCoderForCausalLM",
)  # fmt: skip
def llama(configuration: Configuration) -> Architecture:
    """Source: transformers' modeling_llama.py; vLLM's registry.py (models that its llama.py serves)."""
    return decoder(configuration)
