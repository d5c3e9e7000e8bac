"""compute-sanitizer's memcheck and racecheck over a process that starts kernels, in bounded time."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

TOOLS = ("memcheck", "racecheck")
ERROR = 77
FINISHED = "every kernel was started"
"""What the process prints when it is through."""


def find_sanitizer() -> str | None:
    """compute-sanitizer, from PATH or from the toolkit's own folder."""
    beside = Path("/usr/local/cuda/bin/compute-sanitizer")
    return shutil.which("compute-sanitizer") or (str(beside) if beside.is_file() else None)


def sanitize(program: Sequence[str], tools: Sequence[str], out: Path, seconds: float) -> int:
    """Run a Python program (its file and arguments) under each tool; a line for each, whole logs in OUT/TOOL.log.

    seconds: for each tool. Returns 1 when one found something, 2 when one could not run or did not finish.
    """
    out.mkdir(parents=True, exist_ok=True)
    sanitizer = find_sanitizer()
    if sanitizer is None:
        print("compute-sanitizer is not there", file=sys.stderr)
        return 2
    return max(_under(sanitizer, tool, program, out / f"{tool}.log", seconds) for tool in tools)


def _under(sanitizer: str, tool: str, program: Sequence[str], log: Path, seconds: float) -> int:
    # Each tensor in memory of its own, so that reads past the end of one are seen.
    environment = {**os.environ, "PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
    command = [sanitizer, "--tool", tool, "--error-exitcode", str(ERROR), sys.executable, *program]
    begun = time.monotonic()
    try:
        with log.open("w", encoding="utf-8") as output:
            done = subprocess.run(
                command, stdout=output, stderr=subprocess.STDOUT, env=environment, timeout=seconds, check=False
            )
        code: int | None = done.returncode
    except subprocess.TimeoutExpired:
        code = None
    text = log.read_text(encoding="utf-8", errors="replace")
    summary = [line for line in text.splitlines() if "ERROR SUMMARY" in line or "RACECHECK SUMMARY" in line]
    finished = FINISHED in text
    if code is None:
        verdict, result = f"not finished after {seconds:.0f} s", 2
    elif code == 0 and finished and summary:
        verdict, result = "nothing found", 0
    elif code == ERROR and finished:
        verdict, result = "FOUND SOMETHING", 1
    else:
        verdict, result = f"could not run (ended with {code}): " + " | ".join(text.strip().splitlines()[-3:]), 2
    print(f"{tool}: {verdict}; {' '.join(summary)} ({time.monotonic() - begun:.0f} s, {log})", flush=True)
    return result
