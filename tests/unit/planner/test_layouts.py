"""Which layout the planner takes: over the links that there are, for models that fit one card and those that do not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from onecat.checkpoints import Checkpoint
from onecat.config import Deployment, list_profiles, load_profile
from onecat.config.schema import Model
from onecat.facts import Facts, Gpu, GpuPair, Nvidia
from onecat.planner import Layout, Plan, make_plan
from onecat.planner.bare import NAME, named_gpu, profile_for
from onecat.planner.hardware import hardware_of
from onecat.planner.topology import arranged, link_between
from tests.unit.planner.examples import LLAMA, V100, checkpoint_of

GIB = 2**30
LARGE = checkpoint_of(num_hidden_layers=60, hidden_size=8192, intermediate_size=22016, num_attention_heads=64)
"""92 GiB of weights."""
PROFILES = [load_profile(name) for name in list_profiles()]


def for_cards(gpu: str, count: int, checkpoint: Checkpoint = LLAMA, facts: Facts | None = None, **flags: Any) -> Plan:
    """A plan for cards alone."""
    profile = profile_for(named_gpu(gpu), count, PROFILES)
    deployment = Deployment(name="chat", profile=NAME, model=Model(path=checkpoint.directory))
    return make_plan(
        deployment, profile, checkpoint, facts, {name.replace("_", "-"): value for name, value in flags.items()}
    )


def cards(name: str, count: int, *links: tuple[int, int, str], memory: int = 32 * GIB, **pair: Any) -> Facts:
    """A host with so many cards, and what joins two of them where it is not PHB."""
    gpus = tuple(Gpu(each, name, compute_capability="7.0", memory_total=memory) for each in range(count))
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
    plan = planned("v100x2-pcie")
    assert plan.layout == Layout(2, 1, 1)
    [note] = [each for each in plan.warnings if "The profile's layout stands" in each]
    assert "tensor-parallel-size: 1, data-parallel-size: 2" in note
    assert not any("layout stands" in each for each in planned("v100x2-pcie", {}, LARGE).warnings)


def test_tensor_parallelism_stays_inside_nvlink_pairs_and_stages_go_across() -> None:
    model = checkpoint_of(num_hidden_layers=60, hidden_size=8192, intermediate_size=20480, num_attention_heads=64)
    joined = cards("Tesla V100-SXM2-32GB", 4, (0, 1, "NV2"), (2, 3, "NV2"))
    plan = for_cards("v100-sxm2", 4, model, joined, max_model_len=4096)
    by_layout = {each.layout: each for each in plan.candidates}
    assert by_layout[Layout(2, 2, 1)].cost < by_layout[Layout(4, 1, 1)].cost
    assert plan.layout == Layout(2, 2, 1)
    whole = cards("Tesla V100-SXM2-32GB", 4, *((a, b, "NV2") for a in range(4) for b in range(a + 1, 4)))
    assert for_cards("v100-sxm2", 4, model, whole, max_model_len=4096).layout == Layout(4, 1, 1)


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
