"""How a release takes over, and what it is repeated from."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from onecat.deploy.releases import Release, from_document, to_document
from onecat.deploy.repeating import restart_target, rollback_target
from onecat.deploy.saved_request import SavedLauncher
from onecat.deploy.store import DeploymentStore
from onecat.deploy.strategy import Room, choose
from onecat.deploy.traffic import drain
from onecat.errors import ExitCode, OnecatError
from onecat.hosts import LocalMachine
from onecat.planner.records import ContainerPlan, HostMount, LayoutOption, Plan, Reason, Refusal, plan_of, to_json

ROOM = Room(proxied=True, gpus_needed=2, gpus_free=2)


@pytest.mark.parametrize(
    ("wanted", "runs", "room", "name", "why"),
    [
        ("auto", False, ROOM, "first", "nothing runs"),
        ("auto", True, ROOM, "blue-green", "there is room for both"),
        ("auto", True, replace(ROOM, gpus_free=0), "recreate", "needs 2 GPUs and 0 are free"),
        ("auto", True, replace(ROOM, proxied=False), "recreate", "clients reach the server itself"),
        ("auto", True, Room(True, memory_needed=3 * 2**30, memory_free=2**30), "recreate", "3.0 GiB of memory and 1.0"),
        ("auto", True, Room(True, memory_needed=3 * 2**30, memory_free=None), "blue-green", "room for both"),
        ("recreate", True, ROOM, "recreate", "rollout.strategy"),
        ("blue-green", True, replace(ROOM, gpus_free=0), "blue-green", "rollout.strategy"),
        ("blue-green", True, replace(ROOM, is_cluster=True), "recreate", "Ray clusters"),
        ("blue-green", True, replace(ROOM, same_address=True), "recreate", "another kind of nginx"),
    ],
)
def test_both_at_once_where_there_is_room_else_one_after_the_other(
    wanted: Any, runs: bool, room: Room, name: str, why: str
) -> None:
    found = choose(wanted, runs, room, 95)
    assert found.name == name
    assert why in found.why
    assert found.gap == (name == "recreate")


def test_the_gap_is_told_where_it_was_measured() -> None:
    assert "for about 95 s" in choose("recreate", True, ROOM, 95).told
    assert choose("recreate", True, ROOM, None).told_gap == "requests are refused"
    assert "refused" not in choose("auto", True, ROOM, 95).told


# --- what is repeated -------------------------------------------------------------------------------------------------


@pytest.fixture
def store(tmp_path: Path) -> DeploymentStore:
    return DeploymentStore(LocalMachine(tmp_path), "demo")


def kept(store: DeploymentStore, fingerprint: str, outcome: str, served: bool = True) -> Release:
    number, directory = store.new_directory()
    release = Release(
        deployment="demo",
        number=number,
        directory=directory,
        runtime="native",
        profile="cpu",
        model="tiny",
        host="127.0.0.1",
        port=8000,
        endpoint="http://127.0.0.1:8080",
        protected=False,
        fingerprint=fingerprint,
        created_at="2026-11-29T16:00:00.000Z",
        outcome=outcome,  # type: ignore[arg-type]
        served_at="2026-11-29T16:01:00.000Z" if served else None,
    )
    return store.save(release)


def test_a_rollback_means_the_newest_other_one_that_served(store: DeploymentStore) -> None:
    kept(store, "aaa", "stopped")
    kept(store, "bbb", "stopped")
    kept(store, "ccc", "failed", served=False)
    kept(store, "ddd", "stopped")
    kept(store, "ddd", "serving")  # a restart of the one before
    store.set_current(5)
    assert rollback_target(store, None).number == 2
    assert rollback_target(store, 1).number == 1
    assert restart_target(store).number == 5


def test_releases_of_experiments_are_not_gone_back_to(store: DeploymentStore) -> None:
    kept(store, "aaa", "stopped")
    kept(store, "bbb", "stopped")
    for fingerprint in ("ccc", "bbb"):
        store.save(replace(kept(store, fingerprint, "stopped"), purpose="bench"))
    # Left behind by an experiment that was killed: it is gone back to what was meant to serve, also where the plan
    # is the same.
    store.set_current(4)
    assert rollback_target(store, None).number == 2
    kept(store, "bbb", "serving")
    store.set_current(5)
    assert rollback_target(store, None).number == 1


def test_a_release_that_was_begun_and_not_ended_is_gone_back_from_to_the_current_one(store: DeploymentStore) -> None:
    kept(store, "aaa", "stopped")
    kept(store, "bbb", "serving")
    store.set_current(2)
    kept(store, "ccc", "starting", served=False)
    assert rollback_target(store, None).number == 2


def test_after_down_both_mean_the_last_that_served(store: DeploymentStore) -> None:
    kept(store, "aaa", "stopped")
    kept(store, "bbb", "stopped")
    store.set_current(None)
    assert (restart_target(store).number, rollback_target(store, None).number) == (2, 2)


def test_where_there_is_nothing_to_go_back_to_the_kept_ones_are_told(store: DeploymentStore) -> None:
    kept(store, "aaa", "serving")
    store.set_current(1)
    for number in (None, 9):
        with pytest.raises(OnecatError) as raised:
            rollback_target(store, number)
        assert raised.value.code == ExitCode.USAGE
        assert raised.value.expected == "one of: 1 (serving)"


def test_a_release_says_all_that_is_known_of_it(store: DeploymentStore) -> None:
    release = replace(kept(store, "aaa", "serving"), start_seconds=3.5, gap_seconds=4.5, origin=1, purpose="rollback")
    assert from_document(json.loads(json.dumps(to_document(release))), release.directory) == release


def test_a_plan_comes_back_from_its_document() -> None:
    plan = Plan(
        deployment="demo",
        profile="cpu",
        engine="vllm",
        engine_version="0.27.1",
        runtime="container",
        model_directory="/models/tiny",
        served_name="tiny",
        host="127.0.0.1",
        port=8000,
        server_args=("/models/tiny", "--port", "8000"),
        env=(("A", "1"),),
        layouts=(LayoutOption("pair", "always", "why", (("tensor-parallel-size", 2),), True),),
        container=ContainerPlan("image", "/models/tiny", 64, 2, ("/dev/x",), (HostMount("/a", "/b"),)),
        reasons=(Reason("dtype", "half", "why", "planner"),),
        refusals=(Refusal("code", "why", ("step",)),),
        warnings=("note",),
        per_gpu=({"weights_gib": 1.5},),
    )
    assert plan_of(json.loads(json.dumps(to_json(plan)))) == plan


def test_an_engine_is_called_as_it_was() -> None:
    launcher = SavedLauncher(("/opt/vllm", "serve", "{server_args}", "--last"))
    assert launcher.serve_argv(["model", "--port", "1"]) == ["/opt/vllm", "serve", "model", "--port", "1", "--last"]


# --- waiting for running answers --------------------------------------------------------------------------------------


def test_a_server_is_drained_when_it_counts_nothing_and_given_up_after_the_limit() -> None:
    counts = iter([2.0, 1.0, 0.0])
    assert drain(lambda: next(counts), None, 30) is not None
    assert drain(lambda: 1.0, None, 0.2) is None
