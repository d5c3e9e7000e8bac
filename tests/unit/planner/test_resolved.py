"""What a plan says of the engine's own choices, of /dev/shm, and of CUDA graphs that are given up."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from onecat.planner import Layout, Plan, Reason
from onecat.planner.resolved import shared_memory_mib
from tests.unit.planner.test_layouts import LARGE, for_cards


def reason(plan: Plan, argument: str) -> Reason | None:
    return next((each for each in plan.reasons if each.arg == argument), None)


def test_the_engines_choices_are_told_with_reasons_and_are_no_words_of_the_command() -> None:
    plan = for_cards("h100", 1)
    chosen = {each.arg: each.value for each in plan.reasons if each.origin == "engine"}
    assert chosen == {
        "--gpu-memory-utilization": "0.92",
        "--max-num-seqs": "1024",
        "--max-num-batched-tokens": "8192",
        "--enable-chunked-prefill": "true",
        "--enforce-eager": "false",
    }
    assert not set(chosen) & set(plan.server_args)
    assert all(each.why and each.source for each in plan.reasons if each.origin == "engine")


def test_what_somebody_set_is_no_choice_of_the_engine() -> None:
    plan = for_cards("h100", 1, gpu_memory_utilization=0.8, enforce_eager=True, enable_chunked_prefill=False)
    assert {each.arg for each in plan.reasons if each.origin == "engine"} == {
        "--max-num-seqs",
        "--max-num-batched-tokens",
    }


def test_a_container_is_told_why_it_has_its_shared_memory(planned: Callable[..., Plan]) -> None:
    told = reason(planned("v100x2-pcie", {"runtime": "container"}), "/dev/shm")
    assert told is not None and (told.value, told.origin) == ("2048 MiB", "profile")
    assert "2 ranks" in told.why and "64 MiB" in told.why
    assert reason(planned("cpu"), "/dev/shm") is None


def test_cards_alone_are_told_how_much_a_container_needs() -> None:
    told = reason(for_cards("h100", 2, LARGE, max_model_len=4096), "/dev/shm")
    assert told is not None and told.why.startswith("--shm-size of a container") and told.origin == "planner"
    assert reason(for_cards("h100", 1), "/dev/shm") is None


@pytest.mark.parametrize(
    ("layout", "mib"), [(Layout(1), 64), (Layout(2), 976), (Layout(4, 2), 2416), (Layout(1, 1, 2), 256)]
)
def test_ranks_need_queues_and_copies_only_what_nccl_takes(layout: Layout, mib: int) -> None:
    assert shared_memory_mib(layout) == mib


def test_graphs_are_given_up_only_where_they_take_most_of_the_context() -> None:
    plans = {share: for_cards("v100-32g", 1, gpu_memory_utilization=share / 1000) for share in range(480, 510, 3)}
    eager = {share for share, plan in plans.items() if "--enforce-eager" in plan.server_args}
    assert eager and max(eager) < max(plans)
    for share in eager:
        told = reason(plans[share], "--enforce-eager")
        assert told is not None and "CUDA graphs would take" in told.why and plans[share].fits
