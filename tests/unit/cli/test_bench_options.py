"""Options of `onecat bench` and what they become."""

from __future__ import annotations

import pytest

from onecat.cli.bench_options import objectives_of, seconds_of, sending_as_before
from onecat.errors import OnecatError
from onecat.experiments.records import Objectives


def test_what_goes_on_sends_as_before() -> None:
    assert sending_as_before({"request_timeout": 5, "pin": False}) == (5.0, False)
    assert sending_as_before({}) == (600.0, True)  # of a file that does not tell


def test_objectives_are_milliseconds() -> None:
    assert objectives_of(["ttft:200,itl:50ms", "e2e:2s"]) == Objectives(200, 50, 2000)
    for wrong in ("ttft", "ttft:0", "speed:5", "ttft:-1"):
        with pytest.raises(OnecatError, match="no objective"):
            objectives_of([wrong])


@pytest.mark.parametrize(("text", "seconds"), [("90", 90), ("90s", 90), ("1.5m", 90), ("72h", 259200), ("3d", 259200)])
def test_times(text: str, seconds: float) -> None:
    assert seconds_of(text, "--for") == seconds


@pytest.mark.parametrize("text", ["", "0s", "-5m", "1w", "5 m 3 s"])
def test_no_times(text: str) -> None:
    with pytest.raises(OnecatError, match="is no time"):
        seconds_of(text, "--for")
