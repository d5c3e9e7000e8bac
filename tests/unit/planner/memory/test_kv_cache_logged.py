"""What real engines logged of their KV cache, and what onecat computes from the memory that they logged."""

from __future__ import annotations

from typing import Any

import pytest

from onecat.checkpoints.architectures import Architecture
from tests.unit.planner.memory.kv_examples import (
    GIB,
    QWEN36_27B,
    QWEN36_35B,
    capacity,
    deepseek_v4_flash,
    dense,
    latent,
    needed,
)

LLAMA_8B = dense(32, 32, 8, 128)
LOGGED: dict[str, tuple[Architecture, float, int, str, dict[str, Any]]] = {
    "vllm#10517": (LLAMA_8B, 3.81, 31232, "1.56", {"engine_version": "0.6.4", "max_model_len": 20000}),
    "vllm#12126": (dense(40, 32, 8, 128), 14.65, 96016, "1.47", {"engine_version": "0.6.6", "max_model_len": 65536}),
    "vllm#25350": (
        dense(48, 32, 4, 128), 10.55, 230528, "2.31",
        {"engine_version": "0.10.2", "kv_cache_dtype": "fp8", "max_model_len": 100000},
    ),
    "LMCache#1739": (dense(40, 40, 8, 128), 6.51, 42656, "1.30", {"engine_version": "0.11.0", "max_model_len": 32768}),
    "club-3090#612": (
        QWEN36_35B, 5.98, 567978, "4.33",
        {"engine_version": "0.24.0", "kv_cache_dtype": "fp8", "max_model_len": 131072},
    ),
    "club-3090#642": (
        QWEN36_27B, 11.05, 623873, "2.38",
        {"engine_version": "0.25.0", "kv_cache_dtype": "fp8_e5m2", "max_model_len": 262144, "tensor_parallel": 2,
         "draft_layers": 1, "speculative_tokens": 3},
    ),
    "club-3090/BENCHMARKS": (
        QWEN36_27B, 11.1, 605495, "2.31",
        {"engine_version": "0.22.0", "kv_cache_dtype": "int8_per_token_head", "max_model_len": 262144,
         "tensor_parallel": 2, "draft_layers": 1, "speculative_tokens": 4},
    ),
}  # fmt: skip


@pytest.mark.parametrize("row", LOGGED)
def test_tokens_and_concurrency_are_those_that_the_engine_logged(row: str) -> None:
    """Memory is logged with two digits: the logged tokens lie between those of its least and its most."""
    architecture, gib, tokens, concurrency, given = LOGGED[row]
    least, most = (capacity(architecture, int((gib + half) * GIB), **given) for half in (-0.005, 0.005))
    assert least.tokens <= tokens <= most.tokens
    assert float(f"{least.max_concurrency:.2f}") <= float(concurrency) <= float(f"{most.max_concurrency:.2f}")
    assert most.tokens / least.tokens < 1.005


def test_a_hybrid_model_by_hand() -> None:
    """Qwen3.6-35B-A3B, club-3090#612.

    A token of attention is 2 x 2 heads x 256 B = 1024 B in one layer; states are 32 x 128 x 128 x 4 + 3 x 8192 x 2 =
    2146304 B, which 131 blocks of 16 tokens cover. A request of 131072 tokens takes 63 blocks, and 2 in each of 3
    groups of 10 layers with states.
    """
    found = capacity(QWEN36_35B, int(5.98 * GIB), engine_version="0.24.0", kv_cache_dtype="fp8", max_model_len=131072)
    assert (found.block_size, found.blocks, found.groups) == (2096, 299, 4)
    assert found.max_concurrency == 299 / (63 + 3 * 2)
    assert found.tokens == 567978
    assert found.bytes_per_token == 10 * 1024
    assert found.bytes_per_sequence == 3 * 2 * 10 * 2096 * 1024


def test_states_decide_the_block_of_attention() -> None:
    """club-3090#1047: 1568 tokens on one GPU, with FP8 and without speculation."""
    found = capacity(QWEN36_27B, 10 * GIB, kv_cache_dtype="fp8_e4m3", max_model_len=262144)
    assert found.block_size == 1568


def test_a_context_that_does_not_fit_is_told_how_long_it_could_be() -> None:
    """kaito#2132: 22.5 GiB for 1048576 tokens; 810208 would fit into 17.39 GiB."""
    mistral = latent(36, 256, 64, positions=1048576)
    asked: dict[str, Any] = {"engine_version": "0.22.0", "tensor_parallel": 2, "max_model_len": 1048576}
    assert needed(mistral, 1048576, **asked) == (36 * 640 * 1048576,)
    least, most = (capacity(mistral, int((17.39 + half) * GIB), **asked) for half in (-0.005, 0.005))
    assert least.largest_max_model_len <= 810208 <= most.largest_max_model_len


def test_compressed_entries_with_windows() -> None:
    """vllm#44376: 6.66 GiB for 30000 tokens; 13528 would fit into 5.44 GiB."""
    asked: dict[str, Any] = {
        "engine_version": "0.22.0", "tensor_parallel": 2, "max_model_len": 30000, "max_num_batched_tokens": 16384,
        "kv_cache_dtype": "fp8",
    }  # fmt: skip
    [bytes_needed] = needed(deepseek_v4_flash(), 30000, **asked)
    assert f"{bytes_needed / GIB:.2f}" == "6.66"
    least, most = (capacity(deepseek_v4_flash(), int((5.44 + half) * GIB), **asked) for half in (-0.005, 0.005))
    assert least.largest_max_model_len <= 13528 <= most.largest_max_model_len


@pytest.mark.parametrize(
    ("architecture", "version", "blocks", "given"),
    [
        (dense(80, 64, 8, 128), "0.2.6", 20865, {"tensor_parallel": 4, "dtype": "float16"}),
        (dense(32, 32, 32, 128), "0.4.0", 459, {}),
    ],
    ids=["vllm#2031", "Qwen3#295"],
)
def test_engine_v0_has_blocks_of_16_tokens_in_all_layers(
    architecture: Architecture, version: str, blocks: int, given: dict[str, Any]
) -> None:
    heads, layers = (
        max(1, architecture.caches[0].key_value_heads // given.get("tensor_parallel", 1)),
        architecture.layers,
    )
    block = 16 * (layers or 0) * 2 * heads * 128 * 2
    found = capacity(architecture, blocks * block + block - 1, engine_version=version, max_model_len=32768, **given)
    assert (found.blocks, found.tokens) == (blocks, blocks * 16)
    assert found.largest_max_model_len == min(blocks * 16, 131072)
