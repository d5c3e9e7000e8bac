"""Towers for pictures and sound: what they weigh, and how many tokens they put into a prompt."""

from __future__ import annotations

import pytest

from tests.unit.checkpoints.architectures.test_dense_models import described


@pytest.mark.parametrize(
    ("name", "layers", "tokens", "millions"),
    [
        # Technical reports and model cards: SigLIP 400M, 256 tokens (arXiv 2503.19786); ViT 675M (arXiv 2409.12191).
        ("google/gemma-3-4b-it", 27, 256, 420),
        ("Qwen/Qwen2-VL-7B-Instruct", 32, 16384, 676),
        ("Qwen/Qwen2.5-VL-7B-Instruct", 32, 16384, 677),
        ("google/gemma-4-31B-it", 27, 280, 576),
        ("mistralai/Mistral-Small-3.1-24B-Instruct-2503", 24, 3025, 439),
        ("meta-llama/Llama-3.2-11B-Vision-Instruct", 40, 6404, 895),
    ],
)
def test_the_tower_is_described(name: str, layers: int, tokens: int, millions: int) -> None:
    architecture = described(name)
    (encoder,) = architecture.encoders
    assert (encoder.part, encoder.layers, encoder.tokens) == ("vision", layers, tokens)
    seen = sum(each.elements for each in architecture.weights if each.part == "vision")
    assert seen / 1e6 == pytest.approx(millions, rel=0.01)


def test_the_small_gemma_4_hear_too() -> None:
    architecture = described("google/gemma-4-E2B-it")
    assert [each.part for each in architecture.encoders] == ["vision", "audio"]
    heard = sum(each.elements for each in architecture.weights if each.part == "audio")
    assert heard / 1e6 == pytest.approx(305, rel=0.01)


def test_without_a_tower_the_decoder_is_still_described() -> None:
    whole = described("google/gemma-3-4b-it")
    text = described("google/gemma-3-4b-it", vision_config=None)
    assert text.estimated is None and text.encoders == ()
    assert text.caches == whole.caches and text.parameters < whole.parameters


def test_a_tower_or_a_decoder_that_is_not_known_is_said() -> None:
    name = "llava-hf/llava-1.5-7b-hf"
    unknown = described(name, vision_config={"model_type": "telescope"})
    assert unknown.weights == () and "'telescope'" in (unknown.estimated or "")
    assert "'opt'" in (described(name, text_config={"model_type": "opt"}).estimated or "")


def test_layers_of_a_tower_are_not_layers_of_the_decoder() -> None:
    for name in ("google/gemma-4-E2B-it", "mistral-community/pixtral-12b", "Qwen/Qwen3-VL-8B-Instruct"):
        towers = [each for each in described(name).weights if each.part != "language"]
        assert towers and all(each.layer is None for each in towers)
