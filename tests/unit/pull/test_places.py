"""Where files may be put below a target directory that somebody else could have prepared."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from onecat.errors import ExitCode, OnecatError
from onecat.own_files import check_writable, make_own_directory, open_own
from onecat.pull.places import check_places, ignores_case, state_directory


def test_a_folder_that_is_a_link_out_of_the_directory_is_refused(tmp_path: Path) -> None:
    target, outside = tmp_path / "model", tmp_path / "outside"
    target.mkdir()
    outside.mkdir()
    (target / "sub").symlink_to(outside)
    (target / "own").mkdir()
    (target / "alias").symlink_to(target / "own")
    check_places(target, ["a", "own/b", "alias/c", "new/d"])
    for path in ("sub/b", "sub/deeper/b"):
        with pytest.raises(OnecatError, match="a link that leads out"):
            check_places(target, ["a", path])


def test_what_stands_where_another_kind_has_to_be_is_told_before_anything_is_fetched(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "folder").mkdir()
    with pytest.raises(OnecatError, match="is a file, and the source has a directory of that name"):
        check_places(tmp_path, ["file/a"])
    with pytest.raises(OnecatError, match="is a directory, and the source has a file of that name"):
        check_places(tmp_path, ["folder"])


def test_records_are_never_written_through_a_link(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    folder = make_own_directory(state_directory(tmp_path))
    (folder / "lock").symlink_to(victim)
    with pytest.raises(OnecatError, match="is a link; onecat would write where it leads"):
        open_own(folder / "lock", os.O_RDWR | os.O_TRUNC)
    assert victim.read_text() == "precious"
    other = tmp_path / "other"
    other.mkdir()
    (other / ".onecat-pull").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OnecatError, match="is a link"):
        make_own_directory(state_directory(other))
    assert not (tmp_path / "elsewhere").exists()


def test_a_file_system_that_ignores_case_is_told_by_the_own_directory(tmp_path: Path) -> None:
    folder = make_own_directory(state_directory(tmp_path))
    assert not ignores_case(tmp_path)
    (tmp_path / ".ONECAT-PULL").symlink_to(folder)  # what such a file system answers
    assert ignores_case(tmp_path)


def test_a_directory_that_may_not_be_written_to_is_refused_as_a_wrong_argument(tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.mkdir()
    check_writable(own / "new" / "model")
    own.chmod(0o555)
    user = os.geteuid()
    if user == 0:  # whom no mode stops
        for folder in (tmp_path, *tmp_path.parents):
            if folder.stat().st_uid == 0 and folder.stat().st_mode & 0o001 == 0 and folder != Path("/"):
                folder.chmod(folder.stat().st_mode | 0o001)
        os.seteuid(65534)
    try:
        for directory in (own, own / "new" / "model"):
            with pytest.raises(OnecatError, match="you may not write to") as caught:
                check_writable(directory)
            assert caught.value.code == ExitCode.USAGE and str(own) in caught.value.found
    finally:
        os.seteuid(user)
        own.chmod(0o755)
