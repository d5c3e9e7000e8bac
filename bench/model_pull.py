"""How fast `onecat model pull` fetches next to curl and aria2c, from an nginx on this machine, turn by turn.

One large file and many small ones. curl and aria2c only fetch; onecat also hashes every byte, brings it to the disk
and writes SHA256SUMS, so `sha256sum` of the same files is measured beside curl. The best of some rounds counts. Ends
with 1 when onecat takes longer than LIMIT times curl and sha256sum one after the other.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPOSITORY))

from tests.testbed.model_servers import running_model_servers  # noqa: E402

LIMIT = 3.0
SMALL_FILES, SMALL_BYTES = 100, 20_000


def seconds(argv: list[str], directory: Path) -> tuple[float, float]:
    """Wall seconds and processor seconds of one command, in an empty directory of its own."""
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir()
    began = time.perf_counter()
    process = subprocess.Popen(argv, cwd=directory, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    assert os.waitstatus_to_exitcode(status) == 0, argv
    return time.perf_counter() - began, usage.ru_utime + usage.ru_stime


def compare(rounds: int, commands: dict[str, Callable[[], list[str]]], scratch: Path) -> dict[str, dict[str, float]]:
    """The best of some rounds of each command, turn by turn."""
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in commands}
    for _ in range(rounds):
        for name, argv in commands.items():
            times[name].append(seconds(argv(), scratch / "target"))
    return {
        name: {"seconds": round(min(found)[0], 2), "processor_seconds": round(min(found)[1], 2)}
        for name, found in times.items()
    }


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--megabytes", type=int, default=1000, help="size of the large file (default: 1000)")
    arguments.add_argument("--rounds", type=int, default=3)
    given = arguments.parse_args()
    onecat = str(Path(sys.executable).with_name("onecat"))
    small = {f"small/{number:03d}.json": os.urandom(SMALL_BYTES) for number in range(SMALL_FILES)}
    with contextlib.ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="onecat-bench-")))
        nginx = shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin") or "nginx"
        servers = stack.enter_context(running_model_servers(nginx, scratch, small))
        with (servers.root / "large").open("wb") as stream:
            for _ in range(given.megabytes):
                stream.write(os.urandom(10**6))
        large, many = f"{servers.files}/large", [f"{servers.files}/{path}" for path in small]
        (scratch / "list").write_text("\n".join(many))
        hashed = f"curl -sSO {large} && sha256sum large"
        results = {
            "one large file": compare(
                given.rounds,
                {
                    "onecat": lambda: [onecat, "-q", "model", "pull", large, "."],
                    "curl": lambda: ["curl", "-sSO", large],
                    "curl and sha256sum": lambda: ["sh", "-c", hashed],
                    **_aria([large]),
                },
                scratch,
            ),
            "many small files": compare(
                given.rounds,
                {
                    "onecat": lambda: [onecat, "-q", "model", "pull", f"{servers.files}/small/", "."],
                    "curl": lambda: ["curl", "-sS", "--parallel", "--remote-name-all", *many],
                    **_aria(["-i", str(scratch / "list")]),
                },
                scratch,
            ),
        }
    print(json.dumps({"megabytes": given.megabytes, "rounds": given.rounds, **results}, indent=2))
    one = results["one large file"]
    return int(one["onecat"]["seconds"] > LIMIT * one["curl and sha256sum"]["seconds"])


def _aria(words: list[str]) -> dict[str, Callable[[], list[str]]]:
    """aria2c with as many connections as onecat, where it is installed."""
    if shutil.which("aria2c") is None:
        return {}
    return {"aria2c": lambda: ["aria2c", "--quiet", "-x8", "-s8", "-j8", "--file-allocation=none", *words]}


if __name__ == "__main__":
    sys.exit(main())
