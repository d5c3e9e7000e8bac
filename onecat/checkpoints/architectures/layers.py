"""Which layers attend to a window, and layers alike gathered into groups."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from onecat.checkpoints.architectures.configuration import Configuration
from onecat.checkpoints.architectures.records import KeyValueLayers

LayerRule = Callable[[int], bool]
"""Whether the layer of this index has a sliding window."""


def windows(configuration: Configuration, layers: int, sliding: LayerRule | None = None) -> tuple[int | None, ...]:
    """The sliding window of each layer in tokens, None for a layer that keeps every token.

    `layer_types` decides where it is stated; else `sliding`, by default every layer once there is a window. A window
    of 0 is none.

    Source: vllm/engine/arg_utils.py at 0.27.1 (create_engine_config) and vllm/config/model.py (0 disables it).
    """
    window = configuration.optional("sliding_window", "sliding_window_size")
    if not window or not configuration.flag("use_sliding_window", True):
        return (None,) * layers
    types = configuration.words("layer_types")
    if len(types) >= layers:
        return tuple(window if each == "sliding_attention" else None for each in types[:layers])
    return tuple(window if sliding is None or sliding(layer) else None for layer in range(layers))


def alike(each: Iterable[KeyValueLayers]) -> tuple[KeyValueLayers, ...]:
    """Layers described one by one, those that differ only in their index as one group, in order of appearance."""
    groups: dict[KeyValueLayers, list[int]] = {}
    for layer in each:
        groups.setdefault(replace(layer, layers=()), []).extend(layer.layers)
    return tuple(replace(group, layers=tuple(indices)) for group, indices in groups.items())
