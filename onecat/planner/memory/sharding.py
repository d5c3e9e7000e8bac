"""Which part of a tensor one tensor-parallel rank holds, by the name of its module.

Source: vllm/model_executor/layers/linear.py, vocab_parallel_embedding.py and the models of vLLM 0.27.1, whose
stacked layers (qkv_proj, gate_up_proj) divide as their parts do.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from onecat.checkpoints import Architecture
from onecat.checkpoints.architectures import KeyValueLayers

Division = Literal["out", "in", "vocabulary", "key-value", "query-key-value", "whole"]
"""What of a weight [out, in] is divided: rows, columns, rows of a padded vocabulary, rows by key-value heads."""

VOCABULARY_PADDING = 64
"""vllm/model_executor/layers/vocab_parallel_embedding.py (DEFAULT_VOCAB_PADDING_SIZE)."""

_DIVISIONS: dict[Division, str] = {
    "vocabulary": "embed_tokens|lm_head|word_embeddings|wte|embed_tokens_per_layer|embed|head",
    "key-value": "k_proj|v_proj",
    "query-key-value": "qkv_proj|query_key_value|Wqkv|c_attn",
    "out": (
        "q_proj|gate_proj|up_proj|gate_up_proj|q_b_proj|kv_b_proj|wq_b|w1|w3|fc1|c_fc|dense_h_to_4h|qkv|in_proj"
        "|in_proj_qkvz|in_proj_qkv|in_proj_z|in_proj_ba|in_proj_a|in_proj_b|conv1d|g_proj|linear_fc1|wo_a"
        "|q_conv1d|k_conv1d|v_conv1d|f_b_proj|g_b_proj|b_proj"
    ),
    "in": "o_proj|down_proj|out_proj|w2|fc2|c_proj|dense_4h_to_h|dense|wo|wo_b|linear_fc2|proj",
}
_BY_NAME = {name: division for division, names in _DIVISIONS.items() for name in names.split("|")}

_DIVIDED_PARAMETERS = re.compile(r"(^|\.)(A_log|dt_bias|D|sinks)$")
"""Parameters of a layer itself, one number for each head: they follow the heads."""

_WHOLE = re.compile(r"indexer\.|(^|\.)(mtp\.fc|eh_proj)$")
"""Modules that every rank holds whole although their last name is divided elsewhere."""


@dataclass(frozen=True)
class Ranks:
    """How many ranks share the layers. expert_parallel: experts are dealt out whole and not divided."""

    tensor_parallel: int
    expert_parallel: bool = False


def division_of(module: str, part: str = "language") -> Division:
    """How the weight of a module is divided; whole where nothing is known to divide it.

    Parameters:
        module: its name in the checkpoint, as `model.layers.0.mlp.down_proj`.
        part: of the architecture; the projector of a tower is taken to divide as the tower does.
    """
    if _WHOLE.search(module):
        return "whole"
    return _BY_NAME.get(module.rpartition(".")[2], "whole")


def rows_of_rank(rows: int, division: Division, ranks: int, layers: KeyValueLayers | None = None) -> int:
    """Rows of a weight that one rank holds.

    Parameters:
        layers: the key-value heads of its layer, which are repeated where there are more ranks than heads.
    """
    if division == "vocabulary":
        return _up(rows, VOCABULARY_PADDING) // ranks
    if division == "key-value" and layers is not None:
        return rows // layers.key_value_heads * -(-layers.key_value_heads // ranks)
    if division == "query-key-value" and layers is not None:
        heads = layers.query_heads + 2 * layers.key_value_heads
        return rows // heads * (layers.query_heads // ranks + 2 * -(-layers.key_value_heads // ranks))
    if division in ("whole", "in"):
        return rows
    return -(-rows // ranks)


def columns_of_rank(columns: int, division: Division, ranks: int) -> int:
    """Columns of a weight that one rank holds."""
    return -(-columns // ranks) if division == "in" else columns


def divides_parameter(name: str) -> bool:
    """Whether a parameter that is no weight of a linear module holds one number for each head."""
    return _DIVIDED_PARAMETERS.search(name) is not None


def key_value_layers(architecture: Architecture, layer: int | None) -> KeyValueLayers | None:
    """The heads of the layer; None when it has none or they are not known."""
    for cache in architecture.caches:
        if isinstance(cache, KeyValueLayers) and (layer in cache.layers):
            return cache
    return None


def _up(number: int, multiple: int) -> int:
    return -(-number // multiple) * multiple
