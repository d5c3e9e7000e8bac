"""A canary release: a share of the requests, and what becomes of it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from onecat import deploy
from onecat.deploy.canary import Trial
from onecat.errors import ExitCode, OnecatError
from tests.testbed.deployments import SmallDeployment
from tests.testbed.load import Load

NEW = ("--max-num-seqs", "8")
QUICK = {"promote_after_seconds": 2, "least_requests": 20, "max_error_rate": 0.05, "max_p99_ratio": 5.0}


def tried(small: SmallDeployment, *words: str, percent: int = 25, canary: dict[str, object] | None = None) -> Trial:
    """A canary beside what serves."""
    request = small.request(*words, canary=canary or QUICK)
    deploy.start_canary(request, small.machine, percent, small.reported.append)
    return deploy.look_at_canary(small.store)


def settled(small: SmallDeployment, seconds: float = 20) -> tuple[Trial, deploy.Release]:
    limit = time.monotonic() + seconds
    while True:
        trial, serving = deploy.settle_canary(small.store, small.reported.append)
        if serving is not None:
            return trial, serving
        assert time.monotonic() < limit, trial.verdict
        time.sleep(0.1)


def test_a_good_canary_gets_its_share_takes_over_by_itself_and_loses_no_request(small: SmallDeployment) -> None:
    small.up("--word-seconds", "0.002")
    with Load(f"http://127.0.0.1:{small.proxy_port}", clients=10) as load:
        trial = tried(small, "--word-seconds", "0.002", *NEW)
        assert (trial.canary.number, trial.stable.number, trial.verdict.word) == (2, 1, "waiting")
        last, serving = settled(small)
        load.wait_for(load.tally.answered + 100)
    assert load.tally.lost == []
    assert serving.number == 2
    share = last.verdict.canary.requests / (last.verdict.canary.requests + last.verdict.stable.requests)
    assert 0.1 < share < 0.3  # the log counts whole seconds, so some requests from before its time are among them
    assert [each.outcome for each in small.store.releases()] == ["stopped", "serving"]
    assert small.store.canary() is None
    assert small.status().release == 2


def test_a_canary_that_answers_errors_goes_and_the_stable_release_gets_all_requests(small: SmallDeployment) -> None:
    small.up()
    with Load(f"http://127.0.0.1:{small.proxy_port}", clients=8) as load:
        tried(small, "--errors-after", "1", *NEW, canary={**QUICK, "promote_after_seconds": 3600})
        trial, serving = settled(small)
        before = len(load.tally.lost)
        load.wait_for(load.tally.answered + 200)
    assert (trial.verdict.word, serving.number) == ("broken", 1)
    assert "answers are server errors" in trial.verdict.why
    assert len(load.tally.lost) - before <= 8  # those that were on their way
    assert [each.outcome for each in small.store.releases()] == ["serving", "failed"]
    assert small.store.releases()[1].cause == trial.verdict.why


def test_while_a_canary_is_tried_releases_are_not_changed_otherwise(small: SmallDeployment) -> None:
    small.up()
    tried(small, *NEW, canary={**QUICK, "promote_after_seconds": 3600})
    for change in (
        lambda: small.up("--max-num-seqs", "9"),
        lambda: deploy.rollback(small.store, 1),
        lambda: deploy.restart(small.store),
        lambda: tried(small, "--max-num-seqs", "9"),
    ):
        with pytest.raises(OnecatError) as refused:
            change()
        assert refused.value.found == "release 2 of demo is tried as a canary"
    with pytest.raises(OnecatError, match="release 2 is tried now, and release 1 was looked at"):
        deploy.promote_canary(small.store, judged=small.store.current())
    promoted = deploy.promote_canary(small.store)
    assert (promoted.number, small.status().state) == (2, "serving")
    back = deploy.rollback(small.store)
    assert (back.origin, small.status().state) == (1, "serving")


def test_the_same_command_goes_on_with_a_canary_and_gives_it_another_share(small: SmallDeployment) -> None:
    small.up()
    patient: dict[str, object] = {**QUICK, "promote_after_seconds": 3600}
    forecast = deploy.forecast_up(small.request(*NEW, canary=patient), small.machine, 25)
    assert (forecast.canary_percent, forecast.replaces, forecast.obstacle) == (25, 1, None)
    first = tried(small, *NEW, canary=patient)
    again = tried(small, *NEW, percent=40, canary=patient)
    assert (again.canary.number, again.percent, again.since) == (2, 40, first.since)
    (route,) = Path(small.store.directory).glob("traffic*.json")
    traffic = json.loads(route.read_text())
    assert [each["weight"] for each in traffic["members"]] == [3, 2]
    for words, percent, obstacle in (
        (NEW, 40, None),
        (NEW, None, "release 2 of demo is tried as a canary"),
        (("--max-num-seqs", "9"), 40, "release 2 of demo is tried as a canary"),
    ):
        request = small.request(*words, canary=patient)
        assert deploy.forecast_up(request, small.machine, percent).obstacle == obstacle


def test_promote_and_abort_tell_beforehand_what_they_would_do(small: SmallDeployment) -> None:
    small.up()
    tried(small, *NEW, canary={**QUICK, "promote_after_seconds": 3600})
    for word, serves, stops in (("promote", 2, 1), ("abort", 1, 2)):
        told = subprocess.run(
            [str(Path(sys.executable).with_name("onecat")), word, "demo", "--dry-run", "--json"],
            env={**os.environ, "ONECAT_HOME": str(small.home.data)},
            cwd=small.home.data,
            capture_output=True,
            text=True,
            check=True,
            timeout=30,
        )
        document = json.loads(told.stdout)
        assert (document["schema"], document["dry_run"]) == (f"onecat.{word}/1", True)
        assert (document["serves"], document["stops"]) == (serves, stops)
    assert [each.outcome for each in small.store.releases()] == ["serving", "canary"]


def test_a_forecast_tells_why_there_will_be_no_canary(small: SmallDeployment) -> None:
    assert deploy.forecast_up(small.request(), small.machine, 10).obstacle == (
        "nothing serves that a canary could stand beside"
    )


def test_a_canary_that_dies_is_told_and_goes(small: SmallDeployment) -> None:
    small.up()
    trial = tried(small, *NEW, canary={**QUICK, "promote_after_seconds": 3600})
    pid = json.loads(Path(trial.canary.directory, "state.json").read_text())["supervisor"]["pid"]
    os.kill(pid, signal.SIGKILL)
    last, serving = settled(small)
    assert (last.verdict.why, serving.number) == ("its server does not run, or /health does not answer", 1)
    assert small.status().state == "serving"


def test_without_room_for_two_there_is_no_canary(small: SmallDeployment) -> None:
    small.up(rollout={"strategy": "recreate"})
    with pytest.raises(OnecatError) as refused:
        deploy.start_canary(small.request(*NEW, rollout={"strategy": "recreate"}), small.machine, 10)
    assert refused.value.code is ExitCode.NO
    assert "rollout.strategy of onecat.yaml says so" in refused.value.found
    assert [each.number for each in small.store.releases()] == [1]


def test_without_anything_that_serves_there_is_no_canary(small: SmallDeployment) -> None:
    with pytest.raises(OnecatError, match="nothing serves"):
        deploy.start_canary(small.request(), small.machine, 10)
    assert not (small.home.deployments / "demo").exists()


@pytest.mark.parametrize("event", ["started", "routed", "canary"])
def test_an_operator_killed_in_the_middle_leaves_the_stable_release_or_a_whole_canary(
    small: SmallDeployment, event: str
) -> None:
    small.up()
    program = f"""
import os, signal
from pathlib import Path
from onecat import deploy
from onecat.deploy.audit import AuditLog
from onecat.paths import Home
from tests.testbed.deployments import SmallDeployment
small = SmallDeployment(Home(Path({str(small.home.data)!r}), Path("/nonexistent")), Path({str(small.model)!r}),
                        {small.port}, {small.proxy_port})
record = AuditLog.record
def killed(log, event, *rest, **details):
    record(log, event, *rest, **details)
    if event == {event!r} and small.store.releases()[-1].number == 2 and small.store.releases()[-1].live:
        os.kill(os.getpid(), signal.SIGKILL)
AuditLog.record = killed
deploy.start_canary(small.request(*{NEW!r}), small.machine, 25)
"""
    ended = subprocess.run([sys.executable, "-c", program], cwd=Path(__file__).parents[2], check=False, timeout=60)
    assert ended.returncode == -signal.SIGKILL
    assert small.status().state == "serving"
    with Load(f"http://127.0.0.1:{small.proxy_port}", clients=4) as load:
        third = small.up("--max-num-seqs", "9")
        load.wait_for(50)
    assert load.tally.lost == []
    assert [each.outcome for each in small.store.releases()] == ["stopped", "interrupted", "serving"]
    assert third.number == 3
