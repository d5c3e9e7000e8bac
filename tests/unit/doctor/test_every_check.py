"""Every check: what makes it speak up, what makes it pass, what makes it skip. The cases stand in cases/."""

from __future__ import annotations

import importlib
import pkgutil

import pytest

import tests.unit.doctor.cases as package
from onecat.config import Profile
from onecat.doctor import Check, Finding, all_checks, examine
from onecat.facts import Facts
from tests.unit.doctor.cases.form import Case
from tests.unit.doctor.examples import COMPLETE, CPU, HEALTHY, NOTHING_KNOWN, V100

CASES: list[Case] = [
    case
    for module in pkgutil.iter_modules(package.__path__, package.__name__ + ".")
    if module.name.rpartition(".")[2] != "form"
    for case in importlib.import_module(module.name).CASES
]


def findings(case: Case) -> list[Finding]:
    return list(examine(case.facts, case.profile, case.settings, only=[case.check]))


@pytest.mark.parametrize("case", CASES, ids=lambda each: f"{each.check}-{each.expected[-1][0]}-{each.expected[-1][1]}")
def test_a_check_says_what_the_facts_say(case: Case) -> None:
    found = findings(case)
    assert [(finding.status, finding.title) for finding in found] == [
        (status, finding.title if title in finding.title else title)
        for finding, (status, title) in zip(found, case.expected, strict=True)
    ]


@pytest.mark.parametrize("check", all_checks(), ids=lambda each: each.id)
def test_every_check_is_seen_to_speak_up_to_pass_and_to_skip(check: Check) -> None:
    statuses = {status for case in CASES if case.check == check.id for status, _ in case.expected}
    assert statuses & {"fail", "warn", "info"}
    assert {"pass", "skip"} <= statuses


@pytest.mark.parametrize("case", CASES, ids=lambda each: f"{each.check}-{each.expected[-1][1]}")
def test_what_speaks_up_has_a_reason_and_a_source_and_failures_have_evidence_and_a_fix(case: Case) -> None:
    for finding in findings(case):
        assert finding.why and finding.source
        if finding.status in ("fail", "warn"):
            assert finding.evidence and finding.fix
            assert "setenforce" not in " ".join(finding.fix)


def test_unknown_facts_never_pass_or_fail() -> None:
    for profile in (None, V100, CPU):
        assert {finding.status for finding in examine(NOTHING_KNOWN, profile)} == {"skip"}


@pytest.mark.parametrize("facts", [HEALTHY, COMPLETE], ids=["seen by a user", "seen by root"])
@pytest.mark.parametrize("profile", [V100, None], ids=["v100", "no profile"])
def test_a_healthy_host_has_nothing_wrong_and_little_to_tell(facts: Facts, profile: Profile | None) -> None:
    told = [finding for finding in examine(facts, profile) if finding.status not in ("pass", "skip")]
    assert [finding.status for finding in told] == ["info"] * len(told)
    assert {finding.check for finding in told} <= {"topology.layout", "topology.numa"}
