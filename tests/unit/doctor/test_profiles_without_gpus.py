"""What is wrong with NVIDIA's GPUs says nothing against a profile that uses none."""

from __future__ import annotations

import pytest

from onecat.config import Profile
from onecat.doctor import Finding, all_checks, examine, suitability
from onecat.doctor.examination import select
from tests.unit.doctor.cases.ascend import PROFILE as ASCEND
from tests.unit.doctor.cases.form import Case
from tests.unit.doctor.cases.gpu import NO_ANSWER, NO_RPC
from tests.unit.doctor.examples import CPU, V100, a100, with_events
from tests.unit.doctor.test_every_check import CASES

OF_GPUS = ("cuda.*", "driver.*", "gpu.*", "nvlink.*", "pcie.*", "topology.*")
OF_GPUS_ELSEWHERE = {
    "docker.cdi",
    "docker.container-devices",
    "docker.device-links",
    "docker.rootless",
    "docker.shared-memory",
    "docker.smoke",
    "docker.toolkit",
    "docker.toolkit-cgroups",
    "docker.toolkit-version",
    "docker.uvm-device",
    "engine.cuda-available",
    "environment.allocator",
    "environment.launch-blocking",
    "environment.library-path",
    "environment.nccl",
    "environment.ptx-jit",
    "environment.visible-devices",
    "selinux.device-labels",
}
WORST = [case for case in CASES if any(status in ("fail", "warn") for status, _ in case.expected)]
CHECKS = {check.id for check in select(all_checks(), OF_GPUS, ())} | OF_GPUS_ELSEWHERE


@pytest.mark.parametrize("profile", [CPU, ASCEND], ids=["cpu", "ascend"])
@pytest.mark.parametrize("case", WORST, ids=lambda each: f"{each.check}-{each.expected[-1][0]}-{each.expected[-1][1]}")
def test_no_check_of_gpus_is_made_for_a_profile_without_them(case: Case, profile: Profile) -> None:
    findings = examine(case.facts, profile, case.settings)
    assert [each for each in findings if each.check in CHECKS and each.status != "skip"] == []
    assert [each for each in findings if each.status in ("fail", "warn") and is_about_gpus(each)] == []


def is_about_gpus(finding: Finding) -> bool:
    """Whether a finding of another area names NVIDIA's programs, files or devices as what is at fault."""
    if finding.check.startswith(("serving.", "memory.", "environment.removed")):
        return False  # what serves a model on a GPU may hold the port or the memory all the same
    return "nvidia" in " ".join((finding.subject, finding.title, *finding.evidence)).lower()


def test_a_gpu_that_does_not_answer_leaves_the_profile_without_gpus() -> None:
    facts = with_events(NO_RPC, NO_ANSWER, gpus=(a100(0, error="Unknown Error"),))
    runtimes = {each.profile: each.runtimes for each in suitability(facts, [CPU, V100])}
    assert runtimes == {"cpu": ("native", "container"), "v100x2-pcie": ()}
