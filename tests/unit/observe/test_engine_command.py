"""`onecat diagnose` as a person or a script types it: exit codes, JSON, streams, and what is said of a wrong file."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.cli.in_process import run_onecat

CAUSE = "vllm: error: unrecognized arguments: --dry-run"
WARNING = "WARNING 11-29 17:00:00 [envs.py:1950] Unknown vLLM environment variable detected: VLLM_ATTENTION_BACKEND"
CONTROL = "\x1b"
ONECAT = str(Path(sys.executable).with_name("onecat"))


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "server.log"
    path.write_text(f"INFO begin\n{CAUSE}\n", encoding="utf-8")
    return path


def started(*arguments: str, given: bytes, **environment: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [ONECAT, "diagnose", *arguments],
        input=given,
        capture_output=True,
        env={**os.environ, "COLUMNS": "80", **environment},
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize(
    ("text", "fail_on", "code"),
    [
        (CAUSE, "never", 0),
        (CAUSE, "warn", 1),
        (CAUSE, "fail", 1),
        (WARNING, "never", 0),
        (WARNING, "warn", 1),
        (WARNING, "fail", 0),
        ("INFO well", "warn", 0),
        ("", "fail", 0),
    ],
)
def test_the_exit_code_tells_a_cause_only_where_it_is_asked_to(
    tmp_path: Path, text: str, fail_on: str, code: int
) -> None:
    path = tmp_path / "a.log"
    path.write_text(text, encoding="utf-8")
    for form in ([], ["--json"], ["--all"]):
        assert run_onecat("diagnose", str(path), "--fail-on", fail_on, *form).returncode == code
    if fail_on == "never":
        assert run_onecat("diagnose", str(path)).returncode == 0


def test_json_has_its_schema_and_nothing_else_is_printed(log: Path) -> None:
    ran = run_onecat("diagnose", str(log), "--json")
    document = json.loads(ran.stdout)
    assert set(document) == {"schema", "diagnoses", "not_shown", "first_exception"}
    assert document["schema"] == "onecat.diagnose/1"
    (found,) = document["diagnoses"]
    assert found["signature"] == "arguments.unknown"
    assert found["evidence"] == [{"line": 2, "text": CAUSE}]
    assert (found["severity"], found["confidence"], found["standing"]) == ("fail", "high", "cause")
    assert document["first_exception"] is None
    assert ran.stderr == ""


def test_all_also_tells_what_is_hidden_otherwise(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    start = "INFO 11-29 17:00:00 [api_utils.py:1] vLLM API server version 0.27.1"
    ready = "INFO:     Application startup complete."
    path.write_text("\n".join([start, CAUSE, start, ready, WARNING]), encoding="utf-8")
    few = json.loads(run_onecat("diagnose", str(path), "--json").stdout)
    everything = json.loads(run_onecat("diagnose", str(path), "--json", "--all").stdout)
    assert [each["signature"] for each in few["diagnoses"]] == ["arguments.removed-variable"]
    assert few["not_shown"] == {"earlier": 1}
    standings = {each["signature"]: each["standing"] for each in everything["diagnoses"]}
    assert standings == {"arguments.removed-variable": "cause", "arguments.unknown": "earlier"}
    assert everything["not_shown"] == {}
    assert "--all" in run_onecat("diagnose", str(path)).stdout


def test_two_logs_with_the_same_cause_tell_it_once(log: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.log"
    other.write_text(f"{CAUSE}\n", encoding="utf-8")
    document = json.loads(run_onecat("diagnose", str(log), str(other), "--json").stdout)
    (found,) = document["diagnoses"]
    assert found["evidence"][0]["file"] == str(log)
    twice = run_onecat("diagnose", str(log), str(log))
    assert twice.returncode == 2
    assert "given twice" in twice.stderr


def test_what_cannot_be_read_is_told_with_what_to_do(log: Path, tmp_path: Path) -> None:
    missing = run_onecat("diagnose", str(log), str(tmp_path / "none.log"))
    assert missing.returncode == 2
    assert "No such file" in missing.stderr
    assert "--dry-run" not in missing.stdout, "a wrong name is told before anything is read"
    folder = run_onecat("diagnose", str(tmp_path))
    assert folder.returncode == 2
    assert "ls -t" in folder.stderr
    for ran in (missing, folder):
        assert "Traceback" not in ran.stderr + ran.stdout
        assert CONTROL not in ran.stderr


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read every file")
def test_a_file_that_may_not_be_read_is_told(log: Path) -> None:
    log.chmod(0)
    ran = run_onecat("diagnose", str(log))
    assert ran.returncode == 2
    assert "Permission denied" in ran.stderr


def test_standard_input_is_read_and_the_terminal_needs_no_colours() -> None:
    ran = started("-", given=CAUSE.encode() + b"\n", NO_COLOR="1")
    assert ran.returncode == 0
    assert b"--dry-run" in ran.stdout
    assert CONTROL.encode() not in ran.stdout + ran.stderr
    assert max(map(len, ran.stdout.decode().splitlines())) <= 80
    assert ran.stderr == b""


def test_a_reader_that_goes_away_ends_it_without_a_word(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    path.write_text(f"{CAUSE}\n", encoding="utf-8")
    ran = subprocess.run(
        ["bash", "-o", "pipefail", "-c", f"'{ONECAT}' diagnose '{path}' | true"],
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert ran.stderr == b""


@pytest.mark.parametrize("words", [CAUSE, "a word " * 500 + CAUSE, "error: unrecognized arguments: " + "ü█ü█ " * 300])
def test_the_text_fits_eighty_columns(tmp_path: Path, words: str) -> None:
    path = tmp_path / "a.log"
    path.write_text(words, encoding="utf-8")
    out = run_onecat("diagnose", str(path)).stdout
    spelt = [line for line in out.splitlines() if "https://" not in line]
    assert max(map(len, spelt)) <= 80
    assert CONTROL not in out


def test_no_secret_is_printed(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    path.write_text(CAUSE + " --api-key tiger9lily\n", encoding="utf-8")
    for form in ([], ["--json"], ["--all"]):
        ran = run_onecat("diagnose", str(path), *form)
        assert "[redacted]" in ran.stdout
        assert "tiger9lily" not in ran.stdout + ran.stderr
