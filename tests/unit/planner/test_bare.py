"""Cards named without a profile: which product is meant, and which engine runs there."""

from __future__ import annotations

import pytest

from onecat.errors import OnecatError
from onecat.knowledge.hardware import find_gpu, gpu_models
from onecat.planner.bare import named_gpu, profile_for, schema_for
from tests.unit.planner.test_layouts import PROFILES


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("Tesla V100-PCIE-32GB", "Tesla V100-PCIE-32GB"),
        ("v100-32g", "Tesla V100-PCIE-32GB"),
        ("V100-32GB", "Tesla V100-PCIE-32GB"),
        ("h100", "NVIDIA H100 80GB HBM3"),
        ("A100-80GB", "NVIDIA A100-SXM4-80GB"),
        ("A100-SXM4-80GB", "NVIDIA A100-SXM4-80GB"),
        ("RTX 3090", "NVIDIA GeForce RTX 3090"),
        ("rtx3090", "NVIDIA GeForce RTX 3090"),
        ("nvidia h200", "NVIDIA H200"),
    ],
)
def test_a_card_is_known_by_its_name_and_by_short_ones(text: str, name: str) -> None:
    assert named_gpu(text).name == name


def test_short_names_mean_one_card_each() -> None:
    names = [name for each in gpu_models() for name in each.short]
    assert len(names) == len(set(names))
    assert all(find_gpu(name) is not None for name in names)


def test_every_card_with_a_short_name_has_its_memory_and_source() -> None:
    for each in gpu_models():
        if each.short:
            assert each.memory_mib and each.memory_mib % 2 in (0, 1) and each.source, each.name
            assert each.pcie_generation in (3, 4, 5)
            assert each.nvlink_gb_s is not None or not each.nvlink_bridge


def test_the_memory_of_an_unknown_card_must_be_told() -> None:
    with pytest.raises(OnecatError) as caught:
        named_gpu("GB9000")
    assert caught.value.next_steps == ("tell its memory: --gpu-memory GIB",)
    assert named_gpu("GB9000", 96).memory_mib == 96 * 1024
    assert named_gpu("h100", 40).memory_mib == 40 * 1024
    with pytest.raises(OnecatError):
        named_gpu("h100", 0)


@pytest.mark.parametrize(
    ("gpu", "engine"), [("v100-32g", "vllm-patched"), ("titan-v", "vllm-patched"), ("h100", "vllm"), ("l4", "vllm")]
)
def test_the_engine_is_that_of_the_nearest_profile(gpu: str, engine: str) -> None:
    profile = profile_for(named_gpu(gpu), 2, PROFILES)
    assert (profile.engine.name, profile.hardware.count, profile.launch.layouts) == (engine, 2, ())


def test_another_engine_or_version_takes_none_of_the_profiles_arguments() -> None:
    profile = profile_for(named_gpu("v100-32g"), 1, PROFILES, "vllm", "0.27.1")
    assert (profile.engine.name, profile.engine.version, profile.launch.args) == ("vllm", "0.27.1", ())


def test_a_version_without_a_schema_can_be_asked_about_and_says_so() -> None:
    schema = schema_for(profile_for(named_gpu("h100"), 1, PROFILES, "vllm", "0.6.3"))
    assert schema.unknown is not None and schema.version == "0.6.3"
    with pytest.raises(OnecatError):
        profile_for(named_gpu("h100"), 1, PROFILES, "vllm", "latest")
    with pytest.raises(OnecatError):
        profile_for(named_gpu("h100"), 1, PROFILES, "llama.cpp")


@pytest.mark.parametrize(("text", "name"), [("H20O", "h200"), ("rtx 309", "rtx-3090")])
def test_names_like_the_one_that_was_typed_come_first_and_all_are_told_in_short_lines(text: str, name: str) -> None:
    with pytest.raises(OnecatError) as caught:
        named_gpu(text)
    error = caught.value
    assert name in str(error.expected) and len(str(error.expected)) < 200
    assert error.details and all(len(f"  | {line}") <= 80 for line in error.details)
    assert name in " ".join(error.details)
