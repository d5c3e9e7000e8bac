"""This machine as a host: programs with input, time limits, and something to say before."""

from __future__ import annotations

import time

import pytest

from onecat.errors import ExitCode, OnecatError
from onecat.hosts import LocalTransport
from onecat.hosts.transport import EndOfInput

ASKS = 'printf "password:" >&2; IFS= read -r word; echo "started with $word"; exec cat'


class Answer:
    """Answers a program's question once."""

    def __init__(self, word: bytes | None) -> None:
        self.word = word
        self.has_answered = False

    def reply(self, stdout: bytes, stderr: bytes) -> bytes | None:
        if b"started" in stdout:
            return None
        if self.has_answered or b"password:" not in stderr:
            return b""
        if self.word is None:
            raise EndOfInput
        self.has_answered = True
        return self.word + b"\n"


def test_the_input_follows_when_the_question_is_answered() -> None:
    done = LocalTransport().run(["sh", "-c", ASKS], stdin=b"program" * 50_000, timeout=10, preface=Answer(b"geheim"))
    assert done.stdout == b"started with geheim\n" + b"program" * 50_000
    assert (done.exit_code, done.stderr) == (0, b"password:")


def test_without_an_answer_the_input_ends_and_nothing_of_it_is_sent() -> None:
    done = LocalTransport().run(["sh", "-c", ASKS], stdin=b"program", timeout=10, preface=Answer(None))
    assert done.stdout == b"started with \n"


def test_a_program_that_never_asks_is_given_up_in_time() -> None:
    started = time.monotonic()
    with pytest.raises(OnecatError, match="did not end within 0.2 s") as caught:
        LocalTransport().run(["sleep", "60"], timeout=0.2, preface=Answer(b"geheim"))
    assert time.monotonic() - started < 5
    assert caught.value.code is ExitCode.UNREACHABLE
