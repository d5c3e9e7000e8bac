"""Python interpreters of this machine, and what they answer."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from onecat.errors import OnecatError

OWN_VERSION = f"{sys.version_info[0]}.{sys.version_info[1]}"
PRINT_VERSION = "import sys; print('%d.%d' % sys.version_info[:2])"


@dataclass(frozen=True)
class Interpreter:
    """A Python interpreter at `path`."""

    path: Path

    def answers(self, program: str) -> str | None:
        """What a small program prints under it, apart from the user's own packages; None when it fails."""
        try:
            answer = subprocess.run(
                [str(self.path), "-I", "-c", program],
                capture_output=True,
                text=True,
                timeout=60,
                stdin=subprocess.DEVNULL,
            )
        except (OSError, subprocess.TimeoutExpired):
            return None
        return answer.stdout.strip() if answer.returncode == 0 else None


def interpreters(versions: Iterable[str]) -> Iterator[Interpreter]:
    """The one that runs onecat, then `python<version>` on the PATH in the given order."""
    if sys.executable:
        yield Interpreter(Path(sys.executable))
    for version in versions:
        found = shutil.which(f"python{version}")
        if found:
            yield Interpreter(Path(found))


def interpreter_with_pip() -> Path:
    """An interpreter that can download packages. Raises OnecatError (exit code 2) when this machine has none."""
    for python in interpreters(("3", "3.14", "3.13", "3.12", "3.11", "3.10")):
        if python.answers("import pip; print('yes')") == "yes":
            return python.path
    raise OnecatError(
        "no Python with pip was found to download the wheels",
        next_steps=["on Debian or Ubuntu: apt-get install python3-pip", "or: python3 -m ensurepip"],
    )
