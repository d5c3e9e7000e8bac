"""An architecture told from the tensors of a checkpoint, for those that no family describes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from onecat.checkpoints.architectures import Architecture, Configuration, Experts, Weight
from onecat.checkpoints.architectures.description import MOST_LAYERS
from onecat.checkpoints.architectures.layers import alike, windows
from onecat.checkpoints.architectures.naming import named
from onecat.checkpoints.architectures.records import Cache, KeyValueLayers, LatentLayers
from onecat.checkpoints.modules import modules_of
from onecat.checkpoints.observation import observe
from onecat.checkpoints.quantization import Quantization
from onecat.checkpoints.tensors import StoredTensors

COMMON_HEAD_SIZES = (128, 64, 256, 96, 80, 192, 512, 32)
"""Tried in this order where neither config.json nor a norm tells the size of a head."""

KEYS = ("k_proj", "key", "wk", "key_proj", "to_k")
QUERIES = ("q_proj", "query", "wq", "query_proj", "to_q")
VALUES = ("v_proj", "value", "wv", "value_proj", "to_v")
FUSED = ("qkv_proj", "query_key_value", "wqkv", "Wqkv", "c_attn", "qkv", "W_pack")
OUTPUTS = ("o_proj", "dense", "wo", "out_proj", "c_proj", "to_out", "proj")
LATENTS = ("kv_a_proj_with_mqa", "wkv_a")
SINKS = ("sinks", "attention_sink_bias")
STATES = ("A_log", "dt_bias", "conv1d")


def from_tensors(
    architecture: Architecture,
    tensors: Sequence[StoredTensors],
    config: Mapping[str, Any] | None = None,
    quantization: Quantization | None = None,
) -> Architecture:
    """The architecture with its weights, layers and caches from the headers of its weight files.

    One whose configuration told them (`estimated` is None) comes back as it is; so does one without tensors. Else
    `estimated` says what they are from, and what could not be told.

    Parameters:
        config: config.json, for heads and windows where it states them in fields that all families share.
        quantization: what is claimed of packed tensors, which do not tell how many elements a number holds.
    """
    if architecture.estimated is None or not tensors:
        return architecture
    configuration = Configuration.of(config or {})
    weights = tuple(_weights(tensors, quantization, architecture.layers))
    by_layer = _by_layer(weights)
    layers = max(by_layer, default=-1) + 1
    embedding = next((each for each in weights if each.kind == "embedding" and len(each.shape) == 2), None)
    hidden = architecture.hidden_size or (embedding.shape[1] if embedding else None)
    found = _caches(by_layer, architecture, configuration, hidden, layers)
    head = any(each.kind == "head" for each in weights)
    first = next((each for each in found.caches if isinstance(each, KeyValueLayers)), None)
    return architecture.replaced(
        layers=layers or architecture.layers,
        hidden_size=hidden,
        vocabulary_size=architecture.vocabulary_size or (embedding.shape[0] if embedding else None),
        attention_heads=architecture.attention_heads or (first.query_heads if first else None),
        key_value_heads=first.key_value_heads if first else architecture.key_value_heads,
        head_size=first.head_size if first else architecture.head_size,
        tied_embeddings=embedding is not None and not head,
        weights=weights,
        caches=found.caches,
        experts=_experts(weights, configuration),
        estimated=_doubts(architecture.estimated, found),
    )


@dataclass
class _Found:
    caches: tuple[Cache, ...] = ()
    without: list[int] = field(default_factory=list)
    states: list[int] = field(default_factory=list)
    windows: str | None = None
    assumed_head: int | None = None


def _doubts(why: str, found: _Found) -> str:
    parts = [why, "layers, caches and weights are told from the tensors and their names"]
    if found.assumed_head is not None:
        parts.append(f"heads of {found.assumed_head} elements are assumed")
    for layers, what in ((found.states, "a state whose size"), (found.without, "keys and values, if any, whose size")):
        if layers:
            which = f"layer {layers[0]} keeps" if len(layers) == 1 else f"{len(layers)} layers keep"
            parts.append(f"{which} {what} is not told and left out")
    if found.windows:
        parts.append(found.windows)
    return "; ".join(parts)


def _weights(
    tensors: Sequence[StoredTensors], quantization: Quantization | None, stated_layers: int | None
) -> Iterator[Weight]:
    """All parameters, packed ones with the shape that they stand for; scales are none."""
    owned: set[str] = set()
    for stem, module in modules_of(tensors).items():
        owned.update(part.name for part in module.parts.values())
        seen = observe(module, quantization.scheme_of(stem) if quantization else None)
        if seen is None or module.data is None:
            continue
        joint = module.data.name == stem or "blocks" in module.parts
        yield _weight(stem if joint else f"{stem}.weight", seen.shape, module.data.count, stated_layers)
    for row in tensors:
        if row.name not in owned:
            yield _weight(row.name, row.shape, row.count, stated_layers)


def _weight(name: str, shape: tuple[int, ...], count: int, stated_layers: int | None) -> Weight:
    if count == 1 and len(shape) == (2 if name.endswith("bias") else 3) and ".experts." in name:
        count, shape = max(1, shape[0]), shape[1:]
    seen = named(name, shape)
    part = seen.part
    if part == "language" and stated_layers and seen.layer is not None and seen.layer >= stated_layers:
        part = "draft"
    layer = seen.layer if part == "language" else None
    return Weight(name, shape, seen.kind, layer, count, part)


def _by_layer(weights: Iterable[Weight]) -> dict[int, dict[str, tuple[int, ...]]]:
    """Shapes of each decoder layer's weights by the last name of their module."""
    layers: dict[int, dict[str, tuple[int, ...]]] = {}
    for each in weights:
        if each.layer is None or each.layer >= MOST_LAYERS or each.part != "language":
            continue
        stem = each.module if each.name.endswith((".weight", ".bias")) else each.name
        if not each.name.endswith(".bias"):
            layers.setdefault(each.layer, {}).setdefault(stem.rpartition(".")[2], each.shape)
    return layers


def _caches(
    by_layer: Mapping[int, Mapping[str, tuple[int, ...]]], architecture: Architecture, configuration: Configuration,
    hidden: int | None, layers: int,
) -> _Found:  # fmt: skip
    found = _Found()
    per_layer: tuple[int | None, ...] = (None,) * layers
    if len(configuration.words("layer_types")) >= layers:
        per_layer = windows(configuration, layers)
    elif configuration.optional("sliding_window"):
        found.windows = "a sliding window is stated and not for which layers, so all are taken to keep every token"
    key_values: list[KeyValueLayers] = []
    latent: dict[LatentLayers, list[int]] = {}
    for layer in range(layers - (configuration.optional("num_kv_shared_layers") or 0)):
        shapes = by_layer.get(layer, {})
        compressed = _latent(shapes, architecture.attention_heads or 1)
        if compressed is not None:
            latent.setdefault(compressed, []).append(layer)
            continue
        if any(each in shapes for each in STATES):
            found.states.append(layer)
            continue
        sizes = _outputs(shapes, hidden)
        head = _head_size(shapes, sizes, architecture, found) if sizes else None
        if sizes is None or head is None:
            found.without.append(layer)
            continue
        queries, keys, values = sizes
        heads, sinks = max(1, keys // head), any(each in shapes for each in SINKS)
        value_head, output = values // heads, _first(shapes, OUTPUTS)
        # Queries with a gate have twice the rows; what goes into the output projection has one value of each head.
        asking = output[1] // value_head if output is not None and value_head else queries // head
        key_values.append(
            KeyValueLayers((layer,), max(1, asking), heads, head, value_head, per_layer[layer], sinks=sinks)
        )
    groups = (replace(each, layers=tuple(indices)) for each, indices in latent.items())
    found.caches = (*alike(key_values), *groups)
    return found


def _latent(shapes: Mapping[str, tuple[int, ...]], heads: int) -> LatentLayers | None:
    """The norm over the latent vector tells its size, the rest of the projection is turned by position."""
    projection = _first(shapes, LATENTS)
    normed = shapes.get("kv_a_layernorm") or shapes.get("kv_norm")
    if projection is None or not normed or normed[0] > projection[0]:
        return None
    indexer = shapes.get("wk")
    index = indexer[0] if indexer is not None and "weights_proj" in shapes else None
    return LatentLayers((), heads, normed[0], projection[0] - normed[0], index_head_size=index)


def _outputs(shapes: Mapping[str, tuple[int, ...]], hidden: int | None) -> tuple[int, int, int] | None:
    """Rows of queries, keys and values. A layer without a value projection has its keys as values."""
    keys = _first(shapes, KEYS)
    if keys is not None:
        values, queries = _first(shapes, VALUES) or keys, _first(shapes, QUERIES)
        return (queries[0] if queries else hidden or keys[0]), keys[0], values[0]
    fused, output = _first(shapes, FUSED), _first(shapes, OUTPUTS)
    if fused is None:
        return None
    queries_size = output[1] if output is not None and len(output) > 1 else hidden
    rest = max(fused) if queries_size and fused[0] <= queries_size else fused[0]
    if not queries_size or rest <= queries_size:
        return None
    half = (rest - queries_size) // 2
    return queries_size, half, half


def _head_size(
    shapes: Mapping[str, tuple[int, ...]], sizes: tuple[int, int, int], architecture: Architecture, found: _Found
) -> int | None:
    queries, keys, _ = sizes
    normed = shapes.get("q_norm") or shapes.get("q_layernorm") or ()
    by_heads = queries // architecture.attention_heads if architecture.attention_heads else None
    # A norm as long as all queries is over all heads together.
    for size in (normed[0] if len(normed) == 1 and normed[0] != queries else None, architecture.head_size, by_heads):
        if size and keys % size == 0:
            return size
    for size in COMMON_HEAD_SIZES:
        if keys and keys % size == 0 and queries % size == 0:
            found.assumed_head = size
            return size
    return None


def _first(shapes: Mapping[str, tuple[int, ...]], names: Sequence[str]) -> tuple[int, ...] | None:
    return next((shapes[name] for name in names if len(shapes.get(name, ())) >= 2), None)


def _experts(weights: Sequence[Weight], configuration: Configuration) -> Experts | None:
    routed = [each for each in weights if each.layer is not None and each.count > 1 and each.kind == "linear"]
    if not routed:
        return None
    down = next((each for each in routed if "down" in each.name or ".w2" in each.name), routed[0])
    shared = next((each for each in weights if "shared_expert" in each.name and "down" in each.name), None)
    return Experts(
        tuple(sorted({each.layer for each in routed if each.layer is not None})),
        max(each.count for each in routed),
        configuration.integer("num_experts_per_tok", "num_experts_per_token", "moe_topk", "top_k_experts", default=1),
        down.shape[-1],
        shared.shape[-1] if shared is not None and len(shared.shape) == 2 else 0,
    )
