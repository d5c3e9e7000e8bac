"""The data that ships with onecat is found in a checkout; a broken installation says what to do."""

from __future__ import annotations

import pytest

from onecat.resources import parse_table, resource_directory


@pytest.mark.parametrize("name", ["templates", "profiles", "patches", "models"])
def test_shipped_directories_are_found_and_hold_files(name: str) -> None:
    assert any(path.is_file() for path in resource_directory(name).rglob("*"))


def test_a_directory_that_is_missing_means_a_broken_installation() -> None:
    with pytest.raises(FileNotFoundError, match="no-such-data/ is missing .* reinstall onecat"):
        resource_directory("no-such-data")


def test_a_table_is_plain_data_and_makes_no_objects() -> None:
    assert parse_table("- {name: A, versions: ['1.10', 2]}\n") == [{"name": "A", "versions": ["1.10", 2]}]
    with pytest.raises(Exception, match="python/object"):
        parse_table("!!python/object/apply:os.getcwd []")
