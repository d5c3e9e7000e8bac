"""Several hosts at once: the matrix, the totals, and each form."""

from __future__ import annotations

import io
import xml.etree.ElementTree as ElementTree
from typing import Any

import pytest
from rich.console import Console

from onecat.doctor import Finding, HostReport, Report
from onecat.render.columns import width
from onecat.render.fleet import LEGEND, matrix, matrix_lines, totals_line
from onecat.render.json import doctor_document
from onecat.render.junit import doctor_junit
from onecat.render.markdown import doctor_markdown
from onecat.render.text import doctor_lines, print_lines


def host(name: str, **statuses: str) -> HostReport:
    findings = [
        Finding(check.replace("_", ".", 1), status, f"{check} is {status}") for check, status in statuses.items()
    ]  # type: ignore[arg-type]
    return HostReport(name, True, 0.1, tuple(findings))


GONE = HostReport("gpu9", False, 5.0, reason="no route to host", evidence=("ssh: gpu9 port 22",), fix=("ssh gpu9",))
FLEET = Report(
    "h200",
    (
        host("gpu1", gpu_count="pass", gpu_xid="warn", shm_size="pass", pcie_replays="skip"),
        host("gpu2", gpu_count="fail", gpu_xid="pass", shm_size="skip", pcie_replays="skip"),
        GONE,
    ),
)


def text(report: Report, **options: Any) -> list[str]:
    return [line.text for line in doctor_lines(report, **options)]


def test_the_matrix_has_the_rows_with_trouble_the_gravest_first() -> None:
    table = matrix(FLEET)
    assert table.hosts == ("gpu1", "gpu2")
    assert table.rows == (("gpu.count", ("pass", "fail")), ("gpu.xid", ("warn", "pass")))
    assert {check for check, _ in matrix(FLEET, verbose=True).rows} >= {"shm.size", "pcie.replays"}


def test_one_cell_is_the_worst_of_a_hosts_findings() -> None:
    mixed = HostReport("h", True, 0, tuple(Finding("a.b", status, "t", status) for status in ("skip", "warn", "pass")))  # type: ignore[arg-type]
    assert matrix(Report(None, (mixed,))).rows == (("a.b", ("warn",)),)
    halves = HostReport("h", True, 0, (Finding("a.b", "skip", "t"), Finding("a.b", "pass", "t")))
    assert matrix(Report(None, (halves,)), verbose=True).rows == (("a.b", ("pass",)),)


def test_people_read_it_without_colour() -> None:
    shown = text(FLEET)
    begin = shown.index("Summary")
    assert shown[begin : begin + 8] == [
        "Summary",
        LEGEND,
        "           gpu1 gpu2",
        "gpu.count  .    F",
        "gpu.xid    w    .",
        "",
        "not reachable: gpu9: no route to host",
        "3 hosts: 1 not reachable, 1 with failures, 1 with warnings only; 1 fail, 1 warn,",
    ]
    assert "gpu9 for profile h200: not reachable: no route to host" in shown
    assert "      seen: ssh: gpu9 port 22" in shown
    assert "      fix:  ssh gpu9" in shown


def test_many_hosts_wrap_into_numbered_blocks() -> None:
    hosts = tuple(
        host(f"rack{number:02}-node.example", gpu_xid="warn" if number % 3 else "pass") for number in range(1, 131)
    )
    lines = list(matrix_lines(matrix(Report(None, hosts)), 80))
    assert max(map(width, lines)) <= 80
    rows = [line for line in lines if line.startswith("gpu.xid")]
    assert "".join(row.removeprefix("gpu.xid") for row in rows).replace(" ", "") == "".join(
        "w" if number % 3 else "." for number in range(1, 131)
    )
    heads = [line.removeprefix(" " * 9).replace(" ", "") for line in lines[1:4]]
    assert heads[0] == "" and heads[1].startswith("1111111111222")
    assert heads[2].startswith("1234567890123")
    assert lines[-1].endswith("130 rack130-node.example")


@pytest.mark.parametrize("columns", [20, 40, 80])
def test_any_terminal_is_wide_enough(columns: int) -> None:
    hosts = tuple(
        host(f"机房{number}", gpu_xid="warn", **{"a_very-long-check-id-of-some-kind": "fail"}) for number in range(9)
    )
    lines = list(matrix_lines(matrix(Report(None, hosts)), columns))
    assert max(map(width, lines)) <= max(columns, width(LEGEND))


def test_wide_names_stand_above_their_columns() -> None:
    report = Report(None, (host("甲", gpu_xid="warn"), host("b", gpu_xid="fail")))
    header, row = list(matrix_lines(matrix(report), 80))[1:]
    assert (width(header.partition("b")[0]), len(row.partition("F")[0])) == (12, 12)


def test_totals() -> None:
    assert totals_line(FLEET) == (
        "3 hosts: 1 not reachable, 1 with failures, 1 with warnings only; 1 fail, 1 warn, 3 pass, 3 skip"
    )
    assert totals_line(Report(None, (host("a"), host("b")))) == "2 hosts: 2 fine; no findings"


def test_one_host_has_no_matrix() -> None:
    assert LEGEND not in text(Report(None, (FLEET.hosts[0],)))


def test_markdown_has_the_matrix_as_a_table_above_the_hosts() -> None:
    lines = doctor_markdown(FLEET).splitlines()
    assert lines[0] == "# 3 hosts"
    assert "| check | gpu1 | gpu2 |" in lines
    assert "| `gpu.count` | pass | fail |" in lines
    assert lines.index("| check | gpu1 | gpu2 |") < lines.index("## gpu1 for profile h200")
    assert "- fix: `ssh gpu9`" in lines


def test_junit_counts_over_all_hosts() -> None:
    root = ElementTree.fromstring(doctor_junit(FLEET))
    assert {name: root.get(name) for name in ("tests", "failures", "skipped", "errors")} == {
        "tests": "9",
        "failures": "1",
        "skipped": "3",
        "errors": "1",
    }
    assert len(root.findall("testsuite/testcase")) == 9


def test_json_tells_why_a_host_is_missing() -> None:
    document = doctor_document(FLEET)["hosts"][2]
    assert document == {
        "name": "gpu9",
        "reachable": False,
        "seconds": 5.0,
        "findings": [],
        "reason": "no route to host",
        "evidence": ["ssh: gpu9 port 22"],
        "fix": ["ssh gpu9"],
    }


def test_no_color_has_no_colours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    screen = io.StringIO()
    print_lines(Console(file=screen, force_terminal=True, width=80), doctor_lines(FLEET))
    assert not any(f"\x1b[{code}" in screen.getvalue() for code in ("31", "32", "33", "36", "1;31", "1;33"))
