"""A vision tower before Llama, Mistral or Qwen2: Mistral Small 3.1 to 4, Ministral 3, Pixtral, LLaVA 1.5."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from onecat.checkpoints.architectures import towers, weights
from onecat.checkpoints.architectures.configuration import Configuration, IncompleteConfiguration
from onecat.checkpoints.architectures.decoder import LLAMA, Style, decoder
from onecat.checkpoints.architectures.families.deepseek import mistral4_language_model
from onecat.checkpoints.architectures.families.qwen import QWEN2, qwen_decoder
from onecat.checkpoints.architectures.records import Architecture, Weight
from onecat.checkpoints.architectures.registry import family

TEXTS: dict[str, Callable[[Configuration, Style], Architecture]] = {
    "llama": decoder,
    "mistral": decoder,
    "ministral3": decoder,
    "mistral4": lambda configuration, names: mistral4_language_model(configuration, names.prefix, names.head),
    "qwen2": lambda configuration, names: qwen_decoder(
        configuration, replace(QWEN2, prefix=names.prefix, head=names.head)
    ),
}
"""Decoders by the `model_type` of `text_config`."""

TOWERS: dict[str, tuple[Callable[[str, Configuration], Iterator[Weight]], str, dict[str, Any]]] = {
    "pixtral": (
        towers.pixtral, "vision_tower.",
        {
            "hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 24, "num_attention_heads": 16,
            "image_size": 1024, "patch_size": 16,
        },
    ),
    "clip_vision_model": (
        towers.clip, "vision_tower.vision_model.",
        {
            "hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12, "num_attention_heads": 12,
            "image_size": 224, "patch_size": 32,
        },
    ),
    "siglip_vision_model": (
        towers.siglip, "vision_tower.vision_model.",
        {
            "hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12, "num_attention_heads": 12,
            "image_size": 224, "patch_size": 16,
        },
    ),
}  # fmt: skip
"""Towers by the `model_type` of `vision_config`, with the prefix of their tensors and the defaults of their class.

Source: transformers' configuration_pixtral.py, configuration_clip.py, configuration_siglip.py.
"""

NAMES = replace(LLAMA, prefix="language_model.model.", head="language_model.lm_head")


@family("LlavaForConditionalGeneration")
def llava(configuration: Configuration) -> Architecture:
    """Two matrices with biases between tower and decoder.

    Source: transformers' modeling_llava.py.
    """
    configuration = _filled(configuration)
    text, vision, tower = _parts(configuration)
    if vision is None:
        return text
    wide, hidden = vision.positive("hidden_size"), configuration.positive("hidden_size")
    biased = configuration.whole.get("multimodal_projector_bias") is not False
    side = vision.positive("image_size") // vision.positive("patch_size")

    def projector() -> Iterator[Weight]:
        yield from weights.linear("multi_modal_projector.linear_1", hidden, wide, bias=biased, part="vision")
        yield from weights.linear("multi_modal_projector.linear_2", hidden, hidden, bias=biased, part="vision")

    return text.with_tower((*tower, *projector()), towers.encoder(vision, side * side))


@family("Mistral3ForConditionalGeneration")
def mistral3(configuration: Configuration) -> Architecture:
    """As `llava`, with `spatial_merge_size` x `spatial_merge_size` patches of the tower merged into one.

    Source: transformers' modeling_mistral3.py, configuration_mistral3.py.
    """
    configuration = _filled(configuration)
    text, vision, tower = _parts(configuration)
    if vision is None:
        return text
    wide, hidden = vision.positive("hidden_size"), configuration.positive("hidden_size")
    merged = configuration.of_document("spatial_merge_size", 2)
    biased = configuration.whole.get("multimodal_projector_bias") is True
    side = vision.positive("image_size") // (vision.positive("patch_size") * merged)

    def projector() -> Iterator[Weight]:
        prefix = "multi_modal_projector."
        yield weights.norm(f"{prefix}norm", wide, part="vision")
        yield from weights.linear(f"{prefix}patch_merger.merging_layer", wide, wide * merged**2, part="vision")
        yield from weights.linear(f"{prefix}linear_1", hidden, wide, bias=biased, part="vision")
        yield from weights.linear(f"{prefix}linear_2", hidden, hidden, bias=biased, part="vision")

    return text.with_tower((*tower, *projector()), towers.encoder(vision, side * side))


def _parts(configuration: Configuration) -> tuple[Architecture, Configuration | None, tuple[Weight, ...]]:
    """The decoder, the tower's configuration with its class's defaults, and the tower's weights."""
    kind = configuration.text.get("model_type")
    text = TEXTS.get(kind if isinstance(kind, str) else "")
    if text is None:
        raise IncompleteConfiguration(f"config.json has a text model {kind!r} that onecat does not know behind a tower")
    stated = configuration.section("vision_config")
    if stated is None:
        return text(configuration, NAMES), None, ()
    kind = stated.text.get("model_type")
    tower = TOWERS.get(kind if isinstance(kind, str) else "")
    if tower is None:
        raise IncompleteConfiguration(f"config.json has a vision tower {kind!r} that onecat does not know")
    build, prefix, defaults = tower
    vision = stated.with_defaults(**defaults)
    return text(configuration, NAMES), vision, tuple(build(prefix, vision))


def _filled(configuration: Configuration) -> Configuration:
    """LLaVA's files leave out what LlamaConfig defaults to.

    Source: transformers' configuration_llama.py.
    """
    if configuration.text.get("model_type") != "llama":
        return configuration
    return configuration.with_defaults(
        vocab_size=32000, hidden_size=4096, intermediate_size=11008, num_hidden_layers=32, num_attention_heads=32
    )
