"""Which layout the planner takes: over the links that there are, for models that fit one card and those that do not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from onecat.checkpoints import Checkpoint
from onecat.checkpoints.quantization.reading import read_quantization
from onecat.config import Deployment, list_profiles, load_profile
from onecat.config.schema import Model
from onecat.facts import Facts, Gpu, GpuPair, Nvidia
from onecat.planner import Layout, Plan, make_plan
from onecat.planner.bare import NAME, named_gpu, profile_for
from onecat.planner.hardware import hardware_of
from onecat.planner.prompts import Prompts, parse_distribution
from onecat.planner.topology import arranged, link_between
from tests.unit.planner.examples import LLAMA, V100, checkpoint_of, llama

GIB = 2**30
LARGE = checkpoint_of(num_hidden_layers=60, hidden_size=8192, intermediate_size=22016, num_attention_heads=64)
"""92 GiB of weights."""
PROFILES = [load_profile(name) for name in list_profiles()]


def for_cards(
    gpu: str,
    count: int,
    checkpoint: Checkpoint = LLAMA,
    facts: Facts | None = None,
    prompts: Prompts | None = None,
    version: str | None = None,
    **flags: Any,
) -> Plan:
    """A plan for cards alone, of a version of vLLM where it matters."""
    profile = profile_for(named_gpu(gpu), count, PROFILES, None if version is None else "vllm", version)
    deployment = Deployment(name="chat", profile=NAME, model=Model(path=checkpoint.directory))
    named = {name.replace("_", "-"): value for name, value in flags.items()}
    return make_plan(deployment, profile, checkpoint, facts, named, prompts)


def cards(
    name: str, count: int, *links: tuple[int, int, str], memory: int = 32 * GIB, capability: str = "7.0", **pair: Any
) -> Facts:
    """A host with so many cards, and what joins two of them where it is not PHB."""
    gpus = tuple(Gpu(each, name, compute_capability=capability, memory_total=memory) for each in range(count))
    told = {(first, second): words for first, second, words in links}
    pairs = tuple(
        GpuPair(first, second, told.get((first, second), "PHB"), **pair)
        for first in range(count)
        for second in range(first + 1, count)
    )
    return Facts("gpu1", nvidia=Nvidia(library_found=True, gpus=gpus, pairs=pairs))


@pytest.mark.parametrize(
    ("gpu", "count", "checkpoint", "expected"),
    [
        ("v100-32g", 2, LLAMA, Layout(1, 1, 2)),
        ("v100-32g", 4, LLAMA, Layout(1, 1, 4)),
        ("rtx-3090", 2, LLAMA, Layout(1, 1, 2)),
        ("h100", 1, LLAMA, Layout(1, 1, 1)),
        ("h100", 2, LARGE, Layout(2, 1, 1)),
        ("h100", 4, LARGE, Layout(2, 1, 2)),
        ("v100-32g", 4, LARGE, Layout(2, 2, 1)),
    ],
)
def test_a_model_that_fits_one_card_gets_copies_and_others_the_fewest_cards_that_hold_them(
    gpu: str, count: int, checkpoint: Checkpoint, expected: Layout
) -> None:
    plan = for_cards(gpu, count, checkpoint, max_model_len=4096)
    assert (plan.layout, plan.fits, plan.refusals) == (expected, True, ())
    if count > 1:
        assert plan.candidates[0].layout == expected
        told = [each for each in plan.reasons if each.arg.endswith("-parallel-size")]
        assert told and all(each.origin == "planner" and each.source for each in told)


def test_a_layout_set_by_a_person_stands() -> None:
    plan = for_cards("v100-32g", 4, tensor_parallel_size=2)
    assert plan.layout == Layout(2, 1, 1)
    assert any(each.layout == Layout(1, 1, 4) for each in plan.candidates)


def test_a_profiles_layout_stands_and_a_better_one_is_named(planned: Callable[..., Plan]) -> None:
    plan = planned("v100x2-pcie", {"serve.max-model-len": 8192})
    assert plan.layout == Layout(2, 1, 1)
    [note] = [each for each in plan.warnings if "The profile's layout stands" in each]
    assert "tensor-parallel-size: 1, data-parallel-size: 2" in note
    assert not any("layout stands" in each for each in planned("v100x2-pcie", {}, LARGE).warnings)


def test_a_layout_that_holds_the_whole_context_comes_before_a_cheaper_one_that_does_not() -> None:
    plan = for_cards("v100-32g", 2)
    assert plan.fits and "--max-model-len" not in plan.server_args
    assert plan.max_model_len == 131072
    assert plan.layout.tensor_parallel * plan.layout.pipeline_parallel == 2
    copies = next(each for each in plan.candidates if each.layout == Layout(1, 1, 2))
    assert (copies.holds, copies.fits, copies.cost < 1) == ("shorter", False, True)
    assert "not the checkpoint's whole context of 131,072 tokens" in copies.why
    [note] = [each for each in plan.warnings if "shorter context" in each]
    assert "data-parallel-size: 2" in note and f"max-model-len: {copies.largest_max_model_len}" in note


def test_a_model_whose_whole_context_fits_one_card_gets_copies_without_being_asked() -> None:
    plan = for_cards("v100-32g", 2, checkpoint_of(max_position_embeddings=32768))
    assert (plan.layout, plan.max_model_len) == (Layout(1, 1, 2), 32768)


def test_where_no_layout_holds_the_whole_context_the_longest_wins_and_what_is_given_up_is_told() -> None:
    model = checkpoint_of(max_position_embeddings=2**20)
    plan = for_cards("v100-32g", 2, model)
    chosen, *others = plan.candidates
    assert chosen.layout == plan.layout and {each.holds for each in plan.candidates} == {"shorter"}
    assert all(each.largest_max_model_len <= chosen.largest_max_model_len / 0.9 for each in others)
    assert plan.fits and plan.max_model_len is not None and plan.max_model_len < 2**20
    told = next(each for each in plan.reasons if each.arg == "--max-model-len")
    assert "the checkpoint allows 1048576" in told.why and "no layout of these cards holds it" in told.why


def test_requests_to_come_say_how_long_a_context_is_wanted() -> None:
    prompts = parse_distribution("90%:1000:200,10%:6000:500")
    plan = for_cards("v100-32g", 2, prompts=prompts)
    assert plan.layout == Layout(1, 1, 2)
    assert plan.candidates[0].wanted == 6500
    long = for_cards("v100-32g", 2, prompts=parse_distribution("100%:60000:500"))
    assert long.layout.replicas == 1 and long.candidates[0].wanted == 60500


def test_layouts_are_compared_with_the_data_types_that_the_server_gets() -> None:
    wants_fp8 = llama(kv="fp8")
    plan = for_cards("v100-32g", 2, wants_fp8, max_model_len=4096)
    own = next(each for each in plan.candidates if each.layout == plan.layout)
    assert (own.kv_tokens, plan.assumed["kv_cache_dtype"]) == (plan.kv_tokens, "float16")


MIXTURE = checkpoint_of(
    architectures=["Qwen3MoeForCausalLM"], model_type="qwen3_moe", num_hidden_layers=48, hidden_size=2048,
    num_attention_heads=32, num_key_value_heads=4, head_dim=128, moe_intermediate_size=768, num_experts=128,
    num_experts_per_tok=8, intermediate_size=6144, rope_scaling=None, max_position_embeddings=40960,
)  # fmt: skip
"""As Qwen3-30B-A3B: 57 GiB, all but 3 of them experts."""


def test_data_parallel_ranks_share_the_experts_of_a_mixture() -> None:
    plan = for_cards("h100", 2, MIXTURE, data_parallel_size=2)
    alone = for_cards("h100", 1, MIXTURE)
    [own] = [each for each in plan.candidates if each.layout == Layout(1, 1, 2)]
    assert "share the experts, a part of each" in own.why and "copies" not in own.why
    whole, half = alone.per_gpu[0]["weights_gib"], plan.per_gpu[0]["weights_gib"]
    assert whole / 2 < half < whole / 2 + 3
    dense = for_cards("h100", 2, data_parallel_size=2)
    assert dense.per_gpu[0]["weights_gib"] == for_cards("h100", 1).per_gpu[0]["weights_gib"]


def test_a_mixture_that_fits_one_card_is_told_that_servers_of_their_own_are_its_only_copies() -> None:
    fits = replace(MIXTURE, architecture=MIXTURE.architecture.replaced(max_position_embeddings=8192))
    [note] = [each for each in for_cards("a100-pcie", 2, fits).warnings if "2 deployments of one card each" in each]
    assert "share its experts" in note
    assert not any("deployments of one card" in each for each in for_cards("a100-pcie", 2).warnings)
    assert not any("deployments of one card" in each for each in for_cards("l40s", 2, fits).warnings)


def test_experts_that_cannot_be_cut_are_dealt_out_whole() -> None:
    blocks = {"quant_method": "fp8", "weight_block_size": [128, 128], "activation_scheme": "dynamic"}
    stored = read_quantization({"config.json": {"quantization_config": blocks}})
    plan = for_cards("h100", 8, replace(MIXTURE, quantization=stored))
    eight = next(each for each in plan.candidates if each.layout == Layout(1, 1, 8))
    assert eight.expert_parallel and "whole ones" in eight.why
    assert plan.layout == Layout(1, 1, 8) and "--enable-expert-parallel" in plan.server_args
    # 768 rows of an expert on 8 ranks are 96 each, and a block of scales has 128.
    blocks_of_experts = replace(MIXTURE, quantization=stored)
    refused = for_cards("h100", 8, blocks_of_experts, data_parallel_size=8)
    assert "tensor-parallel-blocks" in [each.code for each in refused.refusals]
    kept = for_cards("h100", 8, blocks_of_experts, data_parallel_size=8, enable_expert_parallel=True)
    assert kept.refusals == ()


def test_tensor_parallelism_stays_inside_nvlink_pairs_and_stages_go_across() -> None:
    joined = cards("Tesla V100-SXM2-32GB", 4, (0, 1, "NV2"), (2, 3, "NV2"))
    assert for_cards("v100-sxm2", 4, LARGE, joined, max_model_len=4096).layout == Layout(2, 2, 1)
    whole = cards("Tesla V100-SXM2-32GB", 4, *((a, b, "NV2") for a in range(4) for b in range(a + 1, 4)))
    assert for_cards("v100-sxm2", 4, LARGE, whole, max_model_len=4096).layout == Layout(4, 1, 1)


def test_cards_that_a_bridge_joins_become_neighbours() -> None:
    facts = cards(V100, 4, (0, 2, "NV2"), (1, 3, "NV2"))
    hardware = hardware_of(load_profile("v100x2-pcie"), facts)
    assert [each.index for each in arranged(hardware, 2, 4)] == [0, 2, 1, 3]
    straight = hardware_of(load_profile("v100x2-pcie"), cards(V100, 4, (0, 1, "NV2"), (2, 3, "NV2")))
    assert [each.index for each in arranged(straight, 2, 4)] == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("words", "kind", "told"),
    [
        ("NV2", "nvlink", "NVLink (NV2)"),
        ("PIX", "switch", "PCIe 3.0 x16 through a switch"),
        ("PHB", "host bridge", "PCIe 3.0 x16"),
        ("SYS", "sockets", "PCIe 3.0 x16 across sockets"),
    ],
)
def test_a_link_is_what_the_driver_calls_it(words: str, kind: str, told: str) -> None:
    hardware = hardware_of(load_profile("v100x2-pcie"), cards(V100, 2, (0, 1, words)))
    link = link_between(hardware, *hardware.cards)
    assert (link.kind, link.told) == (kind, told)


def test_links_are_ranked_by_their_speed() -> None:
    def speed(words: str, **pair: Any) -> float:
        hardware = hardware_of(load_profile("v100x2-pcie"), cards(V100, 2, (0, 1, words), **pair))
        return link_between(hardware, *hardware.cards).gb_s

    assert speed("NV6") > speed("NV2") > speed("PIX") > speed("PHB") > speed("SYS")
    assert speed("PHB", peer_read="chipset not supported") < speed("PHB", peer_read="ok")


def test_boards_have_nvlink_without_facts_and_bridges_are_not_assumed() -> None:
    for gpu, kind in (
        ("a100", "nvlink"),
        ("v100-sxm2", "nvlink"),
        ("a100-pcie", "host bridge"),
        ("v100", "host bridge"),
    ):
        hardware = hardware_of(profile_for(named_gpu(gpu), 2, PROFILES), None)
        assert link_between(hardware, *hardware.cards).kind == kind, gpu


def test_ranks_that_cannot_share_the_heads_are_not_among_the_candidates() -> None:
    seven = checkpoint_of(num_attention_heads=28, num_key_value_heads=4, hidden_size=3584)
    tensor = {each.layout.tensor_parallel for each in for_cards("h100", 8, seven).candidates}
    assert tensor == {1, 2, 4}


def test_where_nothing_fits_the_layout_that_lacks_least_is_shown() -> None:
    plan = for_cards("t4", 2, LARGE)
    assert (plan.fits, plan.layout.replicas) == (False, 1)
    assert [each.code for each in plan.refusals] == ["memory-weights"]
