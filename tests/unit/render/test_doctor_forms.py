"""Doctor's report in each form."""

from __future__ import annotations

import io
import xml.etree.ElementTree as ElementTree
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from onecat.doctor import Finding, HostReport, Report, Suitability, all_checks, examine
from onecat.knowledge.claims import all_claims, claims_about
from onecat.render.json import doctor_document, explain_document
from onecat.render.junit import doctor_junit
from onecat.render.markdown import doctor_markdown
from onecat.render.text import doctor_lines, explain_lines, index_lines, print_lines
from tests.unit.doctor.examples import V100, v100, with_nvidia

WARN = Finding(
    "pcie.link-width",
    "warn",
    "The link runs at x4 of x16",
    "GPU 1",
    ("link now: x4, card: x16, slot: x16",),
    "Fewer lanes mean less bandwidth",
    ("power off, reseat the card",),
    ("https://example.org",),
)
FAIL = Finding(
    "gpu.count", "fail", "1 GPU found, 2 needed", "", ("GPU 0",), "why", ("lspci",), ("https://example.org",)
)
INFO = Finding("serving.nginx", "info", "nginx is not installed")
PASS = Finding("memory.total", "pass", "192 GiB of memory")
SKIP = Finding("gpu.row-remapping", "skip", "Not checked: before Ampere", "GPU 0")
REPORT = Report("v100x2-pcie", (HostReport("gpu1", True, 0.4123, (PASS, WARN, SKIP, INFO, FAIL)),))
UNREACHABLE = Report(None, (HostReport("gpu2", False, 5.0, reason="no route to host"),))


def text(report: Report, verbose: bool = False) -> str:
    return "\n".join(line.text for line in doctor_lines(report, verbose=verbose))


def test_people_see_failures_first_then_warnings_with_evidence_and_fix() -> None:
    assert text(REPORT).splitlines() == [
        "gpu1 for profile v100x2-pcie: 1 fail, 1 warn, 1 info, 1 pass, 1 skip (0.41 s)",
        "",
        "fail  1 GPU found, 2 needed [gpu.count]",
        "      seen: GPU 0",
        "      fix:  lspci",
        "",
        "warn  GPU 1: The link runs at x4 of x16 [pcie.link-width]",
        "      seen: link now: x4, card: x16, slot: x16",
        "      fix:  power off, reseat the card",
        "info  nginx is not installed [serving.nginx]",
        "",
        "The page behind a finding: onecat explain gpu.count",
        "What passed and what was not checked: --verbose",
    ]


def test_verbose_shows_what_passed_and_was_skipped() -> None:
    shown = text(REPORT, verbose=True)
    assert "pass  192 GiB of memory [memory.total]" in shown
    assert "skip  GPU 0: Not checked: before Ampere [gpu.row-remapping]" in shown


def test_without_a_profile_people_read_what_runs_and_what_is_missing() -> None:
    results = (Suitability("cpu", ("native",)), Suitability("h200", (), (INFO, FAIL)))
    shown = text(Report(None, (HostReport("local", True, 0.1, (PASS,), suitability=results),)))
    assert "This machine can run: cpu (native)" in shown
    assert "not h200: 1 GPU found, 2 needed; nginx is not installed" in shown


def test_a_profile_is_neither_promised_nor_refused_where_facts_are_missing() -> None:
    results = (Suitability("h200", (), (), ("gpu.count", "memory.total")), Suitability("cpu", (), (INFO,)))
    report = Report(None, (HostReport("gpu1", True, 0.1, (PASS,), suitability=results),))
    assert "Not known for h200: not checked: gpu.count, memory.total" in text(report)
    assert "This machine can run: none of onecat's profiles" not in text(report)
    nothing = Report(None, (HostReport("gpu1", True, 0.1, (PASS,), suitability=results[:1]),))
    assert "What this machine can run is not known: not checked: gpu.count, memory.total" in text(nothing)
    assert "Not known, because facts are missing: h200" in doctor_markdown(report)


def test_a_host_out_of_reach_says_why() -> None:
    assert "gpu2: not reachable: no route to host" in text(UNREACHABLE)
    assert "Not reachable: no route to host" in doctor_markdown(UNREACHABLE)


def test_real_reports_fit_80_columns() -> None:
    facts = with_nvidia(gpus=(v100(0, pcie_width_current=4), v100(1, ecc_uncorrected_volatile=3)), nouveau_loaded=True)
    report = Report("v100x2-pcie", (HostReport("gpu1", True, 0.4, examine(facts, V100)),))
    lines = [line.text for line in doctor_lines(report, verbose=True)]
    pages = [line.text for check in all_checks() for line in explain_lines(check, claims_about(check.id))]
    index = [line.text for line in index_lines(all_checks())]
    # Addresses and what a shell could not join again are not broken: a person copies them.
    whole = ("https://", "'")
    assert [line for line in lines + pages + index if len(line) > 80 and not any(mark in line for mark in whole)] == []


def test_a_long_command_is_broken_so_that_a_shell_joins_it() -> None:
    command = "sudo grubby --update-kernel=ALL --args=iommu=pt --args=pci=realloc --args=pcie_aspm=off"
    finding = Finding("a.b", "warn", "t", "", ("seen",), "why", (command, "look at it again: " + command))
    lines = text(Report(None, (HostReport("gpu1", True, 0.1, (finding,)),))).splitlines()
    start = next(number for number, line in enumerate(lines) if "fix:" in line)
    assert lines[start].endswith(" \\") and max(map(len, lines)) <= 80
    joined = (lines[start].removeprefix("      fix:  ") + "\n" + lines[start + 1]).replace("\\\n", "")
    assert joined.split() == command.split()
    assert not any(line.endswith("\\") for line in lines[start + 2 :])


@pytest.mark.parametrize(("terminal", "coloured"), [(True, True), (False, False)])
def test_colours_are_for_terminals_only(terminal: bool, coloured: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    from rich.console import Console

    monkeypatch.setenv("TERM", "xterm-256color")
    output = io.StringIO()
    print_lines(Console(file=output, force_terminal=terminal), doctor_lines(REPORT))
    assert ("\x1b[" in output.getvalue()) is coloured


def test_the_json_document_keeps_its_contract() -> None:
    document = doctor_document(REPORT)
    assert list(document) == ["schema", "profile", "hosts", "summary"]
    assert (document["schema"], document["profile"]) == ("onecat.doctor/1", "v100x2-pcie")
    (host,) = document["hosts"]
    assert {key: value for key, value in host.items() if key != "findings"} == {
        "name": "gpu1",
        "reachable": True,
        "seconds": 0.412,
    }
    assert host["findings"][1] == {
        "check": "pcie.link-width",
        "status": "warn",
        "title": "The link runs at x4 of x16",
        "subject": "GPU 1",
        "evidence": ["link now: x4, card: x16, slot: x16"],
        "why": "Fewer lanes mean less bandwidth",
        "fix": ["power off, reseat the card"],
        "source": ["https://example.org"],
    }
    assert document["summary"] == {"fail": 1, "warn": 1, "info": 1, "pass": 1, "skip": 1}


def test_the_json_document_names_what_a_host_can_run() -> None:
    results = (Suitability("cpu", ("native",)), Suitability("h200", (), (FAIL,)))
    document = doctor_document(Report(None, (HostReport("local", True, 0.1, (), suitability=results),)))
    assert document["hosts"][0]["profiles"] == [
        {"name": "cpu", "runtimes": ["native"], "missing": [], "unknown": []},
        {
            "name": "h200",
            "runtimes": [],
            "missing": [{"check": "gpu.count", "title": "1 GPU found, 2 needed"}],
            "unknown": [],
        },
    ]


def test_explain_in_json_holds_every_page() -> None:
    document = explain_document(all_checks(), all_claims())
    assert document["schema"] == "onecat.explain/1"
    assert set(document["claims"][0]) == {"id", "claim", "verdict", "truth", "checks", "topics", "source"}
    assert set(document["checks"][0]) == {"id", "title", "looks_at", "why", "fix", "source"}


def test_markdown_lists_findings_under_their_status() -> None:
    shown = doctor_markdown(REPORT)
    assert shown.index("### fail") < shown.index("### warn") < shown.index("### info")
    assert "### pass" not in shown
    assert "- **GPU 1: The link runs at x4 of x16** (`pcie.link-width`)" in shown


def test_markdown_cannot_be_broken_by_what_was_found() -> None:
    evil = replace(FAIL, title="a `b` *c* <script>", evidence=("``` x `` y",))
    shown = doctor_markdown(Report(None, (HostReport("h", True, 0.1, (evil,)),)))
    assert r"a \`b\` \*c\* \<script\>" in shown
    assert "```` ``` x `` y ````" in shown


@pytest.mark.parametrize(("fail_on", "failures"), [("fail", 1), ("warn", 2), ("info", 3)])
def test_junit_failures_follow_the_threshold(fail_on: str, failures: int) -> None:
    suite = ElementTree.fromstring(doctor_junit(REPORT, fail_on)).find("testsuite")  # type: ignore[arg-type]
    assert suite is not None
    assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == ("5", str(failures), "1")
    assert len(suite.findall("testcase/failure")) == failures


@given(st.text())
def test_junit_is_well_formed_whatever_was_found(words: str) -> None:
    report = Report(None, (HostReport(words, True, 0.1, (replace(FAIL, title=words, evidence=(words,)),)),))
    assert ElementTree.fromstring(doctor_junit(report)).tag == "testsuites"


def test_what_a_host_says_of_itself_cannot_steer_a_terminal() -> None:
    evil = Finding("a.b", "fail", "t\x1b[2J \u202e\u2028", evidence=("e\x07\x9b1m",))
    report = Report(None, (HostReport("h\x1b]0;x\x07", True, 0.1, (evil,)),))
    screen = io.StringIO()
    print_lines(Console(file=screen, width=80), doctor_lines(report))
    for shown in (doctor_markdown(report), screen.getvalue()):
        assert not any(character in shown for character in "\x1b\x07\x9b\u202e\u2028")
        assert "[2J" in shown.replace("\\", "")
    assert not any(character in doctor_junit(report) for character in "\x1b\x07\x9b")


def test_profiles_that_lack_the_same_stand_in_one_row() -> None:
    absent = Finding("gpu.present", "fail", "No NVIDIA GPU was found")
    memory = Finding("memory.total", "fail", "24 GiB of memory, 32 GiB are needed")
    results = (
        Suitability("cpu", ("native",)),
        Suitability("h200", (), (memory, absent)),
        Suitability("t4", (), (absent,)),
        Suitability("big", (), (memory,)),
    )
    lines = text(Report(None, (HostReport("local", True, 0.1, (PASS,), suitability=results),))).splitlines()
    assert "  not h200, t4: No NVIDIA GPU was found" in lines
    assert "  not big: 24 GiB of memory, 32 GiB are needed" in lines
