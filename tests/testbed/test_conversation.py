"""Talking with a program on a host over a real sshd."""

from __future__ import annotations

import contextlib
import time

import pytest

from onecat.errors import OnecatError
from tests.testbed.ssh_host import SshHost
from tests.testbed.test_ssh_machine import connect

pytestmark = pytest.mark.testbed


def test_a_program_there_answers_until_its_input_ends_and_its_errors_are_kept(ssh_host: SshHost) -> None:
    script = "while read line; do echo got $line; echo about $line >&2; done; exit 7"
    with contextlib.closing(connect(ssh_host)) as machine, machine.start(["sh", "-c", script]) as talk:
        talk.send(b"one\n")
        assert talk.line(20) == b"got one"
        with pytest.raises(TimeoutError):
            talk.line(0.2)
        talk.send(b"two\n")
        assert talk.line(20) == b"got two"
        assert talk.exit_code is None
        talk.close_input()
        assert talk.line(20) is None
        deadline = time.monotonic() + 10
        while talk.exit_code is None and time.monotonic() < deadline:
            time.sleep(0.02)
        assert talk.exit_code == 7
        assert talk.errors == b"about one\nabout two\n"


def test_a_lost_connection_is_no_end_of_output(ssh_host: SshHost) -> None:
    with contextlib.closing(connect(ssh_host)) as machine, machine.start(["sh", "-c", "echo hi; cat"]) as talk:
        assert talk.line(20) == b"hi"
        machine.transport.connected().sock.close()  # type: ignore[attr-defined]
        with pytest.raises(OnecatError, match="lost"):
            talk.line(20)
