"""Dense GLM-4: the first of them, and those of April 2025 with two norms more in each layer."""

from __future__ import annotations

from dataclasses import replace

from onecat.checkpoints.architectures.configuration import Configuration
from onecat.checkpoints.architectures.decoder import Style, decoder
from onecat.checkpoints.architectures.records import Architecture
from onecat.checkpoints.architectures.registry import family

GLM = Style(output_bias=False, mlp_bias=False, fused_mlp=True)
GLM4 = replace(
    GLM,
    norms=("input_layernorm", "post_self_attn_layernorm", "post_attention_layernorm", "post_mlp_layernorm"),
)


@family("GlmForCausalLM")
def glm(configuration: Configuration) -> Architecture:
    """Source: transformers' modeling_glm.py."""
    return decoder(configuration, GLM)


@family("Glm4ForCausalLM")
def glm4(configuration: Configuration) -> Architecture:
    """Source: transformers' modeling_glm4.py."""
    return decoder(configuration, GLM4)
