"""Which part of a tensor one tensor-parallel rank holds, by the name of its module.

Source: vllm/model_executor/layers/linear.py, vocab_parallel_embedding.py and the models of vLLM 0.27.1, whose
stacked layers (qkv_proj, gate_up_proj) divide as their parts do.
"""

from __future__ import annotations

import re
from typing import Literal

from onecat.checkpoints import Architecture
from onecat.checkpoints.architectures import KeyValueLayers, Weight

Division = Literal["out", "in", "vocabulary", "key-value", "query-key-value", "whole"]
"""What of a weight [out, in] is divided: rows, columns, rows of a padded vocabulary, rows by key-value heads."""

VOCABULARY_PADDING = 64
"""vllm/model_executor/layers/vocab_parallel_embedding.py (DEFAULT_VOCAB_PADDING_SIZE)."""

_NAMES: dict[Division, str] = {
    "vocabulary": (
        "embed_tokens lm_head word_embeddings wte embed_tokens_per_layer embed head tok_embeddings output embed_in"
        " embed_out"
    ),
    "key-value": "k_proj v_proj",
    "query-key-value": "qkv_proj query_key_value Wqkv wqkv c_attn",
    "out": (
        "q_proj gate_proj up_proj gate_up_proj q_b_proj kv_b_proj wq_b w1 w3 fc1 c_fc dense_h_to_4h qkv in_proj"
        " in_proj_qkvz in_proj_qkv in_proj_z in_proj_ba in_proj_a in_proj_b conv1d g_proj linear_fc1 wo_a"
        " q_conv1d k_conv1d v_conv1d f_b_proj g_b_proj b_proj A_log dt_bias D sinks attn_sink"
        " per_layer_model_projection"
    ),
    "in": "o_proj down_proj out_proj w2 fc2 c_proj dense_4h_to_h dense wo wo_b linear_fc2 proj",
}
_BY_NAME = {name: division for division, names in _NAMES.items() for name in names.split()}

_WHOLE = re.compile(r"(?:^|\.)(?:indexer\..*|mtp\.fc|eh_proj|patch_embed\.proj|compressor\..*)$")
"""Modules that every rank holds whole although their last name is divided elsewhere."""


def division_of(stem: str) -> Division:
    """How a weight is divided; whole where nothing is known to divide it.

    Parameters:
        stem: its module (`model.layers.0.mlp.down_proj`), or the parameter itself where it is no module's (`A_log`).
    """
    return "whole" if _WHOLE.search(stem) else _BY_NAME.get(stem.rpartition(".")[2], "whole")


def rows_of_rank(rows: int, division: Division, ranks: int, heads: KeyValueLayers | None = None) -> int:
    """Rows that one rank holds; key-value heads are repeated where there are more ranks than heads."""
    if division == "vocabulary":
        return -(-rows // VOCABULARY_PADDING) * VOCABULARY_PADDING // ranks
    if division == "key-value" and heads is not None and rows >= heads.key_value_heads:
        return rows // heads.key_value_heads * -(-heads.key_value_heads // ranks)
    if division == "query-key-value" and heads is not None and rows >= heads.query_heads:
        alike = heads.query_heads + 2 * heads.key_value_heads
        return rows // alike * (heads.query_heads // ranks + 2 * -(-heads.key_value_heads // ranks))
    return rows if division in ("whole", "in") else -(-rows // ranks)


def rank_shape(
    shape: tuple[int, ...], division: Division, ranks: int, *, heads: KeyValueLayers | None = None,
    outer: int = 0, transposed: bool = False, one_axis_is_in: bool = False,
) -> tuple[int, ...]:  # fmt: skip
    """The shape of a tensor on one rank.

    Parameters:
        outer: axes before out and in (experts). transposed: [in, out]. one_axis_is_in: a single axis goes along in.
    """
    axes = list(shape)
    out, into = (outer + 1, outer) if transposed else (outer, outer + 1)
    if one_axis_is_in and len(axes) == outer + 1:
        out, into = outer + 1, outer
    if out < len(axes) and axes[out] > 1:
        axes[out] = rows_of_rank(axes[out], division, ranks, heads)
    if into < len(axes) and axes[into] > 1 and division == "in":
        axes[into] = -(-axes[into] // ranks)
    return tuple(axes)


def key_value_layers(architecture: Architecture, layer: int | None) -> KeyValueLayers | None:
    """The heads of a layer; None when it has none or they are not known."""
    caches = (*architecture.caches, *architecture.draft_caches)
    return next((each for each in caches if isinstance(each, KeyValueLayers) and layer in each.layers), None)


def heads_of(architecture: Architecture, weight: Weight) -> KeyValueLayers | None:
    """The heads of a weight's layer: layers of towers have none."""
    return key_value_layers(architecture, weight.layer) if weight.part in ("language", "draft") else None
