"""`onecat model verify`: what it prints, writes and answers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from onecat.checkpoints import write_tiny_checkpoint
from onecat.checkpoints.integrity import Progress
from onecat.render.verifications import progress_line
from tests.unit.cli.in_process import run_onecat


def run(*arguments: str, home: Path) -> subprocess.CompletedProcess[str]:
    return run_onecat("model", "verify", *arguments, environment={"ONECAT_HOME": str(home)})


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    return write_tiny_checkpoint(tmp_path / "tiny")


def test_a_manifest_that_is_written_is_one_that_sha256sum_and_verify_accept(tiny: Path, tmp_path: Path) -> None:
    written = run(str(tiny), "--write-manifest", str(tiny / "SHA256SUMS"), home=tmp_path)
    assert written.returncode == 0, written.stderr
    subprocess.run(["sha256sum", "--check", "--quiet", "SHA256SUMS"], cwd=tiny, check=True)
    again = run(str(tiny), "--hash", "--json", home=tmp_path)
    document = json.loads(again.stdout)
    assert (again.returncode, document["schema"], document["problems"]) == (0, "onecat.model-verify/1", [])
    assert len(document["sha256"]) == 5
    refused = run(str(tiny), "--write-manifest", str(tiny / "SHA256SUMS"), home=tmp_path)
    assert (refused.returncode, "exists" in refused.stderr) == (2, True)


def test_a_broken_checkpoint_is_told_in_80_columns_with_exit_code_1_and_gets_no_manifest(
    tiny: Path, tmp_path: Path
) -> None:
    os.truncate(tiny / "model.safetensors", 1_000_000)
    (tiny / "SHA256SUMS").write_text("0a" * 33 + "  model.safetensors\n")
    done = run(str(tiny), "--write-manifest", str(tmp_path / "sums"), home=tmp_path)
    assert done.returncode == 1
    assert "is cut off" in done.stdout and "has 66 hex digits" in done.stdout
    assert max(map(len, done.stdout.replace(str(tiny), "tiny").splitlines())) <= 80
    assert not (tmp_path / "sums").exists() and "no manifest was written" in done.stderr


def test_a_line_of_progress_tells_bytes_speed_and_time() -> None:
    line = progress_line(Progress("hashing", 3 * 10**9, 12 * 10**9, 2.0))
    assert line == "hashing: 3.00 GB of 12.0 GB (25 %), 1.50 GB/s, 6 s left"


def test_verify_loads_nothing_that_opens_connections() -> None:
    code = "import sys, onecat.checkpoints.integrity, onecat.render.verifications; sys.exit('httpx' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
