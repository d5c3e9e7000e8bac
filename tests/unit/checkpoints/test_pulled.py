"""A directory that a pull has not finished says so."""

from __future__ import annotations

from pathlib import Path

import pytest

from onecat.checkpoints.pulled import UnfinishedPull, unfinished_pull
from onecat.pull.places import state_directory
from onecat.pull.state import PullState, write_state


def test_the_record_of_a_pull_tells_whether_all_is_there(tmp_path: Path) -> None:
    assert unfinished_pull(tmp_path) is None
    state_directory(tmp_path).mkdir()
    write_state(tmp_path, PullState("https://h.example/m/", None, False, {}))
    assert unfinished_pull(tmp_path) == UnfinishedPull("https://h.example/m/")
    write_state(tmp_path, PullState("https://h.example/m/", None, True, {}))
    assert unfinished_pull(tmp_path) is None


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"schema": "other", "complete": false}'])
def test_other_files_of_that_name_say_nothing(tmp_path: Path, text: str) -> None:
    state_directory(tmp_path).mkdir()
    (state_directory(tmp_path) / "state.json").write_text(text)
    assert unfinished_pull(tmp_path) is None


def test_verifying_such_a_directory_fails_with_how_to_go_on(tmp_path: Path) -> None:
    from onecat.checkpoints import write_tiny_checkpoint
    from onecat.checkpoints.integrity import Request, verify
    from onecat.checkpoints.integrity.contents import read_contents
    from onecat.checkpoints.integrity.rules.pulls import pulled

    write_tiny_checkpoint(tmp_path / "m")
    state_directory(tmp_path / "m").mkdir()
    assert list(pulled(read_contents(tmp_path / "m"))) == []
    write_state(tmp_path / "m", PullState("org/name", None, False, {}))
    (fault,) = pulled(read_contents(tmp_path / "m"))
    assert (fault.code, fault.severity) == ("incomplete-download", "fail")
    assert "onecat model pull" in fault.fix
    (tmp_path / "m/model.safetensors").unlink()
    (tmp_path / "m/SHA256SUMS").write_text(f"{'0' * 64}  model.safetensors\n")
    failed = [each.code for each in verify(Request(tmp_path / "m")).faults if each.severity == "fail"]
    assert failed == ["incomplete-download"], "the weights are still to come"
    write_state(tmp_path / "m", PullState("org/name", None, True, {}))
    failed = [each.code for each in verify(Request(tmp_path / "m")).faults if each.severity == "fail"]
    assert set(failed) == {"no-weights", "missing-file"}
