"""No request is lost and no stream is cut off while releases change under load."""

from __future__ import annotations

import subprocess
import time

from onecat import deploy
from tests.testbed.deployments import SmallDeployment
from tests.testbed.load import Load

WORD_SECONDS = ("--word-seconds", "0.01")


def test_blue_green_rollback_and_reload_lose_no_request_of_fifty_clients(small: SmallDeployment, nginx: str) -> None:
    release = small.up(*WORD_SECONDS)
    with Load(release.endpoint, clients=50) as load:
        load.wait_for(200)
        assert small.up(*WORD_SECONDS, "--max-num-seqs", "8").strategy == "blue-green"
        assert small.up(*WORD_SECONDS, "--max-num-seqs", "9").strategy == "blue-green"
        back = deploy.rollback(small.store, report=small.reported.append)
        assert (back.strategy, back.origin) == ("blue-green", 2)
        before = load.tally.answered
        subprocess.run([nginx, "-p", f"{small.store.proxy_directory}/", "-c", "nginx.conf", "-s", "reload"], check=True)
        load.wait_for(max(before + 300, 2100))
    tally = load.tally
    print(f"\n{tally.answered} answers, {tally.streams} of them streams, {tally.on_kept} on kept connections")
    print(f"{tally.asked_again} kept connections were closed before an answer began, and the request asked again")
    assert tally.lost == []
    assert tally.refused == []
    assert tally.answered >= 2000
    assert 0.3 < tally.streams / tally.answered < 0.7
    # nginx keeps connections where a reload does not close them unasked (1.27.4 and later), and only there.
    assert tally.asked_again == 0
    assert [each.outcome for each in small.store.releases()] == ["stopped", "stopped", "stopped", "serving"]


def test_recreate_refuses_well_in_the_gap_and_never_outside_it(small: SmallDeployment) -> None:
    rollout = {"strategy": "recreate"}
    release = small.up(*WORD_SECONDS, rollout=rollout)
    assert release.start_seconds is not None
    with Load(release.endpoint, clients=20) as load:
        load.wait_for(100)
        began = time.monotonic() - load.began
        second = small.up(*WORD_SECONDS, "--busy", "1", rollout=rollout)
        ended = time.monotonic() - load.began
        load.wait_for(load.tally.answered + 200)
    tally = load.tally
    assert second.strategy == "recreate"
    assert second.gap_seconds is not None and 1 <= second.gap_seconds <= ended - began
    assert tally.lost == []
    assert len(tally.refused) > 0
    assert all(began <= moment <= ended for moment in tally.refused)
    assert tally.refused[-1] - tally.refused[0] <= second.gap_seconds + 0.5
    gap = deploy.forecast_restart(small.store, None)
    assert (gap.strategy, gap.gap, gap.gap_seconds) == ("recreate", True, second.gap_seconds)
