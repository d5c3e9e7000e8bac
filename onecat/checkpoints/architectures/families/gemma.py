"""Gemma 1, 2 and 3."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from onecat.checkpoints.architectures import towers, weights
from onecat.checkpoints.architectures.configuration import Configuration
from onecat.checkpoints.architectures.decoder import Style, decoder
from onecat.checkpoints.architectures.records import Architecture, Weight
from onecat.checkpoints.architectures.registry import family

GEMMA = Style(tied=True)
GEMMA2 = Style(tied=True, norms=weights.FOUR_NORMS)
GEMMA3 = Style(tied=True, norms=weights.FOUR_NORMS, query_key_norm="head")


@family("GemmaForCausalLM")
def gemma(configuration: Configuration) -> Architecture:
    """Source: transformers' modeling_gemma.py, configuration_gemma.py (defaults)."""
    return decoder(configuration.with_defaults(head_dim=256), GEMMA)


@family("Gemma2ForCausalLM")
def gemma2(configuration: Configuration) -> Architecture:
    """Every second layer, from the first, has the window.

    Source: transformers' modeling_gemma2.py, configuration_gemma2.py (layer_types, defaults).
    """
    filled = configuration.with_defaults(head_dim=256, sliding_window=4096)
    return decoder(filled, GEMMA2, lambda layer: layer % 2 == 0)


@family("Gemma3ForCausalLM")
def gemma3(configuration: Configuration) -> Architecture:
    """Source: transformers' modeling_gemma3.py."""
    return _text(configuration, GEMMA3)


@family("Gemma3ForConditionalGeneration")
def gemma3_with_vision(configuration: Configuration) -> Architecture:
    """SigLIP before Gemma 3; a picture becomes `mm_tokens_per_image` tokens.

    Source: transformers' modeling_gemma3.py (Gemma3MultiModalProjector), configuration_gemma3.py (256 tokens).
    """
    architecture = _text(configuration, replace(GEMMA3, prefix="language_model.model.", head="language_model.lm_head"))
    vision = configuration.section("vision_config")
    if vision is None:
        return architecture
    vision = vision.with_defaults(
        hidden_size=768, intermediate_size=3072, num_hidden_layers=12, num_attention_heads=12, image_size=224,
        patch_size=16,
    )  # fmt: skip
    tokens = configuration.of_document("mm_tokens_per_image", 256)
    hidden, wide = configuration.positive("hidden_size"), vision.positive("hidden_size")

    def tower() -> Iterator[Weight]:
        yield from towers.siglip("vision_tower.vision_model.", vision)
        projection = "multi_modal_projector.mm_input_projection_weight"
        yield Weight(projection, (wide, hidden), "other", part="vision")
        yield weights.norm("multi_modal_projector.mm_soft_emb_norm", wide, part="vision")

    return architecture.with_tower(tuple(tower()), towers.encoder(vision, tokens))


def _text(configuration: Configuration, style: Style) -> Architecture:
    """Every sixth layer keeps all tokens, the others have the window.

    Published files leave out what the configuration class defaults to, the number of heads among it.

    Source: transformers' configuration_gemma3.py (sliding_window_pattern, Gemma3TextConfig's defaults).
    """
    pattern = configuration.optional("sliding_window_pattern", "_sliding_window_pattern") or 6
    filled = configuration.with_defaults(
        vocab_size=262208, num_attention_heads=8, num_key_value_heads=4, head_dim=256, sliding_window=4096,
        max_position_embeddings=131072,
    )  # fmt: skip
    return decoder(filled, style, lambda layer: (layer + 1) % pattern != 0).replaced(rotary_windows=True)
