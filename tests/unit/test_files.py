"""Files are written whole, with the mode that was asked for, or not at all."""

from __future__ import annotations

import os
import stat
import subprocess
from pathlib import Path

import pytest

from onecat.files import naming, read_json, scratch_directory, write_atomically, write_json


@pytest.mark.parametrize("mode", [0o400, 0o600, 0o644])
def test_a_file_has_the_mode_that_was_asked_for(tmp_path: Path, mode: int) -> None:
    for text in ("old", "new"):
        write_atomically(tmp_path / "file", text, mode)
        assert (tmp_path / "file").read_text() == text
        assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == mode
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_what_cannot_be_put_in_place_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    with pytest.raises(IsADirectoryError):
        write_atomically(tmp_path / "taken", "text")
    assert [path.name for path in tmp_path.iterdir()] == ["taken"]


def test_a_full_disk_says_which_file_did_not_fit(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No space left") as raised, naming(tmp_path / "file"):
        Path("/dev/full").write_bytes(b"x")
    assert raised.value.filename == str(tmp_path / "file")


def test_a_document_is_read_back_and_a_missing_one_is_none(tmp_path: Path) -> None:
    write_json(tmp_path / "a.json", {"größe": [1, None]})
    assert read_json(tmp_path / "a.json") == {"größe": [1, None]}
    assert read_json(tmp_path / "b.json") is None


def test_unfinished_files_go_with_their_run_and_those_of_killed_runs_with_the_next(tmp_path: Path) -> None:
    ended = subprocess.Popen(["true"])
    ended.wait()
    for process in (ended.pid, os.getpid()):
        (tmp_path / f".onecat-partial-{process}-x" / "deep").mkdir(parents=True)
    with scratch_directory(tmp_path) as scratch:
        (scratch / "file").write_text("half of it")
        assert scratch.parent == tmp_path and not (tmp_path / f".onecat-partial-{ended.pid}-x").exists()
    assert [path.name for path in tmp_path.iterdir()] == [f".onecat-partial-{os.getpid()}-x"], "it may be in use"


@pytest.mark.parametrize(
    "name", [".partial-1", ".onecat-partial-", ".onecat-partial-mine", "onecat-partial-999999999-x"]
)
def test_a_scratch_directory_removes_nothing_that_is_named_otherwise(tmp_path: Path, name: str) -> None:
    (tmp_path / name / "deep").mkdir(parents=True)
    with scratch_directory(tmp_path):
        pass
    assert (tmp_path / name / "deep").is_dir()
