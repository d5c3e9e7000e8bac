"""onecat report, as a person types it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from onecat.checkpoints import write_tiny_checkpoint
from onecat.facts import Facts, ServerLog, to_json
from tests.unit.doctor.examples import HEALTHY

ONECAT = str(Path(sys.executable).with_name("onecat"))
FACTS = replace(
    HEALTHY,
    host="zeus17",
    user="amelie",
    server_logs=(ServerLog("vllm.log", ("listening on 10.1.2.3:8000 for amelie",)),),
)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    write(tmp_path / "facts.json", FACTS)
    return tmp_path


def write(file: Path, facts: Facts) -> None:
    file.write_text(json.dumps(to_json(facts)))


def run(directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "ONECAT_HOME": str(directory / "home")}
    return subprocess.run(
        [ONECAT, *arguments],
        cwd=directory,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        env=environment,
    )


def test_a_report_of_saved_facts_has_no_names_and_gives_the_same_findings(directory: Path) -> None:
    done = run(directory, "report", "--from", "facts.json", "--profile", "v100x2-pcie")
    assert (done.returncode, done.stdout) == (0, "onecat-report.md: read it, then post it\n"), done.stderr
    text = (directory / "onecat-report.md").read_text()
    assert not any(name in text for name in ("zeus", "amelie", "10.1.2.3"))

    def judged(file: str) -> list[tuple[str, str]]:
        document = json.loads(run(directory, "doctor", "--from", file, "--profile", "v100x2-pcie", "--json").stdout)
        return [(each["check"], each["status"]) for each in document["hosts"][0]["findings"]]

    assert judged("onecat-report.md") == judged("facts.json")


def test_the_plan_is_in_it_where_there_is_an_onecat_yaml(directory: Path) -> None:
    model = write_tiny_checkpoint(directory / "moonshot")
    (directory / "onecat.yaml").write_text(f"name: chat\nprofile: cpu\nmodel: {{path: {model}}}\n")
    done = run(directory, "report", "--from", "facts.json", "--output", "-")
    assert done.returncode == 0, done.stderr
    assert "--enforce-eager" in done.stdout
    assert f"{directory}/moonshot" not in done.stdout


def test_a_file_that_is_there_is_left_alone(directory: Path) -> None:
    (directory / "notes.md").write_text("mine")
    done = run(directory, "report", "--from", "facts.json", "--output", "notes.md")
    assert (done.returncode, (directory / "notes.md").read_text()) == (2, "mine")
    assert "notes.md exists and was left as it is" in done.stderr
    assert "onecat report --output notes.md --force" in done.stderr


def test_an_older_report_is_kept_when_it_is_replaced(directory: Path) -> None:
    (directory / "onecat-report.md").write_text("older")
    done = run(directory, "report", "--from", "facts.json", "--force")
    assert done.stdout == "onecat-report.md: read it, then post it\n  the old one is kept as onecat-report.md.old\n"
    assert (directory / "onecat-report.md.old").read_text() == "older"
    assert (directory / "onecat-report.md").read_text().startswith("# onecat report\n")


def test_a_report_is_about_one_host(directory: Path) -> None:
    write(directory / "other.json", replace(FACTS, host="hera"))
    done = run(directory, "report", "--from", "facts.json", "--from", "other.json")
    assert (done.returncode, "about one host" in done.stderr) == (2, True)
    typed = run(directory, "report", "--host", "zeus,hera")
    assert (typed.returncode, "about one host" in typed.stderr) == (2, True)
