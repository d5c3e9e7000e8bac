"""What a configuration claims of bits, groups and blocks, as sets: enough to hold scales to.

Whether each tensor is what the claim for its module says is another matter; `inspect` tells those contradictions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

DEEPEST = 6


@dataclass(frozen=True)
class Claims:
    """bits: of packed integers. groups: elements that share a scale, -1 for all of a row. blocks: [rows, columns]."""

    bits: tuple[int, ...] = ()
    groups: tuple[int, ...] = ()
    blocks: tuple[tuple[int, int], ...] = ()


def claims(documents: Mapping[str, Any]) -> Claims:
    """The claims of all files that describe quantisation."""
    stated: list[Any] = [
        documents.get(name) for name in ("hf_quant_config.json", "quantize_config.json", "quant_config.json")
    ]
    config = documents.get("config.json")
    for document in (config, config.get("text_config") if isinstance(config, Mapping) else None):
        if isinstance(document, Mapping):
            stated += [document.get("quantization_config"), document.get("compression_config")]
    bits: set[int] = set()
    groups: set[int] = set()
    blocks: set[tuple[int, int]] = set()
    for document in stated:
        for key, value in _entries(document, DEEPEST):
            if type(value) is int and value:
                if key in ("num_bits", "bits", "w_bit") and 0 < value <= 16:
                    bits.add(value)
                elif key in ("group_size", "q_group_size"):
                    groups.add(value)
            elif key in ("weight_block_size", "block_structure") and _is_block(value):
                blocks.add((value[0], value[1]))
    return Claims(tuple(sorted(bits)), tuple(sorted(groups)), tuple(sorted(blocks)))


def _is_block(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 2 and all(type(each) is int and each > 0 for each in value)


def _entries(value: Any, left: int) -> Iterator[tuple[str, Any]]:
    if left and isinstance(value, Mapping):
        for key, inner in value.items():
            # What activations are turned into has groups of its own.
            if key not in ("input_activations", "output_activations", "kv_cache_scheme"):
                yield key, inner
                yield from _entries(inner, left - 1)
