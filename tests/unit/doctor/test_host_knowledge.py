"""The tables about systems, variables and Ascend, and how distributions install."""

from __future__ import annotations

import re

import pytest

from onecat.doctor.packages import family, install
from onecat.doctor.units import version_key
from onecat.facts import OperatingSystem
from onecat.knowledge.ascend import ascend_chip, ascend_table
from onecat.knowledge.systems import end_of_life, ends_of_life
from onecat.knowledge.variables import removed_variables


def test_every_row_has_a_source() -> None:
    rows = [*ends_of_life(), *removed_variables(), ascend_table()]
    assert all(row.source and all(address.startswith("https://") for address in row.source) for row in rows)


def test_ends_of_life_are_months_and_stand_once() -> None:
    assert all(re.fullmatch(r"20\d\d-(0[1-9]|1[0-2])", row.month) for row in ends_of_life())
    assert len({(row.id, row.version) for row in ends_of_life()}) == len(ends_of_life())
    assert end_of_life("ubuntu", "24.04") is None


def test_removed_variables_name_the_release() -> None:
    assert all(version_key(row.since) for row in removed_variables())


def test_releases_of_vllm_ascend_stand_newest_first_and_once() -> None:
    versions = [version_key(release.engine) for release in ascend_table().releases]
    assert versions == sorted(set(versions), reverse=True)


@pytest.mark.parametrize(
    ("name", "series"),
    [
        ("910B4", "Atlas A2"),
        ("Ascend910B3", "Atlas A2"),
        ("910B2C", "Atlas A2"),
        ("Ascend910_9392", "Atlas A3"),
        ("310P3", "Atlas 300I Duo"),
        ("910ProB", "Atlas of the first generation"),
        ("910A", "Atlas of the first generation"),
    ],
)
def test_an_npu_is_known_by_its_name(name: str, series: str) -> None:
    chip = ascend_chip(name)
    assert chip is not None and chip.series == series


@pytest.mark.parametrize("name", ["Ascend910", "910", "310", "", None, "NVIDIA H200"])
def test_a_name_that_several_generations_share_is_not_guessed(name: str | None) -> None:
    assert ascend_chip(name) is None


@pytest.mark.parametrize(
    ("id", "id_like", "expected"),
    [
        ("ubuntu", ("debian",), "debian"),
        ("rocky", ("rhel", "centos", "fedora"), "redhat"),
        ("openEuler", (), "redhat"),
        ("kylin", (), "redhat"),
        ("kylin", ("debian",), "debian"),
        ("opensuse-leap", ("suse", "opensuse"), "suse"),
        ("arch", (), None),
    ],
)
def test_a_distribution_belongs_to_a_family(id: str, id_like: tuple[str, ...], expected: str | None) -> None:
    assert family(OperatingSystem(id=id, id_like=id_like)) == expected


def test_an_unknown_distribution_gets_the_commands_of_all() -> None:
    assert install(None, debian="libnuma1", redhat="numactl-libs") == (
        "Debian, Ubuntu: sudo apt-get install libnuma1",
        "RHEL, Fedora, openEuler: sudo dnf install numactl-libs",
    )
