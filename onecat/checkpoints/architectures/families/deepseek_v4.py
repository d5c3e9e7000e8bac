"""DeepSeek-V4: a window of tokens in every layer, and in most one entry for every 4 or every 128 tokens.

Names are those of DeepSeek's own checkpoints (`layers.0.attn.wq_a.weight`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from onecat.checkpoints.architectures import weights
from onecat.checkpoints.architectures.configuration import Configuration, IncompleteConfiguration, is_count
from onecat.checkpoints.architectures.description import common
from onecat.checkpoints.architectures.mixtures import numbered_experts, of_part, router
from onecat.checkpoints.architectures.records import Architecture, Experts, LatentLayers, Weight
from onecat.checkpoints.architectures.registry import family

INDEXED_RATIO = 4
"""Layers of this ratio overlap their entries and choose among them with an indexer; others read all of them.

Source: vllm 0.27.1, vllm/models/deepseek_v4/attention.py (DeepseekV4Attention) and compressor.py (coff).
"""


@family("DeepseekV4ForCausalLM")
def deepseek_v4(configuration: Configuration) -> Architecture:
    """Source: vllm 0.27.1, vllm/models/deepseek_v4/nvidia/model.py and mtp.py."""
    base, sizes = common(configuration), _Sizes.of(configuration)
    layers, hidden = configuration.integer("num_hidden_layers"), sizes.hidden
    drafts = configuration.count("num_nextn_predict_layers")
    ratios = _ratios(configuration, layers)
    vocabulary, mult = configuration.positive("vocab_size"), configuration.positive("hc_mult")
    experts = _experts(configuration, layers)
    hashed = configuration.count("num_hash_layers")

    def block(name: str, layer: int, ratio: int) -> Iterator[Weight]:
        yield from weights.norms(f"{name}.", ("attn_norm", "ffn_norm"), hidden, layer)
        yield from sizes.attention(f"{name}.attn", layer, ratio)
        gate = f"{name}.ffn.gate"
        yield from router(gate, experts.count, hidden, layer)
        if layer < hashed:
            yield Weight(f"{gate}.tid2eid", (vocabulary, experts.per_token), "other", layer)
        else:
            yield Weight(f"{gate}.bias", (experts.count,), "bias", layer)
        inner, shared = experts.intermediate_size, experts.shared_intermediate_size
        yield from numbered_experts(f"{name}.ffn.experts", layer, hidden, inner, experts.count)
        if shared:
            for each, shape in (("w1", (shared, hidden)), ("w2", (hidden, shared)), ("w3", (shared, hidden))):
                yield Weight(f"{name}.ffn.shared_experts.{each}.weight", shape, "linear", layer)
        mixed = (2 + mult) * mult
        for part in ("attn", "ffn"):
            yield from _connection(f"{name}.hc_{part}", layer, mixed, mult * hidden, 3)

    def draft(index: int) -> Iterator[Weight]:
        name, layer = f"mtp.{index}", layers + index
        yield from weights.norms(f"{name}.", ("enorm", "hnorm", "norm"), hidden, layer)
        yield from weights.linear(f"{name}.e_proj", hidden, hidden, layer)
        yield from weights.linear(f"{name}.h_proj", hidden, hidden, layer)
        yield from _connection(f"{name}.hc_head", layer, mult, mult * hidden, 1)
        yield Weight(f"{name}.emb.tok_emb.weight", (vocabulary, hidden), "embedding", layer)
        yield Weight(f"{name}.head.weight", (vocabulary, hidden), "head", layer)
        yield from block(name, layer, 0)

    def parameters() -> Iterator[Weight]:
        yield Weight("embed.weight", (vocabulary, hidden), "embedding")
        yield Weight("head.weight", (vocabulary, hidden), "head")
        for layer, ratio in enumerate(ratios):
            yield from block(f"layers.{layer}", layer, ratio)
        yield weights.norm("norm", hidden)
        yield from _connection("hc_head", None, mult, mult * hidden, 1)
        for index in range(drafts):
            yield from of_part("draft", draft(index))

    window = configuration.positive("sliding_window")
    compressed = (
        sizes.entries(tuple(index for index, each in enumerate(ratios) if each == ratio), ratio)
        for ratio in sorted(set(ratios) - {0, 1})
    )
    return base.replaced(
        head_size=sizes.head,
        intermediate_size=experts.shared_intermediate_size,
        caches=(sizes.latent(tuple(range(layers)), window), *compressed),
        draft_caches=(sizes.latent(tuple(range(layers, layers + drafts)), window),) if drafts else (),
        weights=tuple(parameters()),
        experts=experts,
    )


@dataclass(frozen=True)
class _Sizes:
    hidden: int
    heads: int
    head: int
    rope: int
    query_rank: int
    output_rank: int
    output_groups: int
    index_heads: int
    index_head: int

    @classmethod
    def of(cls, configuration: Configuration) -> _Sizes:
        return cls(
            configuration.positive("hidden_size"),
            configuration.positive("num_attention_heads"),
            configuration.positive("head_dim"),
            configuration.positive("qk_rope_head_dim"),
            configuration.positive("q_lora_rank"),
            configuration.positive("o_lora_rank"),
            configuration.positive("o_groups"),
            configuration.positive("index_n_heads"),
            configuration.positive("index_head_dim"),
        )

    def latent(self, layers: tuple[int, ...], window: int | None) -> LatentLayers:
        return LatentLayers(layers, self.heads, self.head - self.rope, self.rope, window)

    def entries(self, layers: tuple[int, ...], ratio: int) -> LatentLayers:
        index = self.index_head if ratio == INDEXED_RATIO else None
        return LatentLayers(layers, self.heads, self.head - self.rope, self.rope, None, index, ratio)

    def attention(self, prefix: str, layer: int, ratio: int) -> Iterator[Weight]:
        yield Weight(f"{prefix}.attn_sink", (self.heads,), "other", layer)
        yield from weights.linear(f"{prefix}.wq_a", self.query_rank, self.hidden, layer)
        yield weights.norm(f"{prefix}.q_norm", self.query_rank, layer)
        yield from weights.linear(f"{prefix}.wq_b", self.heads * self.head, self.query_rank, layer)
        yield from weights.linear(f"{prefix}.wkv", self.head, self.hidden, layer)
        yield weights.norm(f"{prefix}.kv_norm", self.head, layer)
        rows = self.output_groups * self.output_rank
        yield from weights.linear(f"{prefix}.wo_a", rows, self.heads * self.head // self.output_groups, layer)
        yield from weights.linear(f"{prefix}.wo_b", self.hidden, rows, layer)
        if ratio > 1:
            yield from self._compressor(f"{prefix}.compressor", layer, ratio, self.head)
        if ratio == INDEXED_RATIO:
            queries = self.index_heads * self.index_head
            yield from weights.linear(f"{prefix}.indexer.wq_b", queries, self.query_rank, layer)
            yield from weights.linear(f"{prefix}.indexer.weights_proj", self.index_heads, self.hidden, layer)
            yield from self._compressor(f"{prefix}.indexer.compressor", layer, ratio, self.index_head)

    def _compressor(self, prefix: str, layer: int, ratio: int, head: int) -> Iterator[Weight]:
        wide = _overlap(ratio) * head
        yield Weight(f"{prefix}.ape", (ratio, wide), "other", layer)
        yield from weights.linear(f"{prefix}.wkv", wide, self.hidden, layer)
        yield from weights.linear(f"{prefix}.wgate", wide, self.hidden, layer)
        yield weights.norm(f"{prefix}.norm", head, layer)


def _overlap(ratio: int) -> int:
    return 2 if ratio == INDEXED_RATIO else 1


def _connection(prefix: str, layer: int | None, rows: int, columns: int, scales: int) -> Iterator[Weight]:
    """The weights of a hyper-connection, which mixes copies of the hidden state."""
    yield Weight(f"{prefix}_fn", (rows, columns), "other", layer)
    yield Weight(f"{prefix}_base", (rows,), "other", layer)
    yield Weight(f"{prefix}_scale", (scales,), "other", layer)


def _ratios(configuration: Configuration, layers: int) -> tuple[int, ...]:
    stated = configuration.text.get("compress_ratios")
    ratios = tuple(filter(is_count, stated)) if isinstance(stated, list) else ()
    if len(ratios) < layers:
        raise IncompleteConfiguration(f"`compress_ratios` in config.json does not tell {layers} layers")
    return ratios[:layers]


def _experts(configuration: Configuration, layers: int) -> Experts:
    inner = configuration.positive("moe_intermediate_size")
    return Experts(
        tuple(range(layers)),
        configuration.positive("n_routed_experts"),
        configuration.positive("num_experts_per_tok"),
        inner,
        inner * configuration.count("n_shared_experts"),
    )
