"""Which architectures releases of vLLM know, by the registries that were read."""

from __future__ import annotations

import pytest
from packaging.version import Version

from onecat.engines import added_after, removed_after
from onecat.engines.served import registries, since
from onecat.knowledge.releases import first_releases


@pytest.mark.parametrize(
    ("version", "architecture", "first"),
    [
        ("0.6.5", "DeepseekV3ForCausalLM", "0.6.6"),
        ("0.6.6", "DeepseekV3ForCausalLM", None),
        ("0.19.1", "DeepseekV4ForCausalLM", "0.20.0"),
        ("0.16.0", "Qwen3_5ForConditionalGeneration", "0.17.0"),
        ("0.9.2", "GptOssForCausalLM", "0.10.1"),
        ("0.27.1", "LlamaForCausalLM", None),
        ("0.1.0", "LlamaForCausalLM", None),
        ("0.27.1", "NobodyKnowsForCausalLM", None),
    ],
)
def test_an_engine_is_too_old_where_a_registry_that_was_read_says_so(
    version: str, architecture: str, first: str | None
) -> None:
    assert added_after("vllm", version, architecture) == first


def test_nothing_is_said_of_releases_between_two_that_were_read() -> None:
    row = since("vllm")["KimiK25ForConditionalGeneration"]
    assert (row.after, row.first) == ("0.14.1", "0.16.0")
    assert added_after("vllm", "0.15.0", "KimiK25ForConditionalGeneration") is None


def test_the_table_agrees_with_each_registry() -> None:
    for registry in registries("vllm"):
        for name in registry.known & since("vllm").keys():
            assert Version(since("vllm")[name].after) < Version(registry.version), name


def test_no_release_is_refused_for_certain_that_has_the_architecture() -> None:
    for row in first_releases():
        for name in row.architectures:
            assert Version(row.not_before) <= Version(since("vllm")[name].first), name


def test_other_families_have_no_registry() -> None:
    assert since("vllm-ascend") == {} and added_after("vllm-ascend", "0.1", "LlamaForCausalLM") is None
    assert removed_after("vllm", "0.32.0", "GritLM") == "0.28.0"
