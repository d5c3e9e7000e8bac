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
