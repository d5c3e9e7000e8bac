"""`onecat top` as a person types it, on recordings: no host is asked. Hosts: tests/testbed/test_top.py."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path

import pytest

from tests.unit.cli.in_process import run_onecat

RECORDED = Path(__file__).parents[2] / "fixtures" / "metrics" / "top-queue.jsonl"


def test_without_a_terminal_there_is_a_line_for_each_sample() -> None:
    done = run_onecat("top", "--replay", str(RECORDED), "--speed", "1000")
    lines = done.stdout.splitlines()
    assert (done.returncode, len(lines), done.stderr) == (0, 12, "")
    assert "\x1b" not in done.stdout and lines[-1].endswith("KV cache only 0.2 % used")


def test_json_is_a_line_for_each_sample_with_its_reading() -> None:
    done = run_onecat("top", "--replay", str(RECORDED), "--speed", "1000", "--json")
    documents = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(documents) == 12 and {each["schema"] for each in documents} == {"onecat.top/1"}
    assert documents[-1]["reading"]["bottleneck"] == "queue"
    assert documents[-1]["sample"]["gpus"][0]["utilization_percent"] == 98.0


def test_once_shows_the_end_of_a_recording_as_a_screen() -> None:
    done = run_onecat("top", "--replay", str(RECORDED), "--once")
    lines = done.stdout.splitlines()
    assert done.returncode == 0 and lines[0].startswith("onecat top: replay of top-queue.jsonl")
    assert all(len(line) <= 80 for line in lines) and any("try: raise --max-num-seqs" in line for line in lines)


def test_a_recording_is_played_at_its_pace() -> None:
    begun = time.monotonic()
    run_onecat("top", "--replay", str(RECORDED), "--speed", "20")
    assert 11 / 20 - 0.1 < time.monotonic() - begun < 5


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--replay", "/nonexistent/file"], "the recording cannot be read: No such file or directory"),
        (["--replay", "/etc/hostname"], "this is no recording"),
        (["--replay", str(RECORDED), "--record", "x"], "--replay shows a file and asks no host"),
        (["demo", "--replay", str(RECORDED)], "--replay shows a file and asks no host"),
        (["--speed", "2"], "--speed is of --replay"),
        (["--interval", "0"], "'--interval': 0"),
        (["--record", str(RECORDED)], "the file is there already"),
        (["--record", "/nonexistent/dir/file"], "the recording cannot be written"),
    ],
)
def test_wrong_input_is_answered_with_what_is_expected(arguments: list[str], words: str) -> None:
    done = run_onecat("top", *arguments)
    assert (done.returncode, done.stdout) == (2, "") and words in done.stderr
    assert "next:" in done.stderr or "expected:" in done.stderr or "where:" in done.stderr


@pytest.mark.parametrize("end", [b"q", b"\x03"], ids=["q", "Ctrl-C"])
def test_on_a_terminal_it_draws_ends_with_a_key_and_leaves_the_terminal_as_it_was(end: bytes) -> None:
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    before = termios.tcgetattr(slave)
    environment = {**os.environ, "TERM": "xterm-256color", "LC_ALL": "C.UTF-8"}
    for name in ("NO_COLOR", "COLUMNS", "LINES"):
        environment.pop(name, None)
    argv = [str(Path(sys.executable).with_name("onecat")), "top", "--replay", str(RECORDED), "--speed", "1000"]
    process = subprocess.Popen(
        argv, stdin=slave, stdout=slave, stderr=subprocess.PIPE, env=environment, preexec_fn=lambda: _own(slave)
    )
    try:
        drawn = _read_until(master, b"6 at most")
        assert b"\x1b[?1049h" in drawn  # a screen of its own
        assert b"queue: 6 requests waiting" in re.sub(rb"\x1b\[[0-9;]*m", b"", drawn)
        os.write(master, end)
        rest = _read_until(master, b"\x1b[?1049l")
        assert b"\x1b[?25h" in rest  # the cursor is shown again
        assert process.wait(10) == 0
        assert process.stderr is not None and process.stderr.read() == b""
        assert termios.tcgetattr(slave) == before
    finally:
        process.kill()
        process.wait()
        assert process.stderr is not None
        process.stderr.close()
        os.close(master)
        os.close(slave)


def _own(slave: int) -> None:
    os.setsid()
    fcntl.ioctl(slave, termios.TIOCSCTTY, 0)


def _read_until(master: int, words: bytes) -> bytes:
    found = b""
    deadline = time.monotonic() + 30
    while words not in found and time.monotonic() < deadline:
        if select.select([master], [], [], 0.5)[0]:
            found += os.read(master, 65536)
    assert words in found, found
    return found
