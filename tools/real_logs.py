"""Writes the kept logs of real failures and of healthy runs again, below tests/fixtures/logs, as root:

    .venv/bin/python tools/real_logs.py failures|healthy [NAME...]

A NAME chooses as pytest's -k does: kv-cache-too-small, nginx. Failures are written by the test that provokes them.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
WRITERS = {
    "failures": "tests/testbed/test_diagnose_real.py",
    "healthy": "tests/testbed/make_healthy_logs.py",
}


def main(words: list[str]) -> int:
    if not words or words[0] not in WRITERS:
        print(f"{__doc__}\nexpected failures or healthy, not {' '.join(words[:1]) or 'nothing'}", file=sys.stderr)
        return 2
    chosen = ["-k", " or ".join(words[1:])] if words[1:] else []
    argv = [sys.executable, "-m", "pytest", "-q", WRITERS[words[0]], *chosen]
    return subprocess.run(argv, cwd=ROOT, env={**os.environ, "ONECAT_KEEP_LOGS": "1"}, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
