"""Log lines as they are printed."""

from __future__ import annotations

import json
import re

import pytest

from onecat.errors import ExitCode, OnecatError
from onecat.live.logs import Entry, Finding, Loss, Source
from onecat.observe import Diagnosis
from onecat.render.logs import event_line, labels, live_document, logs_document, loss_line

ONE, TWO = Source("gpu1", "server", 3, "demo"), Source("gpu20", "server", 3, "demo")
CANARY = Source("gpu1", "canary", 4, "demo")
DIAGNOSIS = Diagnosis("gpu-oom", "high", "The GPU has no memory left.", ("onecat plan",), (), ())
LOST = Loss("gpu1", OnecatError("the connection is lost", code=ExitCode.UNREACHABLE))


def entry(text: str, source: Source = ONE) -> Entry:
    return Entry(source, text, 1796040000.25)


def test_a_host_is_told_only_where_there_are_several_and_a_log_only_where_a_host_has_several() -> None:
    assert labels([ONE], False) == {ONE: ""}
    assert labels([ONE, TWO], True) == {ONE: "gpu1", TWO: "gpu20"}
    assert labels([ONE, CANARY], False) == {ONE: "server 3", CANARY: "canary 4"}
    assert labels([ONE, CANARY, TWO], True)[CANARY] == "gpu1 canary 4"
    assert event_line(entry("x"), "gpu1", 5) == "gpu1  | x"
    assert event_line(entry("x"), "") == "x"


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("2026-11-30T12:00:00Z ERROR 11-30 12:00:00 [core.py:1] no", "1;31"),
        ("2026-11-30T12:00:00Z (EngineCore pid=7) CRITICAL no", "1;31"),
        ("2026-11-30T12:00:00Z ValueError: no", "1;31"),
        ("2026/11/30 12:00:00 [error] 7#7: no", "1;31"),
        ("2026-11-30T12:00:00Z WARNING 11-30 no", "35"),
        ("2026-11-30T12:00:00Z DEBUG 11-30 no", "2"),
        ("2026-11-30T12:00:00Z INFO 11-30 errors: 0", None),
    ],
)
def test_colours_of_levels_suit_a_light_and_a_dark_background(text: str, code: str | None) -> None:
    shown = event_line(entry(text), "", colours=True)
    assert shown == (text if code is None else f"\x1b[{code}m{text}\x1b[0m")
    assert event_line(entry(text), "") == text
    assert not {"33", "34", "37", "93", "94", "97"} & set(
        re.findall(r"\d+", "".join(re.findall(r"\x1b\[([\d;]*)m", shown)))
    )


def test_a_line_cannot_steer_the_terminal() -> None:
    assert event_line(entry("\x1b[36m(APIServer)\x1b[0;0m a\tb\x1b]0;title\x07"), "") == "(APIServer) a\tb"
    assert event_line(entry("a\x1bcb\x9b"), "") == "a?cb?"


def test_a_diagnosis_is_one_line_that_no_log_line_looks_like() -> None:
    told = "onecat: cause: The GPU has no memory left. (gpu-oom) -> next: onecat plan"
    assert event_line(Finding(ONE, DIAGNOSIS), "") == told
    assert event_line(Finding(ONE, DIAGNOSIS), "gpu1", 9).startswith("onecat: gpu1: cause: The GPU")
    assert event_line(entry(told), "") == f"| {told}"
    assert event_line(entry(told), "gpu1", 4) == f"gpu1 | {told}"
    assert event_line(Finding(ONE, DIAGNOSIS), "", colours=True).startswith("\x1b[1;7monecat: cause:\x1b[0m ")


def test_a_lost_host_is_told() -> None:
    assert loss_line(LOST) == "onecat: gpu1: no more logs from this host: the connection is lost"


def test_documents() -> None:
    document = json.loads(json.dumps(logs_document(None, [entry("a"), Finding(ONE, DIAGNOSIS), entry("b", TWO), LOST])))
    assert (document["schema"], document["deployment"], document["lines"]) == ("onecat.logs/1", "demo", ["a", "b"])
    assert document["entries"][1] == {
        **{"host": "gpu20", "source": "server", "release": 3},
        **{"time": "2026-11-30T12:00:00.250Z", "line": "b"},
    }
    (found,) = document["diagnoses"]
    assert (found["after"], found["host"], found["diagnosis"]["signature"]) == (1, "gpu1", "gpu-oom")
    assert document["lost"] == [{"host": "gpu1", "found": "the connection is lost"}]


def test_live_documents() -> None:
    assert live_document(None, entry("a"))["lines"] == ["a"]
    found = live_document(None, Finding(ONE, DIAGNOSIS))
    assert (found["lines"], found["deployment"], found["diagnosis"]["signature"]) == ([], "demo", "gpu-oom")
    assert live_document("demo", LOST)["lost"] == "the connection is lost"
