"""Multi-head latent attention (MLA), with or without the indexer of sparse attention."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from onecat.checkpoints.architectures import weights
from onecat.checkpoints.architectures.configuration import Configuration
from onecat.checkpoints.architectures.records import LatentLayers, Weight


@dataclass(frozen=True)
class LatentAttention:
    """Sizes in elements. query_rank: None when queries are projected in one step. index_heads: 0 without an indexer.

    unindexed: layers that take over what the indexer of a layer before them chose.
    """

    hidden: int
    heads: int
    query_rank: int | None
    latent_rank: int
    plain_size: int
    rope_size: int
    value_size: int
    bias: bool
    index_heads: int = 0
    index_head_size: int = 0
    unindexed: frozenset[int] = frozenset()

    @classmethod
    def of(cls, configuration: Configuration) -> LatentAttention:
        """By the names of DeepSeek's configuration."""
        indexed = configuration.optional("index_topk") is not None
        return cls(
            configuration.positive("hidden_size"),
            configuration.positive("num_attention_heads"),
            configuration.count("q_lora_rank") or None,
            configuration.positive("kv_lora_rank"),
            configuration.positive("qk_nope_head_dim"),
            configuration.positive("qk_rope_head_dim"),
            configuration.positive("v_head_dim"),
            configuration.flag("attention_bias"),
            configuration.positive("index_n_heads") if indexed else 0,
            configuration.positive("index_head_dim") if indexed else 0,
            _unindexed(configuration) if indexed else frozenset(),
        )

    def weights(self, prefix: str, layer: int) -> Iterator[Weight]:
        """The projections of one layer.

        Source: transformers' modeling_deepseek_v3.py (DeepseekV3Attention) and modeling_deepseek_v32.py (indexer).
        """
        query_size = self.heads * (self.plain_size + self.rope_size)
        if self.query_rank is None:
            yield from weights.linear(f"{prefix}.q_proj", query_size, self.hidden, layer)
        else:
            yield from weights.linear(f"{prefix}.q_a_proj", self.query_rank, self.hidden, layer, bias=self.bias)
            yield weights.norm(f"{prefix}.q_a_layernorm", self.query_rank, layer)
            yield from weights.linear(f"{prefix}.q_b_proj", query_size, self.query_rank, layer)
        kept = self.latent_rank + self.rope_size
        yield from weights.linear(f"{prefix}.kv_a_proj_with_mqa", kept, self.hidden, layer, bias=self.bias)
        yield weights.norm(f"{prefix}.kv_a_layernorm", self.latent_rank, layer)
        expanded = self.heads * (self.plain_size + self.value_size)
        yield from weights.linear(f"{prefix}.kv_b_proj", expanded, self.latent_rank, layer)
        yield from weights.linear(f"{prefix}.o_proj", self.hidden, self.heads * self.value_size, layer, bias=self.bias)
        if self.index_heads and layer not in self.unindexed:
            yield from self._indexer(f"{prefix}.indexer", layer)

    def _indexer(self, prefix: str, layer: int) -> Iterator[Weight]:
        queries = self.index_heads * self.index_head_size
        yield from weights.linear(f"{prefix}.wq_b", queries, self.query_rank or self.hidden, layer)
        yield from weights.linear(f"{prefix}.wk", self.index_head_size, self.hidden, layer)
        yield weights.norm(f"{prefix}.k_norm", self.index_head_size, layer)
        yield Weight(f"{prefix}.k_norm.bias", (self.index_head_size,), "bias", layer)
        yield from weights.linear(f"{prefix}.weights_proj", self.index_heads, self.hidden, layer)

    def caches(self, layers: tuple[int, ...]) -> tuple[LatentLayers, ...]:
        """What these layers keep: those with an indexer of their own, and those without."""
        without = tuple(layer for layer in layers if not self.index_heads or layer in self.unindexed)
        own = tuple(layer for layer in layers if layer not in without)
        groups = (
            LatentLayers(alike, self.heads, self.latent_rank, self.rope_size, index_head_size=size)
            for alike, size in ((own, self.index_head_size), (without, None))
        )
        return tuple(each for each in groups if each.layers)


def _unindexed(configuration: Configuration) -> frozenset[int]:
    """Source: vllm 0.27.1, vllm/model_executor/models/deepseek_v2.py (DeepseekV2MLAAttention: IndexCache)."""
    layers = configuration.integer("num_hidden_layers")
    kinds, pattern = configuration.words("indexer_types"), configuration.word("index_topk_pattern")
    if kinds:
        return frozenset(index for index, kind in enumerate(kinds[:layers]) if kind == "shared")
    if pattern is not None:
        return frozenset(index for index, letter in enumerate(pattern[:layers]) if letter == "S")
    step = configuration.positive("index_topk_freq", default=1)
    first = configuration.integer("index_skip_topk_offset", default=2)
    return frozenset(layer for layer in range(layers) if max(layer - first + 1, 0) % step)
