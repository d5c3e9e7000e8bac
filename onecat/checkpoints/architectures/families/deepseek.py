"""DeepSeek-V2, V3 and what has their shape: latent attention and a mixture of experts with shared ones.

Kimi-K2 and GLM-5 are the same with other numbers; V3.2 and GLM-5 have an indexer.
"""

from __future__ import annotations

from collections.abc import Iterator

from onecat.checkpoints.architectures import weights
from onecat.checkpoints.architectures.configuration import Configuration
from onecat.checkpoints.architectures.description import common
from onecat.checkpoints.architectures.latent_attention import LatentAttention
from onecat.checkpoints.architectures.mixtures import grouped_router_mixture, layers_after_dense
from onecat.checkpoints.architectures.next_token_layers import next_token_layer
from onecat.checkpoints.architectures.records import Architecture, Experts, Weight
from onecat.checkpoints.architectures.registry import family


@family("DeepseekV2ForCausalLM", "DeepseekV3ForCausalLM", "DeepseekV32ForCausalLM", "GlmMoeDsaForCausalLM")
def deepseek(configuration: Configuration) -> Architecture:
    """Source: transformers' modeling_deepseek_v2.py, modeling_deepseek_v3.py and modeling_glm_moe_dsa.py."""
    return deepseek_language_model(configuration, "model.")


def deepseek_language_model(configuration: Configuration, prefix: str, head: str = "lm_head") -> Architecture:
    """The language model, whose names begin with `prefix`, also where it is a part of a larger model."""
    base = common(configuration)
    attention = LatentAttention.of(configuration)
    hidden, vocabulary = attention.hidden, configuration.integer("vocab_size")
    layers = configuration.integer("num_hidden_layers")
    drafts = configuration.integer("num_nextn_predict_layers", default=0)
    count, inner = configuration.optional("n_routed_experts") or 0, configuration.optional("moe_intermediate_size") or 0
    shared = inner * (configuration.optional("n_shared_experts") or 0)
    mixed = layers_after_dense(configuration, layers) if count else ()
    corrected = configuration.text.get("topk_method", "noaux_tc") == "noaux_tc"

    def block(layer: int) -> Iterator[Weight]:
        name = f"{prefix}layers.{layer}"
        yield weights.norm(f"{name}.input_layernorm", hidden, layer)
        yield from attention.weights(f"{name}.self_attn", layer)
        yield weights.norm(f"{name}.post_attention_layernorm", hidden, layer)
        if layer in with_experts:
            yield from grouped_router_mixture(
                f"{name}.mlp", layer, hidden, inner, count, shared, correction_bias=corrected
            )
        else:
            yield from weights.gated_mlp(f"{name}.mlp", layer, hidden, configuration.integer("intermediate_size"))

    def all_weights() -> Iterator[Weight]:
        yield from weights.embeddings(prefix, vocabulary, hidden, base.tied_embeddings, head)
        for layer in range(layers):
            yield from block(layer)
        yield weights.norm(f"{prefix}norm", hidden)
        for layer in range(layers, layers + drafts):
            yield from next_token_layer(f"{prefix}layers.{layer}", layer, hidden, vocabulary, block(layer))

    with_experts = {*mixed, *range(layers, layers + drafts)} if mixed else set()
    return base.replaced(
        head_size=attention.plain_size + attention.rope_size,
        intermediate_size=base.intermediate_size if len(mixed) < layers else shared,
        caches=(attention.cache(tuple(range(layers))),),
        draft_caches=(attention.cache(tuple(range(layers, layers + drafts))),) if drafts else (),
        weights=tuple(all_weights()),
        experts=Experts(mixed, count, configuration.integer("num_experts_per_tok"), inner, shared) if mixed else None,
    )
