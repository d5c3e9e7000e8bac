"""Layers that predict further tokens (MTP), by the names of DeepSeek-V3."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from onecat.checkpoints.architectures import weights
from onecat.checkpoints.architectures.mixtures import of_part
from onecat.checkpoints.architectures.records import Weight


def next_token_layer(
    prefix: str, layer: int, hidden: int, vocabulary: int, block: Iterable[Weight]
) -> Iterator[Weight]:
    """One such layer: a decoder block with a projection before it, an embedding and a head of its own.

    Source: vllm 0.27.1, vllm/model_executor/models/deepseek_mtp.py, and the index of deepseek-ai/DeepSeek-V3.
    """

    def members() -> Iterator[Weight]:
        yield Weight(f"{prefix}.embed_tokens.weight", (vocabulary, hidden), "embedding", layer)
        yield weights.norm(f"{prefix}.enorm", hidden, layer)
        yield weights.norm(f"{prefix}.hnorm", hidden, layer)
        yield from weights.linear(f"{prefix}.eh_proj", hidden, 2 * hidden, layer)
        yield from block
        yield weights.norm(f"{prefix}.shared_head.norm", hidden, layer)
        yield Weight(f"{prefix}.shared_head.head.weight", (vocabulary, hidden), "head", layer)

    return of_part("draft", members())
