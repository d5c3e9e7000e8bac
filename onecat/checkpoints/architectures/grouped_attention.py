"""Ordinary attention: heads of queries that share heads of keys and values in groups (MHA, GQA, MQA)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from onecat.checkpoints.architectures import weights
from onecat.checkpoints.architectures.configuration import Configuration
from onecat.checkpoints.architectures.records import KeyValueLayers, Weight
from onecat.checkpoints.architectures.weights import QueryKeyNorm


@dataclass(frozen=True)
class GroupedAttention:
    """The same in each of its layers. hidden, head: elements; head: of one head of queries, keys or values."""

    hidden: int
    heads: int
    key_value_heads: int
    head: int

    @classmethod
    def of(cls, configuration: Configuration, *aliases: str) -> GroupedAttention:
        """By the names of Llama's configuration.

        Parameters:
            aliases: further names of the size of a head.

        Raises IncompleteConfiguration.
        """
        heads, hidden = configuration.positive("num_attention_heads"), configuration.positive("hidden_size")
        return cls(
            hidden,
            heads,
            configuration.positive("num_key_value_heads", default=heads),
            configuration.positive("head_dim", *aliases, default=hidden // heads),
        )

    @property
    def inner(self) -> int:
        """Elements of all heads of queries."""
        return self.heads * self.head

    @property
    def fused_rows(self) -> int:
        """Rows of a matrix that holds q, k and v."""
        return self.inner + 2 * self.key_value_heads * self.head

    def weights(
        self, prefix: str, layer: int, *, bias: bool = False, output_bias: bool = False,
        query_key_norm: QueryKeyNorm | None = None,
    ) -> Iterator[Weight]:  # fmt: skip
        """The projections of one layer."""
        return weights.attention(
            prefix, layer, self.hidden, self.heads, self.key_value_heads, self.head,
            bias=bias, output_bias=output_bias, query_key_norm=query_key_norm,
        )  # fmt: skip

    def cache(self, layers: tuple[int, ...], window: int | None = None) -> KeyValueLayers:
        """What these layers keep."""
        return KeyValueLayers(layers, self.heads, self.key_value_heads, self.head, self.head, window)
