"""The rooms import one way, and only the edges of the program run programs or open connections."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).parents[3]


def test_the_import_contracts_of_pyproject_are_kept() -> None:
    lint_imports = Path(sys.executable).with_name("lint-imports")
    done = subprocess.run([str(lint_imports), "--no-cache"], cwd=REPOSITORY, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr
    assert "3 kept, 0 broken" in done.stdout
