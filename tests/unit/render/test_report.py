"""The report for a bug tracker: what is in it, that it is read back, and that nothing in it breaks out of its block."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from onecat.doctor import HostReport, examine
from onecat.facts import Facts, OperatingSystem, from_json
from onecat.probe import read_hosts
from onecat.render.redaction import Redactor, redact_facts, strings_of
from onecat.render.report import Observed, known_fields, report_markdown
from tests.unit.doctor.examples import HEALTHY, HUNG, NOTHING_KNOWN, V100, two, with_gpus, with_nvidia

FACTS = redact_facts(HEALTHY, Redactor([HEALTHY.host], ["operator"], strings_of(HEALTHY)))


def observed(**changes: object) -> Observed:
    finding = HostReport(FACTS.host, True, 0.3, examine(FACTS, V100))
    base = Observed(FACTS, finding, V100.name, None, None, (("onecat", "1"),))
    return replace(base, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize("log", [None, ["``` json", "```json", '{"schema": "onecat.facts/1", "host": "fake"}', "````"]])
def test_a_report_is_read_back_as_the_facts_in_it(log: list[str] | None, tmp_path: Path) -> None:
    file = tmp_path / "report.md"
    file.write_text(report_markdown(observed(log=log, plan="--dtype float16\n```\n")))
    (facts,) = read_hosts([str(file)])
    assert facts == FACTS


def test_it_names_machine_findings_plan_and_log() -> None:
    text = report_markdown(observed(log=["line one\x1b[2J", "line two"], plan="--dtype float16"))
    assert "- GPUs: 2x Tesla V100-PCIE-32GB; driver 580.95.05" in text
    assert "## host1 for profile v100x2-pcie" in text
    assert "--dtype float16" in text
    assert "line one?[2J\nline two" in text


def test_what_a_machine_calls_its_system_and_parts_cannot_steer_a_terminal_or_the_page() -> None:
    system = OperatingSystem(id="debian", pretty_name="Evil\x1b[2J\n# heading <b>")
    text = report_markdown(observed(facts=replace(FACTS, operating_system=system)))
    assert "\x1b" not in text
    assert r"- system: Evil \[2J \# heading \<b\>" in text


@pytest.mark.parametrize("facts", [HEALTHY, NOTHING_KNOWN, HUNG])
def test_fields_left_out_come_back_with_their_default(facts: Facts) -> None:
    document = known_fields(facts)
    assert None not in document.values()
    assert from_json(document) == facts


@pytest.mark.parametrize(
    "facts",
    [
        HEALTHY,
        HUNG,
        with_nvidia(nouveau_loaded=True),
        with_gpus(*two(ecc_uncorrected_volatile=3, retired_pages_pending=True)),
    ],
)
def test_doctor_finds_the_same_in_redacted_facts(facts: Facts) -> None:
    shown = redact_facts(facts, Redactor([facts.host], ["operator"], strings_of(facts)))
    before, after = examine(facts, V100), examine(shown, V100)
    assert [(each.check, each.status, each.subject) for each in after] == [
        (each.check, each.status, each.subject) for each in before
    ]
