"""An operator who is killed at any step: the next command brings a stated good state, and no request is lost."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from onecat import deploy
from onecat.errors import ExitCode, OnecatError
from tests.testbed.deployments import SmallDeployment
from tests.testbed.killed import STEPS, up_killed_after
from tests.testbed.load import Load

WORD_SECONDS = ("--word-seconds", "0.02")


def servers(small: SmallDeployment) -> int:
    return sum("openai_server" in line and "supervisor" not in line for line in small.processes())


def test_blue_green_killed_after_every_step_loses_no_request(small: SmallDeployment) -> None:
    release = small.up(*WORD_SECONDS, "--max-num-seqs", "1")
    nexts: dict[str, Callable[[], object]] = {
        "up": lambda: small.up(*WORD_SECONDS, "--max-num-seqs", "1"),
        "rollback": lambda: deploy.rollback(small.store, report=small.reported.append),
        "restart": lambda: deploy.restart(small.store, report=small.reported.append),
    }
    with Load(release.endpoint, clients=8) as load:
        for number, step in enumerate(STEPS):
            up_killed_after(small, step, *WORD_SECONDS, "--max-num-seqs", str(number + 10))
            load.wait_for(load.tally.answered + 10)
            name = list(nexts)[number % len(nexts)]
            nexts[name]()
            found = small.status()
            assert found.state == "serving", (step, name, found)
            live = [each.number for each in small.store.releases() if each.live]
            assert live == [found.release], (step, name)
            assert servers(small) == 2, (step, name)  # the server and its engine
    assert load.tally.lost == []
    assert load.tally.refused == []


@pytest.mark.parametrize("step", ["paused", "made way", "started"])
def test_recreate_killed_between_the_two_servers_serves_again(small: SmallDeployment, step: str) -> None:
    rollout = {"rollout": {"strategy": "recreate"}}
    first = small.up(**rollout)
    up_killed_after(small, step, "--max-num-seqs", "8", "recreate")
    assert small.up(**rollout).number in (first.number, 3)
    assert small.status().state == "serving"
    assert servers(small) == 2


def test_after_a_kill_in_the_gap_a_release_that_fails_brings_the_old_one_back(small: SmallDeployment) -> None:
    rollout = {"rollout": {"strategy": "recreate"}}
    first = small.up(**rollout)
    up_killed_after(small, "made way", "--max-num-seqs", "8", "recreate")
    assert servers(small) == 0
    with pytest.raises(OnecatError) as failed:
        small.up("--fail-with", "no luck", **rollout)
    assert failed.value.code is ExitCode.ROLLED_BACK
    found = small.status()
    assert (found.state, found.release) == ("serving", first.number)


def test_recreate_killed_after_the_switch_has_taken_over(small: SmallDeployment) -> None:
    rollout = {"rollout": {"strategy": "recreate"}}
    small.up(**rollout)
    up_killed_after(small, "routed", "--max-num-seqs", "8", "recreate")
    with Load(f"http://127.0.0.1:{small.proxy_port}", clients=4) as load:
        load.wait_for(20)
        assert small.up("--max-num-seqs", "8", **rollout).number == 2
        load.wait_for(load.tally.answered + 20)
    assert (load.tally.lost, load.tally.refused) == ([], [])
    assert [each.outcome for each in small.store.releases()] == ["stopped", "serving"]


def test_down_after_a_kill_ends_everything(small: SmallDeployment) -> None:
    small.up()
    up_killed_after(small, "routed", "--max-num-seqs", "8")
    assert deploy.down(small.store)
    assert small.processes() == []
    assert small.status().state == "stopped"
