"""onecat doctor --watch: a real process, ended by Ctrl-C."""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ONECAT = str(Path(sys.executable).with_name("onecat"))
COMMAND = [ONECAT, "doctor", "--watch", "--interval", "0.1", "--only", "memory.total"]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A machine whose memory tests may change."""
    (tmp_path / "proc").mkdir()
    set_memory(tmp_path, 64)
    return tmp_path


def set_memory(root: Path, gibibytes: int) -> None:
    (root / "proc" / "meminfo").write_text(f"MemTotal: {gibibytes * 1024 * 1024} kB\nMemAvailable: 1024 kB\n")


def start(root: Path, *options: str, **streams: int) -> subprocess.Popen[str]:
    command = [*COMMAND, "--root", str(root), "--profile", "a100x2-80g", *options]
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, text=True, **streams)  # type: ignore[call-overload,no-any-return]


def test_programs_get_a_document_a_line_and_ctrl_c_ends_with_the_last_result(root: Path) -> None:
    process = start(root, "--json", stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    first = json.loads(process.stdout.readline())
    assert (first["hosts"][0]["findings"][0]["status"], first["changes"]) == ("pass", [])
    set_memory(root, 8)
    for line in process.stdout:
        if changed := json.loads(line)["changes"]:
            break
    assert [(each["kind"], each["check"]) for each in changed] == [("worse", "memory.total")]
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=20)
    assert (process.returncode, errors) == (1, "")


def test_without_a_terminal_changes_are_appended(root: Path) -> None:
    process = start(root, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    for line in process.stdout:
        if "watching" in line:
            break
    set_memory(root, 8)
    change = " ".join(process.stdout.readline().strip() for _ in range(2))
    assert change[8:] == " local worse: 8 GiB of memory, 64 GiB are needed [memory.total] (was pass)"
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=20)
    assert process.returncode == 1


def test_a_terminal_gets_a_view_that_is_drawn_anew(root: Path) -> None:
    ours, theirs = pty.openpty()
    process = start(root, stdout=theirs, stderr=theirs)
    os.close(theirs)
    seen = ""
    ends = time.monotonic() + 30
    while seen.count("nothing is wrong") < 2 and time.monotonic() < ends:
        if select.select([ours], [], [], 0.5)[0]:
            seen += os.read(ours, 4096).decode()
    assert "\x1b[2J" in seen and "Ctrl-C ends" in seen
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=20) == 0
    os.close(ours)
