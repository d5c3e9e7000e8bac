"""Where commands may write what a person asked for."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from onecat.cli.outputs import Output
from onecat.errors import ExitCode, OnecatError


def refusal(output: Output) -> OnecatError:
    with pytest.raises(OnecatError) as refused:
        output.check()
    assert refused.value.code == ExitCode.USAGE
    return refused.value


@pytest.mark.parametrize("force", [False, True])
def test_what_is_no_plain_file_is_never_replaced(force: bool, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    for name in ("pipe", "link"):
        assert "no plain file" in refusal(Output(str(tmp_path / name), "onecat report --output", force)).found
    assert "no plain file" in refusal(Output("/dev/null", "onecat report --output", force)).found


def test_a_name_that_cannot_be_a_file_is_refused_before_any_work(tmp_path: Path) -> None:
    assert "names no file" in refusal(Output("", "onecat report --output")).found
    assert "names no file" in refusal(Output(str(tmp_path), "onecat report --output")).found
    missing = refusal(Output(str(tmp_path / "missing" / "file"), "onecat report --output"))
    assert missing.found == f"{tmp_path}/missing is no directory"
    assert missing.next_steps == ("name another one: onecat report --output FILE",)


def test_a_place_that_takes_no_file_is_named() -> None:
    with pytest.raises(OnecatError, match="cannot be written") as refused:
        Output("/proc/onecat-report.md", "onecat report --output").write("text", 0o600)
    assert refused.value.where == "/proc/onecat-report.md"


def test_an_old_file_is_back_when_the_new_one_cannot_be_written(tmp_path: Path) -> None:
    file = tmp_path / ("r" * 251)  # the name of a temporary file beside it would be too long
    file.write_text("old")
    output = Output(str(file), "onecat report --output", force=True)
    with pytest.raises(OnecatError, match="cannot be written"):
        output.write("new", 0o600)
    assert [(each.name, each.read_text()) for each in tmp_path.iterdir()] == [(file.name, "old")]


def test_an_old_file_is_kept_beside_the_new_one(tmp_path: Path) -> None:
    file = tmp_path / "report.md"
    file.write_text("old")
    kept = Output(str(file), "onecat report --output", force=True).write("new", 0o600)
    assert kept == tmp_path / "report.md.old"
    assert (kept.read_text(), file.read_text(), file.stat().st_mode & 0o777) == ("old", "new", 0o600)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["report.md", "report.md.old"]
