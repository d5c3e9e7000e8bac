"""Whatever the shell made of the standard streams, of the locale and of ONECAT_HOME: one message, no traceback."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from onecat.cli import console
from onecat.errors import OnecatError

ONECAT = str(Path(sys.executable).with_name("onecat"))


def shell(script: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[bytes]:
    """Runs a line of sh with `onecat` as $0 and the arguments as $1 and on."""
    return subprocess.run(
        ["sh", "-c", script, ONECAT, *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        env={**os.environ, **environment},
    )


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="Linux has /dev/full")
@pytest.mark.parametrize("arguments", ["profile show cpu --json", "--version"])
def test_output_to_a_full_disk_is_told_once(arguments: str) -> None:
    done = shell(f'"$0" {arguments} > /dev/full')
    assert done.returncode == 5
    assert done.stderr.startswith(b"onecat: No space left on device\n")
    assert b"Traceback" not in done.stderr and b"Exception ignored" not in done.stderr


@pytest.mark.parametrize("redirection", ["2>/dev/full", ">/dev/full 2>&1", "<&- >&- 2>&-"])
def test_when_nobody_can_be_told_the_exit_code_still_tells(redirection: str) -> None:
    assert shell(f'"$0" upp --json {redirection}').returncode == 2


def test_an_error_never_moves_to_standard_output() -> None:
    assert shell('"$0" upp 2>&-').stdout == b""


def test_a_result_for_a_closed_output_is_no_fault() -> None:
    done = shell('"$0" --version >&-')
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize("encoding", ["ascii", "utf-8"])
def test_any_name_can_be_told_in_any_encoding_and_json_stays_json(encoding: str, tmp_path: Path) -> None:
    model = tmp_path / "mödel 模型 \x1b"
    done = shell('"$0" plan --model "$1" --profile cpu --json', os.fsdecode(model), PYTHONIOENCODING=encoding)
    assert done.returncode == 2
    assert json.loads(done.stdout.decode(encoding))["where"] == str(model)
    assert b"does not exist" in done.stderr and b"Traceback" not in done.stderr


def test_a_name_that_is_no_utf_8_is_refused_before_anything_is_written_with_it() -> None:
    done = shell('"$0" plan --model "$1" --profile cpu --json', "m\udcff")
    assert done.returncode == 2
    assert json.loads(done.stdout)["expected"] == "text that UTF-8 can hold: rename the file"
    assert b"m\\udcff" in done.stderr


def test_json_holds_no_character_that_steers_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    console.print_json({"title": "a\x9b31m\x1b\x7f"})
    shown = capsys.readouterr().out
    assert not any(character in shown for character in "\x9b\x1b\x7f")
    assert json.loads(shown) == {"title": "a\x9b31m\x1b\x7f"}


def test_control_characters_of_others_do_not_reach_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    console.print_error(OnecatError("a\x1b[31m\x07b", where="c\nd", details=["tab\tstays", "é猫"]), as_json=False)
    told = capsys.readouterr().err
    assert told == ("onecat: a\\x1b[31m\\x07b\n  where:    c\\nd\n  | tab\tstays\n  | é猫\n")


@pytest.mark.parametrize(
    ("home", "told"),
    [
        ("~no-such-user/x", "ONECAT_HOME begins with a home directory that does not exist"),
        ("x" * 300, "File name too long"),
    ],
)
def test_an_impossible_home_is_an_error_of_configuration(home: str, told: str) -> None:
    done = shell('"$0" status', ONECAT_HOME=home)
    assert done.returncode == 2
    assert told in done.stderr.decode()
    assert b"fault" not in done.stderr


@pytest.mark.parametrize(("command", "seconds"), [("doctor", "inf"), ("facts", "1e400"), ("facts", "nan")])
def test_a_time_limit_is_a_time(command: str, seconds: str) -> None:
    done = shell(f'"$0" {command} --timeout {seconds}')
    assert done.returncode == 2
    assert done.stderr.startswith(b"onecat: Invalid value for '--timeout': ")
    assert b"expected: " in done.stderr


def test_a_wrong_value_is_told_with_what_was_expected() -> None:
    done = shell('"$0" plan --tensor-parallel two --json')
    document = json.loads(done.stdout)
    assert document["found"] == "Invalid value for '--tensor-parallel': two"
    assert document["expected"] == "a valid integer"


def test_a_group_without_a_command_shows_its_help_as_onecat_itself_does() -> None:
    done = shell('"$0" profile')
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"validate" in done.stdout


@pytest.mark.parametrize("columns", ["80", "40"])
def test_the_list_of_commands_is_never_cut_off(columns: str) -> None:
    done = shell('"$0" --help', COLUMNS=columns)
    assert b"..." not in done.stdout.partition(b"Commands:")[2]
    assert max(map(len, done.stdout.decode().splitlines())) <= 80


def test_a_name_of_any_length_leaves_the_rest_of_the_message_in_sight(capsys: pytest.CaptureFixture[str]) -> None:
    console.print_error(OnecatError("x" * 5000, next_steps=["onecat explain"]), as_json=False)
    first, last = capsys.readouterr().err.splitlines()
    assert len(first) < 1100 and first.endswith("x... (5008 characters)")
    assert last == "  next:     onecat explain"


@pytest.mark.parametrize(("command", "root"), [("doctor", "/dev/null"), ("facts", "/no/such/directory")])
def test_a_root_that_is_no_directory_is_no_empty_machine(command: str, root: str) -> None:
    done = shell(f'"$0" {command} --root {root} --json')
    assert done.returncode == 2
    assert json.loads(done.stdout)["expected"] == "a directory"
