"""Parameters that many families share, by the names that checkpoints of the Hugging Face layout use."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

from onecat.checkpoints.architectures.records import Part, Weight

QueryKeyNorm = Literal["head", "all", "each"]
"""A norm of q and of k: over each head, over all heads together, or with weights of its own for each head."""

FOUR_NORMS = (
    "input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm", "post_feedforward_layernorm",
)  # fmt: skip
"""Of a layer with norms before and after both attention and feed-forward network, as Gemma's from 2 on."""


def embeddings(prefix: str, vocabulary: int, hidden: int, tied: bool, head: str = "lm_head") -> Iterator[Weight]:
    """The input embedding [vocabulary, hidden], and the output head where it is one of its own."""
    yield Weight(f"{prefix}embed_tokens.weight", (vocabulary, hidden), "embedding")
    if not tied:
        yield Weight(f"{head}.weight", (vocabulary, hidden), "head")


def linear(
    name: str, out: int, into: int, layer: int | None = None, *, bias: bool = False, count: int = 1,
    part: Part = "language",
) -> Iterator[Weight]:  # fmt: skip
    """A matrix [out, into], and its bias [out]."""
    yield Weight(f"{name}.weight", (out, into), "linear", layer, count, part)
    if bias:
        yield Weight(f"{name}.bias", (out,), "bias", layer, count, part)


def norm(name: str, size: int, layer: int | None = None, part: Part = "language") -> Weight:
    """A norm's weight [size]."""
    return Weight(f"{name}.weight", (size,), "norm", layer, 1, part)


def norms(
    prefix: str, names: Sequence[str], size: int, layer: int | None = None, *, bias: bool = False,
    part: Part = "language",
) -> Iterator[Weight]:  # fmt: skip
    """Norms of one size, each with a bias [size] when they have one."""
    for name in names:
        yield norm(f"{prefix}{name}", size, layer, part)
        if bias:
            yield Weight(f"{prefix}{name}.bias", (size,), "norm", layer, 1, part)


def attention(
    prefix: str, layer: int, hidden: int, query_heads: int, key_value_heads: int, head: int, *,
    value_head: int | None = None, bias: bool = False, output_bias: bool = False,
    query_key_norm: QueryKeyNorm | None = None,
) -> Iterator[Weight]:  # fmt: skip
    """q_proj, k_proj, v_proj and o_proj of one layer, with norms of q and k where there are any."""
    value = head if value_head is None else value_head
    yield from linear(f"{prefix}.q_proj", query_heads * head, hidden, layer, bias=bias)
    yield from linear(f"{prefix}.k_proj", key_value_heads * head, hidden, layer, bias=bias)
    yield from linear(f"{prefix}.v_proj", key_value_heads * value, hidden, layer, bias=bias)
    yield from linear(f"{prefix}.o_proj", hidden, query_heads * value, layer, bias=output_bias)
    if query_key_norm is not None:
        for name, count in (("q_norm", query_heads), ("k_norm", key_value_heads)):
            shape = {"head": (head,), "all": (count * head,), "each": (count, head)}[query_key_norm]
            yield Weight(f"{prefix}.{name}.weight", shape, "norm", layer)


def gated_mlp(
    prefix: str,
    layer: int | None,
    hidden: int,
    inner: int,
    count: int = 1,
    *,
    bias: bool = False,
    part: Part = "language",
) -> Iterator[Weight]:
    """gate_proj, up_proj and down_proj of one layer, or of `count` experts (`*` in the prefix)."""
    yield from linear(f"{prefix}.gate_proj", inner, hidden, layer, bias=bias, count=count, part=part)
    yield from linear(f"{prefix}.up_proj", inner, hidden, layer, bias=bias, count=count, part=part)
    yield from linear(f"{prefix}.down_proj", hidden, inner, layer, bias=bias, count=count, part=part)
