"""How long `onecat diagnose` takes for long logs, and how much memory, next to `grep -F` for one word of each pattern.

Two logs of the given size: of a healthy server, and one that repeats faults all the way. Exit code 1 when one takes
longer than the limit or more memory than the log is long.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from onecat.observe import load_signatures
from onecat.observe.words import required_words

LIMIT_SECONDS = 5.0
LIMIT_MIB = 60
HEALTHY = Path(__file__).parents[1] / "tests" / "fixtures" / "logs" / "healthy-start-and-stop-compiled.log"
FAULTS = [
    "ERROR 11-29 16:59:51 [core.py:1349] Traceback (most recent call last):",
    "RuntimeError: CUDA error: no kernel image is available for execution on the device",
    "\x1b[1;31mtorch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\x1b[0m",
    "NVRM: Xid (PCI:0000:cb:00): 13, pid='<unknown>', name=<unknown>, Graphics SM Warp Exception",
    "ERROR EngineCore failed to start.",
]


def write(path: Path, lines: list[str], size: int) -> None:
    """A log of `size` bytes at least, each line with a time stamp of its own."""
    written = number = 0
    with path.open("w", encoding="utf-8") as log:
        while written < size:
            stamp = f"2026-11-29T16:{number // 60 % 60:02d}:{number % 60:02d}.{number % 1_000_000:06d}Z "
            written += log.write(f"{stamp}{lines[number % len(lines)]}\n")
            number += 1


def run(argv: list[str]) -> tuple[float, float]:
    """Wall seconds and the largest resident memory in MiB of one run."""
    begin = time.perf_counter()
    # A file and not the null device, for which grep would stop at its first hit.
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=output)
        _, _, usage = os.wait4(process.pid, 0)
    return time.perf_counter() - begin, usage.ru_maxrss / 1024


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--megabytes", type=int, default=60)
    size = arguments.parse_args().megabytes * 1_000_000
    onecat = str(Path(sys.executable).with_name("onecat"))
    results: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as scratch:
        words = Path(scratch, "words")
        found = {
            min(word.text for word in required_words(pattern)) for each in load_signatures().signatures for pattern in each.patterns
        }
        words.write_text("\n".join(sorted(found)) + "\n", encoding="utf-8")
        for name, lines in {"healthy": HEALTHY.read_text(encoding="utf-8").splitlines(), "faults": FAULTS}.items():
            log = Path(scratch, f"{name}.log")
            write(log, lines, size)
            seconds, memory = run([onecat, "diagnose", str(log)])
            results[name] = {"onecat_seconds": round(seconds, 2), "onecat_mib": round(memory, 1)}
            if grep := shutil.which("grep"):
                results[name]["grep_seconds"] = round(run([grep, "-c", "-F", "-f", str(words), str(log)])[0], 2)
            log.unlink()
    print(json.dumps(results, indent=2))
    slow = any(each["onecat_seconds"] > LIMIT_SECONDS or each["onecat_mib"] > LIMIT_MIB for each in results.values())
    return 1 if slow else 0


if __name__ == "__main__":
    raise SystemExit(main())
