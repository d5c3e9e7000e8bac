"""What a model keeps for each token and each sequence, before an engine cuts it into blocks."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from onecat.checkpoints import describe
from onecat.planner.memory.kept import Kept, kept

CONFIGS = Path(__file__).parents[5] / "shared" / "fixtures" / "config"
NAMES = sorted(path.stem for path in CONFIGS.glob("config_*.json"))

pytestmark = pytest.mark.skipif(not NAMES, reason="the shared fixtures are not here")


def kept_of(name: str, kv_cache_dtype: str = "auto") -> Kept:
    return kept(describe(json.loads((CONFIGS / f"{name}.json").read_text())), "bfloat16", kv_cache_dtype)


@pytest.mark.parametrize(
    ("name", "per_token", "per_sequence"),
    [
        # 8 layers of attention with 2 heads of 128; 40 of Mamba 2 with 128 heads of 64 x 128 in float32, and 3 inputs
        # of a convolution over 128 x 64 + 2 x 8 x 128 channels in 16 bits.
        ("config_nvidia--NVIDIA-Nemotron-3-Super-120B-A12B-FP8", 8 * 2 * 2 * 128 * 2,
         40 * (128 * 64 * 128 * 4 + 3 * (8192 + 2048) * 2)),
        # 16 layers of attention with 4 heads of 256; 48 with 48 heads of 128 x 128 in float32, and 3 inputs of 10240.
        ("config_Qwen--Qwen3.5-27B", 16 * 4 * 2 * 256 * 2, 48 * (48 * 128 * 128 * 4 + 3 * 10240 * 2)),
        # 18 layers of each kind with 8 heads of 64; windows of 128 tokens.
        ("config_openai--gpt-oss-120b", 18 * 8 * 2 * 64 * 2, 18 * 128 * 8 * 2 * 64 * 2),
        ("config_Qwen--Qwen3-32B", 64 * 8 * 2 * 128 * 2, 0),
    ],
)  # fmt: skip
def test_what_is_kept_follows_from_the_shapes(name: str, per_token: int, per_sequence: int) -> None:
    assert kept_of(name) == Kept(per_token, per_sequence)


@pytest.mark.parametrize("name", NAMES)
def test_no_published_model_keeps_what_no_card_could_hold(name: str) -> None:
    plain, fp8 = kept_of(name), kept_of(name, "fp8")
    assert 1 << 10 < plain.per_token < 1 << 20
    assert 0 <= plain.per_sequence < 1 << 28
    assert plain.per_token / 2 <= fp8.per_token < plain.per_token
    assert fp8.per_sequence <= plain.per_sequence


@pytest.mark.parametrize("name", ["config_nvidia--NVIDIA-Nemotron-3-Super-120B-A12B-FP8", "config_Qwen--Qwen3.5-27B"])
def test_states_are_the_same_whatever_type_keys_and_values_have(name: str) -> None:
    assert kept_of(name).per_sequence == kept_of(name, "fp8").per_sequence > 0
