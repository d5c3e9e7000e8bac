"""How long `onecat --help` takes next to the smallest possible Typer program's, measured turn by turn in one run.

Two such programs: as Typer does by default, with Rich's help pages, and without them, as onecat does. The second is
the harder one to keep up with, so the ratio to it is the one that counts. Exit code 1 when it is above the limit.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

LIMIT = 2.0
SMALLEST = "import typer\napp = typer.Typer({options})\n@app.command()\ndef main() -> None: ...\napp()\n"


def as_installed(byte_code: Path) -> dict[str, str]:
    """The environment with byte code kept in a folder, as an installation has it, though one here may keep none."""
    rest = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**rest, "PYTHONPYCACHEPREFIX": str(byte_code), "COLUMNS": "80"}


def seconds(argv: list[str], environment: dict[str, str]) -> float:
    """What one run needs of processors: its wall time on an idle machine, whatever else runs on this one."""
    child = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, env=environment)
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode != 0:
        raise subprocess.CalledProcessError(child.returncode, argv)
    return usage.ru_utime + usage.ru_stime


def measure(rounds: int) -> dict[str, float]:
    """Fewest seconds of each program over so many rounds, each round running all of them.

    Caches and clocks that others use as well only add time: the fewest are the program's own.
    """
    with tempfile.TemporaryDirectory() as scratch:
        environment = as_installed(Path(scratch, "byte-code"))
        plain, rich = Path(scratch, "smallest.py"), Path(scratch, "smallest_rich.py")
        plain.write_text(SMALLEST.format(options="rich_markup_mode=None"))
        rich.write_text(SMALLEST.format(options=""))
        programs = {
            "onecat": [str(Path(sys.executable).with_name("onecat")), "--help"],
            "smallest": [sys.executable, str(plain), "--help"],
            "smallest with Rich": [sys.executable, str(rich), "--help"],
        }
        for argv in programs.values():
            seconds(argv, environment)  # byte code is compiled and files are in memory before anything counts
        runs: dict[str, list[float]] = {name: [] for name in programs}
        for _ in range(rounds):
            for name, argv in programs.items():
                runs[name].append(seconds(argv, environment))
    return {name: min(times) for name, times in runs.items()}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15, help="runs of each program (default: 15)")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    options = parser.parse_args()
    fewest = measure(options.rounds)
    ratio = fewest["onecat"] / fewest["smallest"]
    if options.json:
        print(json.dumps({"seconds": fewest, "ratio": ratio, "limit": LIMIT, "rounds": options.rounds}))
    else:
        for name, least in fewest.items():
            print(f"{name + ' --help':26} {least * 1000:6.0f} ms")
        verdict = "within" if ratio <= LIMIT else "above"
        print(f"onecat takes {ratio:.2f} times the smallest Typer program ({verdict} the limit of {LIMIT})")
    return int(ratio > LIMIT)


if __name__ == "__main__":
    sys.exit(main())
