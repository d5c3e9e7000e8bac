"""The real `onecat` command in a process of its own: no terminal, 80 columns, directories of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# A user who may read everything (an interpreter below /root, a checkout of root) and write nothing that is not theirs.
AS_NOBODY = (
    *("setpriv", "--reuid", "nobody", "--regid", "nogroup", "--clear-groups"),
    *("--inh-caps", "+dac_read_search", "--ambient-caps", "+dac_read_search", "--"),
)


@dataclass(frozen=True)
class Result:
    """How a command ended: its exit code and all that it printed."""

    argv: tuple[str, ...]
    code: int
    stdout: str
    stderr: str

    def json(self) -> Any:
        """Standard output as the one JSON document that it must be."""
        return json.loads(self.stdout)

    def expect(self, code: int) -> Result:
        """This result; fails the test with everything printed when the exit code is another one."""
        assert self.code == code, (
            f"{' '.join(self.argv)}: exit code {self.code}, expected {code}\n"
            f"--- stdout\n{self.stdout[-6000:]}\n--- stderr\n{self.stderr[-6000:]}"
        )
        return self


def run_unprivileged(argv: list[str], **options: Any) -> Result:
    """Run a command as the user nobody. `options` are those of subprocess.run."""
    options = {"stdin": subprocess.DEVNULL, "timeout": 120, **options}
    done = subprocess.run([*AS_NOBODY, *argv], capture_output=True, text=True, **options)
    return Result(tuple(argv), done.returncode, done.stdout, done.stderr)


@dataclass(frozen=True)
class Onecat:
    """Calls the command line.

    home: its ONECAT_HOME. cache: its ONECAT_CACHE, shared by all tests. docker_host: its DOCKER_HOST, if any.
    """

    home: Path
    cache: Path
    docker_host: str | None = None

    def argv(self, *arguments: str | Path) -> list[str]:
        """The command line of one call."""
        return [str(Path(sys.executable).with_name("onecat")), *map(str, arguments)]

    def environment(self, changes: Mapping[str, str | None] | None = None) -> dict[str, str]:
        """The environment of a call; a change to None takes a variable out."""
        environment = {
            **os.environ,
            "ONECAT_HOME": str(self.home),
            "ONECAT_CACHE": str(self.cache),
            "COLUMNS": "80",
            "LC_ALL": "C.UTF-8",
            "PYTHONUNBUFFERED": "1",
        }
        for name in ("DOCKER_HOST", "NO_COLOR", "FORCE_COLOR", "TERM"):
            environment.pop(name, None)
        if self.docker_host:
            environment["DOCKER_HOST"] = self.docker_host
        for name, value in (changes or {}).items():
            if value is None:
                environment.pop(name, None)
            else:
                environment[name] = value
        return environment

    def __call__(
        self,
        *arguments: str | Path,
        cwd: Path | None = None,
        environment: Mapping[str, str | None] | None = None,
        stdin: str = "",
        timeout: float = 120,
        unprivileged: bool = False,
    ) -> Result:
        """Run `onecat ARGUMENTS` to its end, as the user nobody if `unprivileged`."""
        argv = self.argv(*arguments)
        done = subprocess.run(
            [*AS_NOBODY, *argv] if unprivileged else argv,
            cwd=cwd,
            env=self.environment(environment),
            input=stdin,
            capture_output=True,
            text=True,
            timeout=timeout,
        )
        return Result(tuple(argv), done.returncode, done.stdout, done.stderr)
