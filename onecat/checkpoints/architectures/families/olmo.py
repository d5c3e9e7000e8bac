"""OLMo 2 and 3: norms after attention and feed-forward network, and over all heads of q and of k together."""

from __future__ import annotations

from onecat.checkpoints.architectures.configuration import Configuration
from onecat.checkpoints.architectures.decoder import Style, decoder
from onecat.checkpoints.architectures.records import Architecture
from onecat.checkpoints.architectures.registry import family

OLMO2 = Style(query_key_norm="all", mlp_bias=False, norms=("post_attention_layernorm", "post_feedforward_layernorm"))


@family("Olmo2ForCausalLM", "Olmo3ForCausalLM")
def olmo(configuration: Configuration) -> Architecture:
    """Every fourth layer of OLMo 3 keeps all tokens; OLMo 2 states no window.

    Source: transformers' modeling_olmo2.py, configuration_olmo3.py.
    """
    return decoder(configuration, OLMO2, lambda layer: (layer + 1) % 4 != 0)
