"""From config.json to an architecture."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from onecat.checkpoints.architectures.configuration import Configuration, IncompleteConfiguration
from onecat.checkpoints.architectures.records import Architecture
from onecat.checkpoints.architectures.registry import families


def describe(document: Mapping[str, Any]) -> Architecture:
    """The architecture that a config.json describes.

    One that no family describes, or whose configuration lacks what its family needs, has no caches and weights and
    says why in `estimated`; `from_tensors` fills them from a checkpoint's headers.
    """
    configuration = Configuration.of(document)
    base = common(configuration)
    described = families().get(base.name or "")
    if described is None:
        return base.replaced(estimated=f"onecat does not know the architecture {base.name or 'of this config.json'}")
    try:
        return described(configuration)
    except IncompleteConfiguration as error:
        return base.replaced(estimated=str(error))


def common(configuration: Configuration) -> Architecture:
    """The fields that all families have, without caches and weights."""
    text = configuration.text
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
        rope_type=_rope_type(text.get("rope_parameters") or text.get("rope_scaling")),
        rotary_share=_rotary_share(text),
        rotary_sections="mrope_section" in (text.get("rope_parameters") or text.get("rope_scaling") or {}),
        tied_embeddings=configuration.tied,
    )


def _rotary_share(text: Mapping[str, Any]) -> float:
    parameters = text.get("rope_parameters")
    stated = parameters.get("partial_rotary_factor") if isinstance(parameters, Mapping) else None
    share = stated if stated is not None else text.get("partial_rotary_factor")
    return float(share) if isinstance(share, (int, float)) and 0 < share <= 1 else 1.0


def _rope_type(parameters: Any) -> str | None:
    if not isinstance(parameters, Mapping):
        return None
    if any(isinstance(each, Mapping) for each in parameters.values()):
        return "several"
    return _string(parameters.get("rope_type") or parameters.get("type"))


def _string(value: Any) -> str | None:
    return value if isinstance(value, str) else None
