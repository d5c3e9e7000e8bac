"""From config.json to an architecture."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from onecat.checkpoints.architectures.configuration import Configuration, IncompleteConfiguration
from onecat.checkpoints.architectures.records import Architecture, KeyValueLayers
from onecat.checkpoints.architectures.registry import families

MOST_LAYERS = 2000
"""More than any model has; a configuration that states more is not built layer by layer."""

MOST_STRETCH = 1e6
"""More than positions are stretched by anywhere; JSON as Python reads it has Infinity and integers without end."""

DEEPEST = 6
"""Parts within parts that are searched for numbers of layers."""

_LAYERS = re.compile(r"(^|_)(layers?|depth|nextn_predict_layers|mtp_modules)$")


def describe(document: Mapping[str, Any]) -> Architecture:
    """The architecture that a config.json describes.

    One that no family describes, or whose configuration lacks what its family needs, has no caches and weights and
    says why in `estimated`; `from_tensors` fills them from a checkpoint's headers. So has one with more than
    `MOST_LAYERS` layers of any kind. Raises nothing, whatever the document holds.
    """
    configuration = Configuration.of(document)
    base = common(configuration)
    for field, layers in _layer_counts(document):
        if layers > MOST_LAYERS:
            return base.replaced(estimated=f"config.json has {layers} for `{field}`, and no model has so many layers")
    described = families().get(base.name or "")
    if described is None:
        return base.replaced(estimated=f"onecat does not know the architecture {base.name or 'of this config.json'}")
    try:
        found = described(configuration)
        empty = _without_elements(found)
        return found if empty is None else base.replaced(estimated=f"the sizes in config.json leave {empty} no element")
    except IncompleteConfiguration as error:
        return base.replaced(estimated=str(error))
    except ZeroDivisionError:
        return base.replaced(estimated="config.json has 0 for the number of something that there must be one of")


def _without_elements(described: Architecture) -> str | None:
    """What has no element, as heads have when there are more of them than the hidden size has elements."""
    if any(isinstance(each, KeyValueLayers) and not each.head_size for each in described.caches):
        return "a head"
    if any(each.tokens == 0 for each in described.encoders):
        return "a picture"
    return next((each.name for each in described.weights if 0 in each.shape), None)


def _layer_counts(part: Mapping[str, Any], depth: int = 0) -> Iterator[tuple[str, int]]:
    for name, value in part.items():
        if type(value) is int and _LAYERS.search(name) and not name.startswith("max_"):
            yield name, value
        elif isinstance(value, Mapping) and depth < DEEPEST:
            yield from _layer_counts(value, depth + 1)


def common(configuration: Configuration) -> Architecture:
    """The fields that all families have, without caches and weights."""
    text = configuration.text
    positions = text.get("rope_parameters") or text.get("rope_scaling")
    hidden, heads = configuration.optional("hidden_size"), configuration.optional("num_attention_heads")
    return Architecture(
        name=configuration.name,
        model_type=_string(configuration.whole.get("model_type")),
        dtype=configuration.dtype,
        layers=configuration.optional("num_hidden_layers"),
        hidden_size=hidden,
        intermediate_size=configuration.optional("intermediate_size"),
        attention_heads=heads,
        key_value_heads=configuration.optional("num_key_value_heads") or heads,
        head_size=configuration.optional("head_dim") or (hidden // heads if hidden and heads else None),
        vocabulary_size=configuration.optional("vocab_size"),
        max_position_embeddings=configuration.optional("max_position_embeddings"),
        rope_type=_rope_type(positions),
        rotary_share=_rotary_share(text),
        rotary_sections=_has_sections(positions),
        rotary_stretch=_rotary_stretch(positions),
        rotary_windows=any(name in text for name in ("rope_local_base_freq", "swa_rope_theta")),
        tied_embeddings=configuration.tied,
    )


def _rotary_stretch(parameters: Any) -> float:
    if not isinstance(parameters, Mapping):
        return 1.0
    inner = parameters.get("full_attention")
    stated = inner if isinstance(inner, Mapping) else parameters
    factor = stated.get("factor")
    linear = "linear" in (stated.get("rope_type"), stated.get("type"))
    return float(factor) if linear and isinstance(factor, (int, float)) and 1 <= factor <= MOST_STRETCH else 1.0


def _rotary_share(text: Mapping[str, Any]) -> float:
    parameters = text.get("rope_parameters")
    stated = parameters.get("partial_rotary_factor") if isinstance(parameters, Mapping) else None
    share = stated if stated is not None else text.get("partial_rotary_factor")
    return float(share) if isinstance(share, (int, float)) and 0 < share <= 1 else 1.0


def _has_sections(parameters: Any) -> bool:
    return isinstance(parameters, Mapping) and "mrope_section" in parameters


def _rope_type(parameters: Any) -> str | None:
    if not isinstance(parameters, Mapping):
        return None
    if any(isinstance(each, Mapping) for each in parameters.values()):
        return "several"
    return _string(parameters.get("rope_type") or parameters.get("type"))


def _string(value: Any) -> str | None:
    return value if isinstance(value, str) else None
