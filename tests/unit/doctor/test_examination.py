"""How checks are found, chosen and run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from onecat.config import Profile
from onecat.doctor import Context, all_checks, examine, find_check, reaches, suitability, summary
from onecat.doctor.findings import Finding
from onecat.doctor.registry import Verdict, check
from onecat.doctor.units import version_key
from onecat.errors import OnecatError
from onecat.facts import Cpu, Docker, Facts, Filesystem, Gpu, Memory, Nvidia
from onecat.knowledge.hardware import architectures, cuda_families, engine_builds, gpu_models, nvml_errors
from tests.unit.doctor.examples import A100, CPU, HEALTHY, V100, WITHOUT_GPU, with_docker


def test_checks_have_areas_and_pages() -> None:
    for each in all_checks():
        area, _, name = each.id.partition(".")
        assert area and name
        assert each.looks_at and each.why and each.fix and each.source
        assert all(address.startswith("https://") for address in each.source)


def test_only_and_skip_take_ids_and_patterns() -> None:
    findings = examine(HEALTHY, V100, only=["gpu.ecc-*", "gpu.count"], skip=["gpu.ecc-mode"])
    assert {finding.check for finding in findings} == {"gpu.ecc-corrected", "gpu.ecc-errors", "gpu.count"}


def test_a_pattern_that_fits_nothing_is_an_error() -> None:
    with pytest.raises(OnecatError, match="no check fits 'gpus.count'"):
        examine(HEALTHY, V100, only=["gpus.count"])


def test_an_unknown_id_is_answered_with_the_nearest() -> None:
    with pytest.raises(OnecatError) as caught:
        find_check("pcie.linkwidth")
    assert "pcie.link-width" in str(caught.value.expected)


def test_a_broken_check_is_told_apart_and_hides_no_other() -> None:
    @check("broken.check", title="t", why="w", fix=("f",), source=("https://example.org",))
    def broken(context: Context) -> Iterator[Verdict]:
        """Nothing."""
        yield Verdict("fail", "half an answer")
        raise KeyError("gone")

    faulty = broken.onecat_check  # type: ignore[attr-defined]
    findings = examine(HEALTHY, V100, checks=[faulty, find_check("gpu.count")])
    assert [(finding.check, finding.status) for finding in findings] == [
        ("broken.check", "skip"),
        ("gpu.count", "pass"),
    ]
    assert findings[0].title == "Not checked: onecat has a fault in this check"
    assert findings[0].evidence == ("KeyError: 'gone'",)


def test_a_machine_without_gpu_and_docker_runs_the_cpu_profile_natively() -> None:
    facts = replace(WITHOUT_GPU, docker=with_docker(state="absent").docker)
    results = {each.profile: each for each in suitability(facts, [CPU, V100, A100])}
    assert results["cpu"].runtimes == ("native",)
    assert results["cpu"].missing == ()
    assert results["v100x2-pcie"].runtimes == ()
    assert {finding.check for finding in results["v100x2-pcie"].missing} == {"docker.daemon", "gpu.present"}


def test_a_v100_host_runs_its_profile_and_not_that_of_another_gpu() -> None:
    results = {each.profile: each for each in suitability(HEALTHY, [CPU, V100, A100])}
    assert results["v100x2-pcie"].runtimes == ("container",)
    assert results["cpu"].runtimes == ("native", "container")
    assert "gpu.compute-capability" in {finding.check for finding in results["a100x2-80g"].missing}


def test_without_the_facts_that_decide_no_profile_is_promised() -> None:
    results = {each.profile: each for each in suitability(Facts("gpu1"), [CPU, V100])}
    assert results["cpu"].runtimes == results["v100x2-pcie"].runtimes == ()
    assert results["cpu"].missing == results["v100x2-pcie"].missing == ()
    assert results["cpu"].unknown == ("os.architecture", "memory.total", "docker.daemon")
    assert set(results["v100x2-pcie"].unknown) > {"gpu.count", "driver.minimum"}


def test_the_summary_counts_every_status_in_order_of_severity() -> None:
    findings = [Finding("a.b", "warn", "t"), Finding("a.b", "pass", "t"), Finding("a.c", "warn", "t")]
    assert list(summary(findings).items()) == [("fail", 0), ("warn", 2), ("info", 0), ("pass", 1), ("skip", 0)]


@pytest.mark.parametrize(("status", "threshold", "reached"), [("warn", "fail", False), ("warn", "info", True)])
def test_a_threshold_is_reached_from_above(status: str, threshold: str, reached: bool) -> None:
    assert reaches(Finding("a.b", status, "t"), threshold) is reached  # type: ignore[arg-type]


VERSIONS = st.none() | st.sampled_from(["580.65.06", "550.54.14", "595.1", "580.65.06-0ubuntu1", "N/A"]) | st.text()
GPUS = st.lists(
    st.builds(
        Gpu,
        name=st.sampled_from(["Tesla V100-PCIE-32GB", "NVIDIA H200"]) | st.text(),
        compute_capability=st.none() | st.sampled_from(["7.0", "8.0", "9.0", "N/A"]) | st.text(),
    ),
    max_size=3,
)
GPU_HOSTS = st.builds(
    Facts,
    nvidia=st.builds(
        Nvidia,
        gpus=GPUS.map(tuple),
        driver_version=VERSIONS,
        library_version=VERSIONS,
        kernel_module_version=VERSIONS,
    ),
    cpu=st.from_type(Cpu),
    memory=st.from_type(Memory),
    docker=st.from_type(Docker),
    filesystems=st.lists(st.from_type(Filesystem), max_size=3).map(tuple),
)
"""Hosts that get beyond "No NVIDIA GPU": facts of any kind seldom have one."""


@settings(max_examples=100, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(st.from_type(Facts) | GPU_HOSTS, st.sampled_from([None, V100, CPU, A100]))
def test_no_facts_break_a_check(facts: Facts, profile: Profile | None) -> None:
    # The whole title: a GPU may be called "fault", and Hypothesis knows that word from this file.
    broken = [each for each in examine(facts, profile) if each.title == "Not checked: onecat has a fault in this check"]
    assert broken == []


@pytest.mark.parametrize(
    ("version", "key"), [("580.65.06", (580, 65, 6)), ("2.36-9+deb12", (2, 36)), ("R580", ()), ("", ()), ("²", ())]
)
def test_versions_compare_by_their_leading_numbers(version: str, key: tuple[int, ...]) -> None:
    assert version_key(version) == key


def test_knowledge_tables_hold_together() -> None:
    known = {capability for each in architectures() for capability in each.compute_capabilities}
    assert all(model.compute_capability in known for model in gpu_models())
    assert [family.family for family in cuda_families()] == [11, 12, 13]
    assert nvml_errors()[-1].text == ""
    rows = [*architectures(), *gpu_models(), *nvml_errors(), *engine_builds()]
    assert all(address.startswith("https://") for row in rows for address in row.source)


def test_what_a_native_engine_needs_is_what_its_lock_says() -> None:
    from onecat.images.lock import read_lock

    for build in engine_builds():
        lock = read_lock(build.engine, build.version)
        assert (lock.machine, lock.glibc) == (build.machine, build.glibc)
        needed = {(each.file, each.debian, each.redhat) for each in lock.libraries}
        assert needed == {(each.file, each.debian, each.redhat) for each in build.libraries}
