"""What a watcher sees."""

from __future__ import annotations

import json
from datetime import datetime, timezone

import pytest

from onecat.doctor import Change, Finding, HostReport, Report, changes
from onecat.render.columns import width
from onecat.render.watch import appended_lines, json_line, view_lines

NOON = datetime(2026, 11, 29, 12, 0, 1, tzinfo=timezone.utc)
FINE = Report(None, (HostReport("gpu1", True, 0.1, (Finding("gpu.xid", "pass", "No Xid", "GPU 0"),)),))
WRONG = Report(None, (HostReport("gpu1", True, 0.1, (Finding("gpu.xid", "fail", "Xid 79 in the log", "GPU 0"),)),))
AWAY = Report(None, (HostReport("gpu1", False, 0.1, reason="no route to host"),))


def appended(report: Report, changed: tuple[Change, ...], is_first: bool = False) -> list[str]:
    return [line.text for line in appended_lines(NOON, report, changed, is_first)]


def test_lines_are_appended_for_changes_only() -> None:
    assert appended(WRONG, changes(FINE, WRONG)) == [
        "12:00:01 gpu1 worse: GPU 0: Xid 79 in the log [gpu.xid] (was pass)",
    ]
    assert appended(FINE, changes(WRONG, FINE)) == ["12:00:01 gpu1 better: GPU 0: No Xid [gpu.xid] (was fail)"]
    assert appended(AWAY, changes(FINE, AWAY)) == ["12:00:01 gpu1 is not reachable: no route to host"]
    assert appended(FINE, changes(AWAY, FINE)) == ["12:00:01 gpu1 is reachable again"]
    assert appended(FINE, changes(FINE, FINE)) == []


def test_the_first_look_is_the_whole_report() -> None:
    lines = appended(WRONG, (), is_first=True)
    assert "fail  GPU 0: Xid 79 in the log [gpu.xid]" in lines
    assert lines[-1] == "12:00:01 watching; changes follow, Ctrl-C ends"


def test_a_program_gets_one_document_a_line() -> None:
    line = json_line(NOON, WRONG, changes(FINE, WRONG))
    document = json.loads(line)
    assert "\n" not in line
    assert (document["schema"], document["time"]) == ("onecat.doctor/1", "2026-11-29T12:00:01+00:00")
    assert document["hosts"][0]["findings"][0]["status"] == "fail"
    (change,) = document["changes"]
    assert (change["kind"], change["before"]["status"], change["after"]["status"]) == ("worse", "pass", "fail")


@pytest.mark.parametrize(("columns", "rows"), [(80, 24), (40, 10), (200, 60)])
def test_the_view_fits_the_screen_and_keeps_the_newest_change(columns: int, rows: int) -> None:
    many = tuple(
        Finding("gpu.xid", "fail", f"Xid {number} was seen in the kernel's log", f"GPU {number}")
        for number in range(50)
    )
    report = Report(None, (HostReport("gpu1", True, 0.1, many),))
    log = [(NOON, change) for change in changes(FINE, report)] + [(NOON, changes(FINE, AWAY)[0])]
    lines = view_lines(NOON, report, log, width=columns, height=rows)
    assert len(lines) < rows
    assert all(width(line.text) <= columns for line in lines)
    assert lines[-1].text.endswith("to host")
    assert any("more" in line.text for line in lines)


def test_the_view_of_a_healthy_host_says_so() -> None:
    texts = [line.text for line in view_lines(NOON, FINE, [], width=80, height=24)]
    assert texts == ["12:00:01  gpu1: 1 pass  (Ctrl-C ends)", "", "nothing is wrong"]
