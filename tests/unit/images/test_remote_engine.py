"""An engine on another host: what its docker command answers, and what is told when it cannot."""

from __future__ import annotations

import pytest

from onecat.errors import ExitCode, OnecatError
from onecat.hosts import Completed
from onecat.hosts.docker_dial import DIAL, check_answer
from onecat.images import engine_on
from onecat.images.remote_engine import parse_df

DF = b"""Filesystem     1024-blocks     Used Available Capacity Mounted on
/dev/nvme0n1p2   959786032 85123456 825834123      10% /var/lib/docker with a blank
"""


def answered(code: int, stdout: bytes = b"", stderr: bytes = b"") -> Completed:
    return Completed(DIAL, code, stdout, stderr, 0.1)


def test_an_engine_that_answers_is_taken() -> None:
    check_answer(answered(0, b"HTTP/1.1 200 OK\r\nApi-Version: 1.41\r\n\r\nOK"), "gpu1")


@pytest.mark.parametrize(
    ("completed", "found"),
    [
        (answered(127, stderr=b"sh: 1: docker: not found\n"), "there is no docker command on the host"),
        (
            answered(1, stderr=b"Got permission denied while trying to connect to the Docker daemon socket\n"),
            "this user may not talk to the Docker engine on the host",
        ),
        (answered(1, stderr=b"Cannot connect to the Docker daemon\n"), "the Docker engine on the host does not answer"),
        (answered(0), "the Docker engine on the host does not answer"),
    ],
)
def test_what_is_missing_there_is_told(completed: Completed, found: str) -> None:
    with pytest.raises(OnecatError, match=found) as raised:
        check_answer(completed, "gpu1")
    assert raised.value.code is ExitCode.UNREACHABLE and raised.value.where == "gpu1" and raised.value.next_steps


def test_free_space_is_read_from_df() -> None:
    assert parse_df(DF) == 825834123 * 1024
    for output in (b"", b"df: no such file\n", b"Filesystem\n- - -\n", DF + b"another line\n"):
        assert parse_df(output) is None


def test_this_machine_by_name_is_its_own_engine() -> None:
    with engine_on("local") as engine:
        assert engine.docker_host is None and engine.free_space is None
