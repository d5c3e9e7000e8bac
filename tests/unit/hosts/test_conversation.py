"""Talking with a program on this machine."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest

from onecat.errors import ExitCode, OnecatError
from onecat.hosts import LocalMachine

ECHO = "import sys\nfor line in sys.stdin:\n    print('got', line.strip(), flush=True)\nsys.exit(7)"


@pytest.fixture
def machine(tmp_path: Path) -> LocalMachine:
    return LocalMachine(tmp_path)


def test_a_program_answers_line_by_line_until_its_input_ends(machine: LocalMachine) -> None:
    with machine.start([sys.executable, "-c", ECHO]) as talk:
        talk.send(b"one\ntwo\n")
        assert talk.line(20) == b"got one"
        assert talk.exit_code is None
        talk.send(b"three\n")
        assert (talk.line(20), talk.line(20)) == (b"got two", b"got three")
        talk.close_input()
        assert talk.line(20) is None
    assert talk.exit_code == 7


def test_what_has_no_end_of_line_at_the_end_is_a_line(machine: LocalMachine) -> None:
    with machine.start(["printf", "a\nb"]) as talk:
        assert (talk.line(20), talk.line(20), talk.line(20)) == (b"a", b"b", None)


def test_a_silent_program_is_told_from_one_that_ended(machine: LocalMachine) -> None:
    with machine.start(["sleep", "60"]) as talk, pytest.raises(TimeoutError, match=r"within 0\.1 s"):
        talk.line(0.1)
    assert talk.exit_code == -9


def test_standard_error_never_holds_a_program_up_and_its_end_is_kept(machine: LocalMachine) -> None:
    program = "import sys; sys.stderr.write('x' * 3000000 + 'the end'); print('done')"
    with machine.start([sys.executable, "-c", program]) as talk:
        assert talk.line(20) == b"done"
    assert talk.errors.endswith(b"the end") and len(talk.errors) <= 1 << 16


def test_what_a_program_started_does_not_outlive_the_conversation(machine: LocalMachine) -> None:
    with machine.start(["sh", "-c", "sleep 300 & echo $!; read line"]) as talk:
        child = int(talk.line(20) or b"0")
        os.kill(child, 0)
    deadline = time.monotonic() + 5
    while Path(f"/proc/{child}").exists() and time.monotonic() < deadline:
        if Path(f"/proc/{child}/stat").read_text().rpartition(") ")[2].startswith("Z"):
            break
        time.sleep(0.02)
    else:
        assert not Path(f"/proc/{child}").exists()


def test_programs_that_are_not_there_or_have_ended_are_errors_of_the_host(machine: LocalMachine) -> None:
    with pytest.raises(OnecatError) as caught:
        machine.start(["onecat-no-such-program"])
    assert caught.value.code is ExitCode.UNREACHABLE
    with machine.start(["sh", "-c", "echo why >&2"]) as talk:
        assert talk.line(20) is None
        with pytest.raises(OnecatError, match="has ended"):
            talk.send(b"x" * (1 << 20))


def test_one_that_another_thread_has_closed_has_ended(machine: LocalMachine) -> None:
    talk = machine.start(["sleep", "60"])
    talk.close()
    with pytest.raises(OnecatError, match="sleep has ended"):
        talk.receive(1)
    with pytest.raises(OnecatError, match="sleep has ended"):
        talk.line(1)
