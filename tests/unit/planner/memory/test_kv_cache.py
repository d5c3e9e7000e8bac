"""Pages, groups and blocks of the KV cache, with numbers by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st

from onecat.checkpoints.architectures import Architecture, KeyValueLayers, State, StateLayers
from onecat.planner.memory.kv_cache import kv_capacity
from onecat.planner.memory.kv_cache.elements import key_value_bytes, latent_bytes
from onecat.planner.memory.stages import stage_layers
from tests.unit.planner.memory.kv_examples import (
    GIB,
    QWEN36_27B,
    capacity,
    deepseek_v4_flash,
    dense,
    latent,
    needed,
    settings,
    windowed,
)


@pytest.mark.parametrize(
    ("kind", "size"),
    [
        ("auto", 8 * 256 * 2),
        ("float16", 8 * 256 * 2),
        ("bfloat16", 8 * 256 * 2),
        ("fp8", 8 * 256),
        ("fp8_e5m2", 8 * 256),
        ("int8_per_token_head", 8 * 256 + 2 * 8 * 4),
        ("fp8_per_token_head", 8 * 256 + 2 * 8 * 4),
        ("int4_per_token_head", 8 * 128 + 2 * 8 * 4),
        ("nvfp4", 8 * 2 * (64 + 8)),
    ],
)
def test_a_token_of_8_heads_of_128(kind: str, size: int) -> None:
    assert key_value_bytes(8, 128, 128, kind, "bfloat16") == size


def test_a_model_in_float32_keeps_float32() -> None:
    assert key_value_bytes(8, 128, 128, "auto", "float32") == 8 * 256 * 4


@pytest.mark.parametrize(("kind", "size"), [("auto", 1152), ("fp8", 576), ("fp8_ds_mla", 656)])
def test_a_token_of_latent_attention(kind: str, size: int) -> None:
    assert latent_bytes(512, 64, kind, "bfloat16") == size


def test_heads_are_divided_and_then_repeated() -> None:
    model = dense(32, 32, 4, 128)
    tokens = {tensor: capacity(model, GIB, tensor_parallel=tensor).tokens for tensor in (1, 2, 4, 8)}
    assert tokens == {1: 16384, 2: 32768, 4: 65536, 8: 65536}


def test_a_latent_vector_is_whole_on_each_rank() -> None:
    one, eight = (capacity(latent(61, 512, 64), 30 * GIB, tensor_parallel=tensor) for tensor in (1, 8))
    assert one == eight
    assert one.bytes_per_token == 61 * 1152


def test_an_indexers_key_adds_132_bytes_and_blocks_have_64_tokens() -> None:
    found = capacity(latent(61, 512, 64, index=128), 30 * GIB, kv_cache_dtype="fp8_ds_mla")
    assert (found.block_size, found.groups, found.bytes_per_token) == (64, 1, 61 * (656 + 132))
    assert found.blocks == 30 * GIB // (64 * 61 * (656 + 132))


@pytest.mark.parametrize(
    ("given", "block"),
    [
        ({"capability": 90}, 16),
        ({"capability": 90, "kv_cache_dtype": "fp8"}, 64),
        ({"capability": 80}, 16),
        ({"capability": 100}, 32),
        ({"capability": 100, "engine_version": "0.19.0"}, 64),
        ({"capability": 120}, 16),
        ({"attention_backend": "CUTLASS_MLA"}, 128),
        ({"attention_backend": "FLASHMLA"}, 64),
        ({"block_size": 128}, 128),
    ],
)
def test_blocks_of_latent_attention_are_the_backends(given: dict[str, object], block: int) -> None:
    assert capacity(latent(61, 512, 64), 30 * GIB, **given).block_size == block


def test_blocks_have_16_tokens_and_128_on_a_cpu() -> None:
    model = dense(4, 4, 2, 32)
    assert capacity(model, GIB).block_size == 16
    assert capacity(model, GIB, platform="cpu").block_size == 128
    assert capacity(model, GIB, block_size=32).block_size == 32


def test_windows_are_groups_as_large_as_the_fewest_layers() -> None:
    """30 layers, 5 of them full: 6 groups of 5 layers. A window holds 1023 tokens and two batches, and a block more."""
    found = capacity(windowed(30, every=6, window=1024), GIB, max_model_len=65536)
    assert found.groups == 6
    assert found.blocks == GIB // (5 * 16 * 2 * 8 * 128 * 2)
    request = 65536 // 16 + 5 * (-(-(1023 + 2 * 8192) // 16) + 1)
    assert found.max_concurrency == found.blocks / request
    assert found.tokens == int(found.blocks / request * 65536)


def test_a_version_before_0_26_holds_one_batch_in_windows() -> None:
    old, new = (
        capacity(windowed(30, every=6, window=1024), GIB, max_model_len=65536, engine_version=version)
        for version in ("0.25.0", "0.26.0")
    )
    assert old.max_concurrency == old.blocks / (4096 + 5 * (576 + 1))
    assert new.max_concurrency < old.max_concurrency


def test_a_version_before_0_21_counts_tokens_by_blocks_of_a_group() -> None:
    found = capacity(windowed(30, every=6, window=1024), GIB, engine_version="0.20.0")
    assert found.tokens == found.blocks // 6 * 16


@pytest.mark.parametrize(("version", "groups"), [("0.11.0", 3), ("0.12.0", 3), ("0.16.0", 3), ("0.18.0", 2)])
def test_a_few_layers_more_of_one_kind_are_one_group(version: str, groups: int) -> None:
    """12 layers with windows and 17 without: from 0.18 on, kinds that differ by less than half are padded."""
    full, rest = tuple(range(17)), tuple(range(17, 29))
    model = Architecture(
        layers=29,
        caches=(KeyValueLayers(full, 8, 8, 64, 64), KeyValueLayers(rest, 8, 8, 64, 64, window=128)),
    )
    assert capacity(model, GIB, engine_version=version).groups == groups


@pytest.mark.parametrize(("version", "groups"), [("0.11.0", 3), ("0.12.0", 2)])
def test_a_layer_more_of_one_kind_is_padding(version: str, groups: int) -> None:
    full, rest = tuple(range(13)), tuple(range(13, 25))
    model = Architecture(
        layers=25,
        caches=(KeyValueLayers(full, 8, 8, 64, 64), KeyValueLayers(rest, 8, 8, 64, 64, window=128)),
    )
    assert capacity(model, GIB, engine_version=version).groups == groups


def test_without_the_hybrid_manager_windows_keep_every_token() -> None:
    model = windowed(30, every=6, window=1024)
    found = capacity(model, GIB, hybrid_manager=False)
    assert found.tokens == capacity(dense(30, 8, 8, 128), GIB).tokens
    assert (found.groups, found.bytes_per_token) == (1, 30 * 2 * 8 * 128 * 2)


def test_smaller_heads_get_more_tokens_in_a_block() -> None:
    """Gemma 4: 8 heads of 256 in a window take twice what 2 heads of 512 take without."""
    full, rest = tuple(range(5, 30, 6)), tuple(index for index in range(30) if index % 6 != 5)
    model = Architecture(
        layers=30,
        caches=(KeyValueLayers(full, 16, 2, 512, 512), KeyValueLayers(rest, 16, 8, 256, 256, window=1024)),
    )
    found = capacity(model, GIB)
    assert (found.block_size, found.groups) == (32, 6)
    assert found.blocks == GIB // (5 * 16 * 2 * 8 * 256 * 2)


def test_chunks_hold_a_chunk_and_what_is_in_flight() -> None:
    full, rest = tuple(range(3, 48, 4)), tuple(index for index in range(48) if index % 4 != 3)
    model = Architecture(
        layers=48,
        caches=(KeyValueLayers(full, 40, 8, 128, 128), KeyValueLayers(rest, 40, 8, 128, 128, chunk=8192)),
    )
    found = capacity(model, GIB, max_model_len=131072)
    assert found.max_concurrency == found.blocks / (8192 + 3 * (8192 + 2 * 8192) // 16)


def test_states_without_prefix_caching_are_one_block() -> None:
    found = capacity(QWEN36_27B, 10 * GIB, kv_cache_dtype="fp8", max_model_len=262144, prefix_caching=False)
    assert found.max_concurrency == found.blocks / (-(-262144 // 1568) + 3)


def test_speculation_adds_a_draft_layer_and_states() -> None:
    without, given = (
        capacity(QWEN36_27B, 10 * GIB, kv_cache_dtype="fp8", **more)
        for more in ({}, {"draft_layers": 1, "speculative_tokens": 3})
    )
    assert without.bytes_per_token == 16 * 2048
    assert given.bytes_per_token == 17 * 2048
    assert (without.block_size, given.block_size) == (1568, 1600)


def test_mamba_keeps_states_of_each_block_when_prefixes_are_cached() -> None:
    states = StateLayers(
        tuple(range(40)), "mamba2",
        (State("convolution", (3, 10240), 1, grows=0), State("recurrent", (128, 64, 128), 0, "float32")), chunk=128,
    )  # fmt: skip
    model = Architecture(layers=48, caches=(KeyValueLayers(tuple(range(40, 48)), 32, 2, 128, 128), states))
    found = capacity(model, 10 * GIB, max_model_len=65536)
    assert found.block_size == 128 * -(-(128 * 64 * 128 * 4 + 3 * 10240 * 2) // (128 * 1024))
    blocks = -(-65536 // found.block_size)
    assert found.max_concurrency == found.blocks / (blocks + 5 * blocks)
    later = capacity(model, 10 * GIB, max_model_len=65536, engine_version="0.33.0")
    assert later.max_concurrency == later.blocks / (-(-65536 // later.block_size) + 5 * 2)


def test_stages_share_the_blocks_of_the_fullest() -> None:
    """61 layers on 4 stages are 15, 15, 16 and 15."""
    model = latent(61, 512, 64)
    found = capacity(model, GIB, pipeline_parallel=4)
    assert found.blocks == GIB // (16 * 16 * 1152)
    assert needed(model, 16, pipeline_parallel=4) == tuple(layers * 16 * 1152 for layers in (15, 15, 16, 15))


def test_each_stage_has_layers_of_each_group() -> None:
    """Layers are dealt to groups in turn: 6 full layers of 36, three on each of two stages."""
    model = windowed(36, every=6, window=1024)
    found = capacity(model, GIB, pipeline_parallel=2)
    assert found.groups == 6
    assert found.blocks == GIB // (3 * 16 * 2 * 8 * 128 * 2)


def test_the_least_memory_of_the_stages_counts() -> None:
    model = dense(32, 32, 8, 128)
    asked = settings(pipeline_parallel=2)
    found = kv_capacity(model, asked, stage_layers(model, 2), [3 * GIB, 2 * GIB])
    assert found == kv_capacity(model, asked, stage_layers(model, 2), [2 * GIB, 2 * GIB])


def test_no_block_fits_into_too_little() -> None:
    model = dense(32, 32, 8, 128)
    for available in (16 * 32 * 4096 - 1, 0, -GIB):
        assert kv_capacity(model, settings(), stage_layers(model, 1), [available]) is None
    assert kv_capacity(Architecture(layers=32), settings(), stage_layers(model, 1), [GIB]) is None


def test_a_version_from_0_30_sets_one_block_aside() -> None:
    model = dense(32, 32, 8, 128)
    block = 16 * 32 * 4096
    assert needed(model, 160, engine_version="0.27.1") == (10 * block,)
    assert needed(model, 160, engine_version="0.30.0") == (11 * block,)


def test_engine_v0_runs_on_old_cards_until_0_10_1() -> None:
    """On engine v0 a window takes as much as the rest."""
    model = windowed(30, every=6, window=1024)
    old = capacity(model, GIB, engine_version="0.10.1", capability=70)
    assert (old.groups, old.tokens) == (1, GIB // (16 * 30 * 4096) * 16)
    assert capacity(model, GIB, engine_version="0.10.2", capability=70).groups == 6


def test_cross_attention_keeps_what_its_encoder_gives() -> None:
    own, cross = tuple(range(32)), tuple(range(32))
    model = Architecture(
        layers=32,
        max_position_embeddings=448,
        caches=(KeyValueLayers(own, 20, 20, 64, 64), KeyValueLayers(cross, 20, 20, 64, 64, cross=True)),
    )
    found = capacity(model, GIB, max_model_len=448, max_num_batched_tokens=1500)
    assert found.groups == 2
    assert found.max_concurrency == found.blocks / (28 + -(-1500 // 16))


MODELS = [dense(32, 32, 8, 128), windowed(30, 6, 1024), latent(61, 512, 64), QWEN36_27B, deepseek_v4_flash()]


@examples(max_examples=30)
@given(
    st.sampled_from(MODELS),
    st.integers(GIB // 4, 100 * GIB),
    st.sampled_from(["0.6.6", "0.8.5", "0.11.0", "0.20.0", "0.24.0", "0.27.1", "0.33.0"]),
)
def test_the_largest_length_fits_and_one_token_more_does_not(model: Architecture, available: int, version: str) -> None:
    found = capacity(model, available, engine_version=version, kv_cache_dtype="fp8")
    largest, longest = found.largest_max_model_len, max(model.max_position_embeddings or 0, 8192)
    if largest:
        assert needed(model, largest, engine_version=version, kv_cache_dtype="fp8") <= (available,)
    if largest < longest:
        assert needed(model, largest + 1, engine_version=version, kv_cache_dtype="fp8") > (available,)


@examples(max_examples=20)
@given(st.integers(1, 64), st.integers(1, 8), st.integers(GIB // 4, 10 * GIB))
def test_more_memory_is_never_fewer_tokens(layers: int, heads: int, available: int) -> None:
    model = dense(layers, 8, heads, 128)
    assert capacity(model, available + GIB).tokens >= capacity(model, available).tokens
