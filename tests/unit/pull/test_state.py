"""The record of a directory: what is in its place, and whether that is all."""

from __future__ import annotations

from pathlib import Path

import pytest

from onecat.errors import OnecatError
from onecat.pull.places import state_directory
from onecat.pull.present import look
from onecat.pull.records import RemoteFile
from onecat.pull.state import PullState, Recorded, note_finished, only_pull, read_state, write_state

ROW = Recorded(3, 17, "ab" * 32, "sha256", '"v1"')


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    state_directory(tmp_path).mkdir()
    return tmp_path


def test_the_record_comes_back_with_what_was_finished_since(directory: Path) -> None:
    state = PullState("there", "c0ffee", False, {"a": ROW})
    write_state(directory, state)
    note_finished(directory, "b", ROW)
    assert read_state(directory) == PullState("there", "c0ffee", False, {"a": ROW, "b": ROW})
    with (state_directory(directory) / "finished.jsonl").open("a") as stream:
        stream.write('{"path": "c", "siz')
    assert read_state(directory) == PullState("there", "c0ffee", False, {"a": ROW, "b": ROW})
    write_state(directory, PullState("there", None, True, {"a": ROW}))
    assert read_state(directory) == PullState("there", None, True, {"a": ROW})


@pytest.mark.parametrize("text", ["", "{", "[]", '{"schema": "other"}', '{"schema": "onecat.pull-state/1"}'])
def test_a_damaged_record_is_none(directory: Path, text: str) -> None:
    (state_directory(directory) / "state.json").write_text(text)
    assert read_state(directory) is None


def test_a_second_pull_is_refused_as_long_as_the_first_one_runs(directory: Path) -> None:
    with only_pull(directory, print), pytest.raises(OnecatError, match="another onecat"), only_pull(directory, print):
        pass
    with only_pull(directory, print):
        pass


def test_files_without_a_checksum_are_whole_when_the_record_knows_their_version(directory: Path) -> None:
    path = directory / "a"
    path.write_bytes(b"abc")
    row = Recorded(3, path.stat().st_mtime_ns, "ab" * 32, None, '"v1"')
    state = PullState("there", None, True, {"a": row})
    same, other = (RemoteFile("a", "https://h.example/a", 3, validator=version) for version in ('"v1"', '"v2"'))
    assert look(directory, [same], state, True, print).files == {"a": row}
    seen = look(directory, [other], state, True, print)
    assert (seen.missing, seen.foreign) == ((other,), ())
    path.write_bytes(b"xyz")
    seen = look(directory, [same], PullState("there", None, True, {}), True, print)
    assert (seen.missing, seen.foreign) == ((same,), ("a",))


def test_a_file_of_somebody_that_is_the_sources_own_is_whole(directory: Path) -> None:
    (directory / "a").write_bytes(b"abc")
    sha256 = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    blob = "f2ba8f84ab5c1bce84a7b441cb1959cfc7093b7f"
    for file in (RemoteFile("a", "x", 3, sha256), RemoteFile("a", "x", 3, None, blob)):
        assert look(directory, [file], None, True, print).files["a"].sha256 == sha256
    assert look(directory, [RemoteFile("a", "x", 3, "0" * 64)], None, True, print).foreign == ("a",)
