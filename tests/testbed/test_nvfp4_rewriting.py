"""Checkpoints that are written tensor by tensor: killed, on a disk that fills up, and the memory that it takes."""

from __future__ import annotations

import random
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from onecat.checkpoints.rewritten import unfinished_rewrite
from onecat.errors import ExitCode, OnecatError
from onecat.nvfp4.rewriting import rewrite
from onecat.nvfp4.rewriting.memory import SLACK
from onecat.space import Room
from tests.unit.nvfp4.rewriting.small_work import everything, plan, write_source

_PROGRAM = """
import re, sys
from pathlib import Path
from onecat.nvfp4.rewriting import rewrite
from onecat.nvfp4.rewriting.memory import SLACK
from tests.unit.nvfp4.rewriting.small_work import plan
source, target, seconds = sys.argv[1:]
work, read = plan(Path(source), Path(target), seconds=float(seconds))
def peak():
    return int(re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1]) * 1024
before = peak()
print("began", flush=True)
rewrite(work, read)
print(before, peak())
"""
REPOSITORY = Path(__file__).parents[2]


def started(source: Path, target: Path, seconds: float) -> subprocess.Popen[str]:
    """A process that has begun to write; each step takes it some seconds longer."""
    words = [sys.executable, "-c", _PROGRAM, str(source), str(target), str(seconds)]
    process = subprocess.Popen(words, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline() == "began\n"
    return process


def test_killed_at_ten_random_moments_it_ends_with_the_same_bytes(tmp_path: Path) -> None:
    source, target = write_source(tmp_path / "source", rows=20_000), tmp_path / "target"
    rewrite(*plan(source, tmp_path / "whole"))
    expected = everything(tmp_path / "whole")
    moments, survived, reused = random.Random(11), 0, 0
    for _ in range(10):
        with started(source, target, 0.05) as process:
            try:
                survived += process.wait(moments.uniform(0.0, 0.35)) == 0
            except subprocess.TimeoutExpired:
                process.kill()
                assert process.wait() == -signal.SIGKILL
        if not (target / "config.json").exists():
            there = {each: content for each, content in everything(target).items() if not each.startswith(".onecat")}
            assert there.items() <= expected.items()
            if moments.random() < 0.5:
                continue  # the next one goes on with it, and is killed in turn
            found = rewrite(*plan(source, target))
            reused += found.bytes_reused
        elif unfinished_rewrite(target) is not None:
            rewrite(*plan(source, target))
        # A kill between the last file and the end leaves a folder that no longer says that something is missing.
        assert unfinished_rewrite(target) is None
        made = {each: content for each, content in everything(target).items() if not each.startswith(".onecat-rewrite")}
        assert made == expected
        shutil.rmtree(target)
    assert survived < 8 and reused > 0


def test_a_disk_that_fills_up_ends_in_a_clear_error_and_with_room_it_goes_on(
    tmp_path: Path, small_disk: Callable[[int], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = small_disk(64)
    source, target = write_source(tmp_path / "source", rows=150_000), disk / "target"
    rewrite(*plan(source, tmp_path / "whole"))
    expected = everything(tmp_path / "whole")
    size = sum(map(len, expected.values()))
    subprocess.run(["mount", "-o", f"remount,size={size * 3 // 4}", str(disk)], check=True)
    with pytest.raises(OnecatError) as refused:
        rewrite(*plan(source, target))
    assert refused.value.found.startswith("not enough room") and refused.value.code is ExitCode.NO
    assert not target.exists()
    # Somebody else fills the disk after it was looked at.
    monkeypatch.setattr("onecat.nvfp4.rewriting.execution.room", lambda directory: Room(2**40, None))
    for _ in range(2):
        with pytest.raises(OnecatError) as full:
            rewrite(*plan(source, target))
        assert full.value.found.startswith("the disk is full") and full.value.code is ExitCode.NEEDS_PERSON
        assert "kept" in full.value.details[0] and ".onecat-rewrite" in str(full.value.where)
        assert not (target / "config.json").exists() and unfinished_rewrite(target) is not None
    monkeypatch.undo()
    subprocess.run(["mount", "-o", f"remount,size={size + 3 * 2**20}", str(disk)], check=True)
    found = rewrite(*plan(source, target))
    assert found.bytes_reused > found.bytes_read // 2
    assert everything(target) == expected


def test_it_holds_less_than_three_times_the_largest_tensor(tmp_path: Path) -> None:
    rows = 400_000  # 26 MB a tensor, of which there are six
    source, target = write_source(tmp_path / "source", rows=rows), tmp_path / "target"
    with started(source, target, 0.02) as process:
        told, _ = process.communicate(timeout=120)
    before, peak = map(int, told.split())
    assert rows * 16 * 4 < peak - before < 3 * rows * 16 * 4 + SLACK
    assert peak < 3 * rows * 16 * 4 + 300 * 10**6
