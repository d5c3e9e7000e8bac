"""What the engine makes of flags that nobody set."""

from __future__ import annotations

import pytest

from onecat.planner.memory import Device
from tests.unit.planner.memory.examples import (
    A100,
    B200,
    H200,
    L40S,
    MIXED,
    RTX3090,
    SMALL,
    V100,
    checkpoint,
    settings,
)

LONG = checkpoint(SMALL, max_position_embeddings=131072)


@pytest.mark.parametrize(
    ("version", "device", "tokens", "sequences"),
    [
        ("0.27.1", H200, 8192, 1024),
        ("0.27.1", A100, 2048, 256),
        ("0.27.1", L40S, 2048, 256),
        ("0.27.1", B200, 8192, 1024),
        ("0.33.0", B200, 16384, 1024),
        ("0.8.5", A100, 8192, 1024),
        ("0.8.5", V100, 2048, 256),
        ("0.7.3", H200, 2048, 256),
    ],
)
def test_batches_are_large_on_large_cards(version: str, device: Device, tokens: int, sequences: int) -> None:
    found = settings(LONG, device, version)
    assert (found.max_num_batched_tokens, found.max_num_seqs) == (tokens, sequences)


def test_engine_v0_takes_whole_prompts_until_they_are_long() -> None:
    assert settings(LONG, RTX3090, "0.6.6", max_model_len=20000).max_num_batched_tokens == 20000
    assert settings(LONG, RTX3090, "0.6.6", max_model_len=35000).max_num_batched_tokens == 2048
    assert settings(LONG, RTX3090, "0.6.4", max_model_len=35000).max_num_batched_tokens == 512


@pytest.mark.parametrize(("version", "share"), [("0.19.1", 0.90), ("0.20.0", 0.92), ("0.27.1", 0.92)])
def test_more_of_a_card_is_used_since_0_20(version: str, share: float) -> None:
    assert settings(LONG, version=version).utilization == share


def test_sizes_may_be_words() -> None:
    assert settings(LONG, max_model_len="32K").max_model_len == 32768
    assert settings(LONG, max_model_len="auto").max_model_len == 131072
    assert settings(LONG, max_model_len=None).max_model_len == 131072


@pytest.mark.parametrize(
    ("device", "model_type", "dtype"),
    [
        (H200, "qwen3", "bfloat16"),
        (V100, "qwen3", "float16"),
        (V100, "gemma3_text", "float32"),
        (H200, "gemma3_text", "bfloat16"),
    ],
)
def test_auto_becomes_a_dtype_that_the_card_has(device: Device, model_type: str, dtype: str) -> None:
    assert settings(checkpoint(SMALL, model_type=model_type), device).dtype == dtype


def test_a_batch_has_no_more_tokens_than_its_sequences_can_have() -> None:
    short = checkpoint(MIXED, max_position_embeddings=16)
    assert settings(short, max_num_seqs=4).max_num_batched_tokens == 64


def test_pictures_are_left_out_when_none_are_let_in() -> None:
    assert settings(LONG, limit_mm_per_prompt={"image": 0, "video": 0}).text_only
    assert not settings(LONG, limit_mm_per_prompt={"image": 1}).text_only
    assert settings(LONG, language_model_only=True).text_only
