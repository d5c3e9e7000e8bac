"""Docker's health check of a server, run inside its container: `python3 -c TEXT URL SILENCE_SECONDS STATE_FILE`.

Docker knows a fixed start period only, and a model from an old disk may load for half an hour. So a check made before
the server has first answered does not return: it waits for the answer, as long as the container's processes write
(log lines), read from disks or use CPU time, and Docker says `starting` all the while. Only SILENCE_SECONDS without
any of these, and with no process that could run at their end, end it with 1, and so does each check after it:
`unhealthy`. Once the server has answered, a check is one question. STATE_FILE tells of a server that was given up.
Standard library only; needs nothing of onecat.
"""

import json
import os
import sys
import time
import urllib.request
from pathlib import Path

# The first answer, or the silence, of this life of the container; /tmp is new in each.
SEEN = Path("/tmp/.onecat-health")  # noqa: S108 - a tmpfs of the container
# The same share of a core as in onecat.deploy.health_gate.
IDLE_CPU_SHARE = 0.01


def answers(url: str, seconds: float) -> bool:
    # No proxy from the environment: the server is in this container.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(url, timeout=seconds) as response:
            return bool(response.status == 200)
    except OSError:
        return False


def activity() -> tuple[float, int, bool]:
    """CPU seconds, bytes read from disks or written, and whether one could run, of all processes but this one."""
    ticks = moved = 0
    runnable = False
    for process in Path("/proc").glob("[0-9]*"):
        if process.name != str(os.getpid()):
            try:
                fields = (process / "stat").read_text().rpartition(")")[2].split()
                runnable = runnable or fields[0] == "R"
                ticks += int(fields[11]) + int(fields[12])
                counts = dict(line.split(": ") for line in (process / "io").read_text().splitlines())
                moved += int(counts["wchar"]) + int(counts["read_bytes"])
            except (OSError, KeyError):
                pass
    return ticks / os.sysconf("SC_CLK_TCK"), moved, runnable


def given_up(state: Path) -> bool:
    try:
        return bool(json.loads(state.read_text())["state"] == "keeps-crashing")
    except (OSError, ValueError, KeyError):
        return False


def main(url: str, silence_seconds: float, state: Path) -> int:
    before = SEEN.read_text() if SEEN.exists() else ""
    if answers(url, 10):
        if before != "ready":
            SEEN.write_text("ready")
        return 0
    if before:
        return 1
    since, (cpu, moved, _) = time.monotonic(), activity()
    while not given_up(state):
        if answers(url, 2):
            SEEN.write_text("ready")
            return 0
        now, (cpu_now, moved_now, runnable) = time.monotonic(), activity()
        if moved_now != moved or not 0 <= cpu_now - cpu <= IDLE_CPU_SHARE * max(now - since, 1):
            since, cpu, moved = now, cpu_now, moved_now
        elif now - since >= silence_seconds and not runnable:
            SEEN.write_text("silent")
            return 1
        time.sleep(1)
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], float(sys.argv[2]), Path(sys.argv[3])))
