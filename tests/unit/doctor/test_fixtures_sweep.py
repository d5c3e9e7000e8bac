"""Doctor over every capture of shared/fixtures: nothing that the text does not support.

tests/fixtures/cases/findings.yaml lists what may be said of each, with the words in the text that support it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from onecat.config import Profile, load_profile
from onecat.doctor import Finding, examine
from onecat.facts import Facts
from onecat.probe import read_hosts

FIXTURES = Path(__file__).parents[4] / "shared" / "fixtures"
ROOMS = ("nvidia-smi", "lspci", "dmesg", "topo", "collect_env", "misc")
FILES = sorted(f"{room}/{path.name}" for room in ROOMS for path in (FIXTURES / room).glob("*") if path.suffix != ".url")
EXPECTED: dict[str, dict[str, dict[str, list[str]]]] = yaml.safe_load(
    (Path(__file__).parents[2] / "fixtures" / "cases" / "findings.yaml").read_text(encoding="utf-8")
)
PROFILES = tuple(load_profile(name) for name in ("v100x2-pcie", "a100x2-80g", "h200"))
H200 = load_profile("h200")
# What a host may fail for a profile that is not for it: what the profile itself asks for.
OF_THE_PROFILE = {
    "driver.minimum",
    "gpu.arch-in-image",
    "gpu.compute-capability",
    "gpu.count",
    "gpu.memory-total",
    "os.c-library",
    "shm.size",
}
SEVERITY = ("fail", "warn", "info")

needs_fixtures = pytest.mark.skipif(not FIXTURES.is_dir(), reason="shared/fixtures is not on this machine")


def facts_of(*files: str) -> Facts:
    """The facts of one host of which these captures are."""
    (facts,) = read_hosts([str(FIXTURES / file) for file in files])
    return facts


def said(facts: Facts, profile: Profile | None = None) -> dict[str, str]:
    """The worst status of every check that speaks up."""
    found: dict[str, str] = {}
    for finding in examine(facts, profile):
        if finding.status in SEVERITY:
            worst = min(finding.status, found.get(finding.check, "info"), key=SEVERITY.index)
            found[finding.check] = worst
    return found


def status_of(findings: tuple[Finding, ...], check: str) -> set[str]:
    return {finding.status for finding in findings if finding.check == check}


def fitting(facts: Facts) -> list[Profile]:
    """The profiles for a GPU that the facts show."""
    names = {gpu.name for gpu in facts.nvidia.gpus} if facts.nvidia else set()
    return [profile for profile in PROFILES if names & set(profile.hardware.gpu_names)]


@needs_fixtures
def test_the_list_names_exactly_the_captures_there_are() -> None:
    assert set(EXPECTED) == set(FILES)


@pytest.mark.parametrize("file", FILES)
def test_a_capture_alone_makes_doctor_say_only_what_it_shows(file: str) -> None:
    facts = facts_of(file)
    allowed: dict[str, Any] = EXPECTED[file]
    assert said(facts) == {check: status for check, (status, _) in allowed.get("any", {}).items()}
    for profile in fitting(facts):
        wanted = allowed.get(profile.name, allowed.get("any", {}))
        assert said(facts, profile) == {check: status for check, (status, _) in wanted.items()}, profile.name


@pytest.mark.parametrize("file", FILES)
def test_a_profile_for_other_hardware_fails_only_by_what_it_asks_for(file: str) -> None:
    facts = facts_of(file)
    failing = {check for check, (status, _) in EXPECTED[file].get("any", {}).items() if status == "fail"}
    for profile in (*PROFILES, load_profile("cpu")):
        failed = {check for check, status in said(facts, profile).items() if status == "fail"}
        assert failed - failing <= OF_THE_PROFILE, profile.name


@pytest.mark.parametrize("file", FILES)
def test_no_check_breaks_on_a_capture(file: str) -> None:
    facts = facts_of(file)
    for profile in (None, *PROFILES):
        assert not [finding for finding in examine(facts, profile) if "onecat has a fault" in finding.title]


@needs_fixtures
@pytest.mark.parametrize(
    "query", ["nvidia-smi/h200_driver580.txt", "nvidia-smi/h200_driver580.xml", "misc/h200_nvml.json"]
)
@pytest.mark.parametrize("with_host", [True, False])
def test_a_healthy_h200_has_nothing_wrong_and_what_was_not_captured_is_skipped(query: str, with_host: bool) -> None:
    files = [query, "misc/h200_vm_host.txt"] if with_host else [query]
    facts = facts_of(*files)
    findings = examine(facts, H200)
    assert {check: status for check, status in said(facts, H200).items() if status in ("fail", "warn")} == {}
    assert status_of(findings, "gpu.model") == {"pass"}
    assert status_of(findings, "driver.minimum") == {"pass"}
    assert status_of(findings, "gpu.row-remapping") == {"pass"}
    for absent in ("docker.daemon", "docker.toolkit", "selinux.mode", "gpu.xid", "serving.port", "clock.offset"):
        assert status_of(findings, absent) == {"skip"}, absent
    assert status_of(findings, "os.architecture") == ({"pass"} if with_host else {"skip"})


@needs_fixtures
def test_one_gpu_told_by_several_captures_is_one_gpu() -> None:
    facts = facts_of("nvidia-smi/h200_driver580.txt", "nvidia-smi/h200_driver580.xml", "misc/h200_vm_host.txt")
    assert facts.nvidia is not None
    assert [(gpu.index, gpu.name) for gpu in facts.nvidia.gpus] == [(0, "NVIDIA H200")]


@needs_fixtures
def test_a_kernel_log_adds_its_xid_to_a_host_that_is_else_healthy() -> None:
    """Its address is of another GPU, so nothing of what the H200 shows itself may change."""
    files = ["nvidia-smi/h200_driver580.xml", "misc/h200_vm_host.txt", "dmesg/gpud_dmesg-with-xid-119.log_xid"]
    assert said(facts_of(*files), H200) == {
        "os.virtualization": "info",
        "gpu.xid": "info",
        "gpu.gsp": "fail",
    }


@needs_fixtures
def test_the_bus_and_the_nvlinks_of_one_host_say_nothing_bad_of_each_other() -> None:
    assert (
        said(facts_of("topo/topo_nmvllm404_8xa100_nv12_PARTIAL.txt", "lspci/gpud_nvidia-smi.nvlink.status.a100")) == {}
    )
