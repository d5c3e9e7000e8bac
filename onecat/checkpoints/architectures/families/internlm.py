"""InternLM 2, 2.5 and 3."""

from __future__ import annotations

from collections.abc import Iterator

from onecat.checkpoints.architectures import weights
from onecat.checkpoints.architectures.configuration import Configuration
from onecat.checkpoints.architectures.decoder import Style, decoder
from onecat.checkpoints.architectures.grouped_attention import GroupedAttention
from onecat.checkpoints.architectures.records import Architecture, Weight
from onecat.checkpoints.architectures.registry import family


@family("InternLM3ForCausalLM")
def internlm3(configuration: Configuration) -> Architecture:
    """`bias` is of the output and the feed-forward network, `qkv_bias` of q, k and v.

    Source: modeling_internlm3.py beside its checkpoints.
    """
    bias = configuration.flag("bias")
    return decoder(configuration, Style(attention_bias=configuration.flag("qkv_bias"), output_bias=bias, mlp_bias=bias))


@family("InternLM2ForCausalLM")
def internlm2(configuration: Configuration) -> Architecture:
    """Llama's decoder with names of its own, q, k and v in one matrix.

    Source: vLLM's internlm2.py; modeling_internlm2.py beside its checkpoints.
    """
    alike = decoder(configuration)
    hidden, inner = configuration.positive("hidden_size"), configuration.positive("intermediate_size")
    vocabulary, bias = configuration.positive("vocab_size"), configuration.flag("bias")
    grouped = GroupedAttention.of(configuration)

    def parameters() -> Iterator[Weight]:
        yield Weight("model.tok_embeddings.weight", (vocabulary, hidden), "embedding")
        for layer in range(configuration.integer("num_hidden_layers")):
            prefix = f"model.layers.{layer}."
            yield from weights.linear(f"{prefix}attention.wqkv", grouped.fused_rows, hidden, layer, bias=bias)
            yield from weights.linear(f"{prefix}attention.wo", hidden, grouped.inner, layer, bias=bias)
            yield from weights.linear(f"{prefix}feed_forward.w1", inner, hidden, layer)
            yield from weights.linear(f"{prefix}feed_forward.w3", inner, hidden, layer)
            yield from weights.linear(f"{prefix}feed_forward.w2", hidden, inner, layer)
            yield from weights.norms(prefix, ("attention_norm", "ffn_norm"), hidden, layer)
        yield weights.norm("model.norm", hidden)
        if not alike.tied_embeddings:
            yield Weight("output.weight", (vocabulary, hidden), "head")

    return alike.replaced(weights=tuple(parameters()))
