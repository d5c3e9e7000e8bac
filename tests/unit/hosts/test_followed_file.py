"""A file that is written while it is read."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from onecat.hosts import followed_file
from onecat.hosts.followed_file import FollowedFile
from tests.processes import ended_after

WRITER = """
import os, sys
path, count = sys.argv[1], int(sys.argv[2])
file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
for number in range(count):
    os.write(file, b"%d " % number + b"x" * (number % 90) + b"\\n")
    if number == count // 2:
        os.rename(path, f"{path}.{number}")
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
"""


@contextlib.contextmanager
def following(path: Path, count: int) -> Iterator[subprocess.Popen[bytes]]:
    program = Path(followed_file.__file__).read_text()
    argv = [sys.executable, "-I", "-S", "-c", program, str(path), str(count)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process, ended_after(process, 20):
        yield process


def test_a_writer_that_never_pauses_is_told_once_and_whole(tmp_path: Path) -> None:
    path, count = tmp_path / "log", 40_000
    with subprocess.Popen([sys.executable, "-c", WRITER, str(path), str(count)]) as writer:
        while not path.exists() or path.stat().st_size < 1000:
            time.sleep(0.001)
        with following(path, 7) as process:
            assert process.stdout is not None
            numbers = []
            for line in process.stdout:
                numbers.append(int(line.split()[0]))
                if numbers[-1] == count - 1:
                    break
        assert writer.wait(20) == 0
    assert numbers == list(range(numbers[0], count))


def test_its_last_lines_and_then_new_ones(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("".join(f"{number} {'y' * 40_000}\n" for number in range(9)) + "begun")
    followed = FollowedFile(str(path))
    followed.seek_last(3)
    assert [line[:2] for line in followed.lines()] == [b"7 ", b"8 "], "the third is not whole yet"
    assert followed.rest() == [b"begun"]
    with path.open("a") as stream:
        stream.write(" and ended\nnext\n")
    assert followed.lines() == [b"begun and ended", b"next"]
    followed.close()


@pytest.mark.parametrize("grown", [0, 5, 500])
def test_one_that_is_cut_off_is_read_anew(tmp_path: Path, grown: int) -> None:
    path = tmp_path / "log"
    path.write_text("".join(f"old {number}\n" for number in range(20)))
    followed = FollowedFile(str(path))
    assert len(followed.lines()) == 20
    os.truncate(path, 0)
    with path.open("a") as stream:
        stream.writelines(f"new {number}\n" for number in range(grown))
    assert followed.lines() == [b"new %d" % number for number in range(grown)]
    followed.close()


def test_what_is_written_to_the_old_file_after_it_lost_its_name_is_told(tmp_path: Path) -> None:
    path = tmp_path / "log"
    followed = FollowedFile(str(path))
    assert followed.lines() == [] and followed.identity is None
    with path.open("a", buffering=1) as worker:
        worker.write("a\n")
        assert followed.lines() == [b"a"]
        path.rename(tmp_path / "log.1")
        path.write_text("c\n")
        worker.write("b\n")
        assert followed.lines() == [b"b", b"c"]
        worker.write("d\n")
        assert followed.lines() == [b"d"]
    followed.close()
