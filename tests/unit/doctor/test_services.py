"""Fixes that start services can be typed where the facts are from."""

from __future__ import annotations

from dataclasses import replace

import pytest

from onecat.doctor import Finding, examine
from onecat.facts import Clock, Docker, OperatingSystem
from tests.unit.doctor.examples import HEALTHY

WITHOUT_TIME_SERVER = replace(HEALTHY, clock=Clock(synchronized=False), docker=Docker(state="unreachable"))


def fix_of(check: str, init: str | None) -> tuple[str, ...]:
    system = OperatingSystem(id="debian", version_id="12", init=init)
    (finding,) = examine(replace(WITHOUT_TIME_SERVER, operating_system=system), None, only=[check])
    assert isinstance(finding, Finding)
    return finding.fix


@pytest.mark.parametrize("init", [None, "systemd"])
def test_systemd_starts_services_where_it_runs_or_nothing_is_known(init: str | None) -> None:
    assert fix_of("docker.daemon", init)[0] == "sudo systemctl enable --now docker"
    assert fix_of("clock.synchronized", init) == (
        "sudo timedatectl set-ntp true",
        "or, where that answers `NTP not supported`:",
        "sudo apt-get install chrony",
    )


@pytest.mark.parametrize("init", ["init", "process_api"])
def test_another_first_process_knows_no_systemctl(init: str) -> None:
    assert fix_of("docker.daemon", init)[0] == "sudo service docker start"
    assert fix_of("clock.synchronized", init) == ("sudo apt-get install chrony",)


def test_a_daemon_without_a_reason_is_no_evidence_of_none() -> None:
    (finding,) = examine(WITHOUT_TIME_SERVER, None, only=["docker.daemon"])
    assert finding.evidence == ("unreachable",)
