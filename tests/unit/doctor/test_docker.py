"""What doctor says of Docker beyond a verdict."""

from __future__ import annotations

from dataclasses import replace

from onecat.doctor import examine
from onecat.facts import Docker
from tests.unit.doctor.examples import HEALTHY, V100


def test_a_docker_state_has_the_fix_for_this_system() -> None:
    absent = Docker(state="absent", socket="unix:///var/run/docker.sock", error="does not exist")
    (finding,) = examine(replace(HEALTHY, docker=absent), V100, only=["docker.daemon"])
    assert finding.fix == ("sudo apt-get install docker.io",)
