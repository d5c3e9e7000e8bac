"""onecat doctor --fix-script, as a person types it."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

from onecat.facts import Docker, to_json
from tests.unit.doctor.examples import HEALTHY

ONECAT = str(Path(sys.executable).with_name("onecat"))


def run(directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    facts = replace(HEALTHY, docker=Docker(state="absent", error="no socket"))
    (directory / "facts.json").write_text(json.dumps(to_json(facts)))
    command = [ONECAT, "doctor", "--from", "facts.json", "--profile", "v100x2-pcie", *arguments]
    return subprocess.run(command, cwd=directory, stdin=subprocess.DEVNULL, capture_output=True, text=True)


def test_the_script_is_written_beside_the_report_and_not_run(tmp_path: Path) -> None:
    done = run(tmp_path, "--fix-script", "fix.sh")
    assert (done.returncode, "docker.daemon" in done.stdout) == (1, True)
    script = tmp_path / "fix.sh"
    assert script.stat().st_mode & 0o777 == 0o700
    assert script.read_text().splitlines()[-1] == "onecat doctor --profile v100x2-pcie"
    assert "# fail: Docker is not installed" in script.read_text()


def test_the_script_can_be_printed_alone(tmp_path: Path) -> None:
    done = run(tmp_path, "--fix-script", "-")
    assert done.stdout.startswith("#!/bin/sh\n") and done.stdout.endswith("onecat doctor --profile v100x2-pcie\n")


def test_the_script_is_named_with_what_to_do_with_it(tmp_path: Path) -> None:
    assert "fix.sh: read it, then run it as root on" in run(tmp_path, "--fix-script", "fix.sh").stderr


def test_a_file_that_is_there_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "fix.sh").write_text("mine")
    done = run(tmp_path, "--fix-script", "fix.sh")
    assert (done.returncode, (tmp_path / "fix.sh").read_text()) == (2, "mine")
    assert "onecat doctor --fix-script fix.sh --force, to replace it" in done.stderr
    assert run(tmp_path, "--fix-script", "fix.sh", "--force").returncode == 1
    assert (tmp_path / "fix.sh.old").read_text() == "mine"
    assert (tmp_path / "fix.sh").read_text().startswith("#!/bin/sh\n")
