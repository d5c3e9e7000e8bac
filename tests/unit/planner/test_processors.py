"""Several ranks on processors."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from onecat.facts import Cpu, Facts
from onecat.planner import Plan
from onecat.planner.processors import beside_others
from tests.unit.planner.examples import llama

BINDING = "VLLM_CPU_OMP_THREADS_BIND"


def on(nodes: int | None) -> Facts:
    return Facts("here", cpu=Cpu(usable_cores=8, numa_nodes=nodes))


@pytest.mark.parametrize("flag", ["tensor-parallel-size", "pipeline-parallel-size"])
@pytest.mark.parametrize("facts", [None, Facts("here"), on(None), on(1)])
def test_ranks_that_have_no_numa_node_each_are_not_bound(
    planned: Callable[..., Plan], flag: str, facts: Facts | None
) -> None:
    plan = planned("cpu", {f"serve.{flag}": 2}, llama(), facts)
    assert plan.refusals == ()
    assert dict(plan.env)[BINDING] == "nobind"
    [reason] = [each for each in plan.reasons if each.arg == BINDING]
    assert reason.origin == "planner" and "NUMA" in reason.why
    assert any("The 2 ranks share this host's processors" in each for each in plan.warnings)


@pytest.mark.parametrize(("ranks", "threads"), [(2, "4"), (3, "2"), (16, "1")])
def test_unbound_ranks_share_the_cores(planned: Callable[..., Plan], ranks: int, threads: str) -> None:
    plan = planned("cpu", {"serve.pipeline-parallel-size": ranks}, llama(), on(1))
    assert dict(plan.env)["OMP_NUM_THREADS"] == threads
    assert "OMP_NUM_THREADS" not in dict(planned("cpu", {"serve.pipeline-parallel-size": ranks}).env), "cores not known"
    mine = planned("cpu", {"serve.pipeline-parallel-size": ranks, "env.OMP_NUM_THREADS": "3"}, llama(), on(1))
    assert dict(mine.env)["OMP_NUM_THREADS"] == "3"


def test_the_engine_binds_them_itself_where_it_can(planned: Callable[..., Plan]) -> None:
    assert BINDING not in dict(planned("cpu", {"serve.tensor-parallel-size": 2}, llama(), on(2)).env)
    assert BINDING not in dict(planned("cpu", {}, llama(), on(1)).env)


def test_what_a_person_has_bound_stays(planned: Callable[..., Plan]) -> None:
    plan = planned("cpu", {"serve.tensor-parallel-size": 2, f"env.{BINDING}": "0|1"}, llama(), on(1))
    assert dict(plan.env)[BINDING] == "0|1"
    assert [each.value for each in plan.reasons if each.arg == BINDING] == ["0|1"]


def test_beside_another_engine_threads_are_not_bound(planned: Callable[..., Plan]) -> None:
    plan = planned("cpu", {}, llama(), on(1))
    found = beside_others(plan, ["release 3 of chat"])
    assert dict(found.env)[BINDING] == "nobind"
    [reason] = [each for each in found.reasons if each.arg == BINDING]
    assert "release 3 of chat" in reason.why
    assert dict(found.env).items() - dict(plan.env).items() == {(BINDING, "nobind")}
    assert beside_others(plan, []) is plan, "alone it binds them itself"
    mine = planned("cpu", {f"env.{BINDING}": "2-3"}, llama(), on(1))
    assert beside_others(mine, ["release 3 of chat"]) is mine
