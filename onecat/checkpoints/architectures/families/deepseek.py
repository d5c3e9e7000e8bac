"""DeepSeek-V2, V3 and what has their shape: latent attention and a mixture of experts with shared ones.

Kimi-K2, GLM-5 and Mistral 4 are the same with other numbers; V3.2 and GLM-5 have an indexer.
"""

from __future__ import annotations

from collections.abc import Iterator

from onecat.checkpoints.architectures import weights
from onecat.checkpoints.architectures.configuration import Configuration
from onecat.checkpoints.architectures.latent_attention import LatentAttention
from onecat.checkpoints.architectures.mixtures import (
    ExpertWeights,
    fused_experts,
    grouped_router_mixture,
    layers_after_dense,
    separate_experts,
)
from onecat.checkpoints.architectures.records import Architecture, Experts, Weight
from onecat.checkpoints.architectures.registry import family
from onecat.checkpoints.architectures.sparse_decoder import sparse_decoder


@family(
    "DeepseekV2ForCausalLM", "DeepseekV3ForCausalLM", "DeepseekV32ForCausalLM", "GlmMoeDsaForCausalLM",
    "Glm4MoeLiteForCausalLM",
)  # fmt: skip
def deepseek(configuration: Configuration) -> Architecture:
    """Source: transformers' modeling_deepseek_v2.py, modeling_deepseek_v3.py and modeling_glm_moe_dsa.py."""
    return deepseek_language_model(configuration)


@family("Mistral4ForCausalLM", "MistralLarge3ForCausalLM")
def mistral(configuration: Configuration) -> Architecture:
    """Source: transformers' modeling_mistral4.py; vllm 0.27.1, vllm/model_executor/models/mistral_large_3.py."""
    return mistral4_language_model(configuration)


def mistral4_language_model(
    configuration: Configuration, prefix: str = "model.", head: str = "lm_head"
) -> Architecture:
    """Mistral 4, whose router corrects nothing and whose experts of a layer are one tensor."""
    plain = configuration.with_defaults(topk_method="greedy")
    return deepseek_language_model(plain, prefix, head, fused_experts)


def deepseek_language_model(
    configuration: Configuration, prefix: str = "model.", head: str = "lm_head",
    experts_of_layer: ExpertWeights = separate_experts,
) -> Architecture:  # fmt: skip
    """The language model, whose names begin with `prefix`, also where it is a part of a larger model."""
    attention = LatentAttention.of(configuration)
    hidden, layers = attention.hidden, configuration.integer("num_hidden_layers")
    drafts = configuration.count("num_nextn_predict_layers")
    count = configuration.count("n_routed_experts")
    inner = configuration.positive("moe_intermediate_size") if count else 0
    shared = inner * configuration.count("n_shared_experts")
    mixed = layers_after_dense(configuration, layers) if count else ()
    with_experts = {*mixed, *range(layers, layers + drafts)} if mixed else set()
    corrected = configuration.text.get("topk_method", "noaux_tc") == "noaux_tc"

    def feed_forward(name: str, layer: int) -> Iterator[Weight]:
        if layer in with_experts:
            yield from grouped_router_mixture(
                f"{name}.mlp", layer, hidden, inner, count, shared,
                correction_bias=corrected, experts_of_layer=experts_of_layer,
            )  # fmt: skip
        else:
            yield from weights.gated_mlp(f"{name}.mlp", layer, hidden, configuration.positive("intermediate_size"))

    return sparse_decoder(
        configuration,
        lambda name, layer: attention.weights(f"{name}.self_attn", layer),
        feed_forward,
        attention.caches(tuple(range(layers))),
        Experts(mixed, count, configuration.positive("num_experts_per_tok"), inner, shared) if mixed else None,
        prefix=prefix,
        head=head,
        next_token_layers=drafts,
        draft_caches=attention.caches(tuple(range(layers, layers + drafts))),
    ).replaced(head_size=attention.plain_size + attention.rope_size)
