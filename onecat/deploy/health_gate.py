"""When a starting server is ready, and when it is hung: the rule, and a program that applies it beside the server.

The program is `python -I health_gate.py URL SILENCE_SECONDS PID [--journal INVOCATION]`. It ends with 0 when GET URL
answers 200, however long that takes, and with 1 when process PID is gone or it and its descendants have been silent
for too long. The server's log is its standard input, or the journal of that invocation of a unit. systemd units run
it as ExecStartPost; a host or a container needs nothing of onecat for it: standard library only, one file.
"""

from __future__ import annotations

import os
import select
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import NamedTuple

# A waiting process wakes up now and then: less than this share of one core counts as no CPU use.
IDLE_CPU_SHARE = 0.01
_POLL_SECONDS = 1.0
_ARGUMENTS = 3


class Activity(NamedTuple):
    """What a server has done so far; see `SilenceWatch`.

    runnable: whether one of its processes runs or waits for a processor now; False where nobody can tell.
    """

    cpu_seconds: float
    read_bytes: int
    runnable: bool = False


@dataclass
class SilenceWatch:
    """Decides whether a starting server still does something.

    It does when its log grew, when it read from disks, or when it used more than IDLE_CPU_SHARE of one core since it
    last did something. One that could run at the end of the wait is no hung one: a host that gives its guest no
    processor or no memory (steal, ballooning) stops it without any trace in its own CPU time.

    Parameters:
        limit: seconds without any of these after which it counts as hung.
    """

    limit: float
    _since: float | None = None
    _activity: Activity = Activity(0.0, 0)
    _log_mark: int = 0

    def silent(self, now: float, activity: Activity, log_mark: int) -> bool:
        """Look once. now: seconds of a monotonic clock; log_mark: any number that changes when the log grows."""
        before = self._activity
        if self._since is None or log_mark != self._log_mark or activity.read_bytes != before.read_bytes:
            return self._mark(now, activity, log_mark)
        used = activity.cpu_seconds - before.cpu_seconds
        if used < 0 or used > IDLE_CPU_SHARE * max(now - self._since, 1.0):
            return self._mark(now, activity, log_mark)
        return now - self._since >= self.limit and not activity.runnable

    def _mark(self, now: float, activity: Activity, log_mark: int) -> bool:
        self._since, self._activity, self._log_mark = now, activity, log_mark
        return False


class Usage(NamedTuple):
    """What processes have done so far. written_bytes: to anything at all."""

    activity: Activity
    written_bytes: int


def usage_below(root: int) -> Usage | None:
    """What process `root` and its descendants have done, with the children they have waited for; None without it.

    What came in from outside, as by `docker exec`, is no descendant.
    """
    seconds, parents, runnable = {}, {}, set()
    for name in os.listdir("/proc"):  # noqa: PTH208 - one file of plain functions
        fields = _file(f"/proc/{name}/stat").rpartition(")")[2].split() if name.isdigit() else []
        if fields and fields[0] not in "ZX":
            parents[int(name)] = int(fields[1])
            # utime, stime, cutime, cstime: fields 14 to 17 of proc(5).
            seconds[int(name)] = sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
            if fields[0] == "R":
                runnable.add(int(name))
    if root not in parents:
        return None
    family = [root]
    for each in family:
        family += [pid for pid, parent in parents.items() if parent == each and pid not in family]
    counts = [_file(f"/proc/{pid}/io") for pid in family]
    read, written = (sum(_count(text, name) for text in counts) for name in ("read_bytes", "wchar"))
    return Usage(Activity(sum(seconds[pid] for pid in family), read, not runnable.isdisjoint(family)), written)


def _count(text: str, name: str) -> int:
    """A row of /proc/PID/io; 0 for a process of another user."""
    return sum(int(line.partition(": ")[2]) for line in text.splitlines() if line.startswith(f"{name}: "))


def _file(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as stream:  # noqa: PTH123
            return stream.read()
    except OSError:
        return ""


def answers(url: str) -> bool:
    """Whether GET `url` answers 200; no proxy of the environment stands between."""
    # Only the program asks; who takes the rule alone, as doctor does, loads no HTTP client.
    import urllib.error
    import urllib.request

    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(url, timeout=5) as response:
            return bool(response.status == 200)
    except (urllib.error.URLError, OSError):
        return False


class Log:
    """A log as it grows. mark: how many bytes it has brought, without the lines about /health itself."""

    def __init__(self, descriptor: int) -> None:
        self.mark = 0
        self._descriptor = descriptor
        self._rest = b""
        self._open = True

    def wait(self, seconds: float) -> None:
        """Read what comes within a time."""
        until = time.monotonic() + seconds
        while self._open and select.select([self._descriptor], [], [], max(0.0, until - time.monotonic()))[0]:
            data = os.read(self._descriptor, 65536)
            self._open = bool(data)
            *lines, self._rest = (self._rest + data).split(b"\n")
            self.mark += sum(len(line) + 1 for line in lines if b"/health" not in line)
        time.sleep(max(0.0, until - time.monotonic()))


def wait(url: str, silence_seconds: float, root: int, log: Log) -> str | None:
    """Wait until the server answers. Returns why it never will, or None when it does."""
    watch = SilenceWatch(silence_seconds)
    while not answers(url):
        log.wait(_POLL_SECONDS)
        usage = usage_below(root)
        if usage is None:
            return "the server has ended"
        # Who may not read the journal sees its writers write.
        if watch.silent(time.monotonic(), usage.activity, log.mark or usage.written_bytes):
            return f"no log line, no disk read and no CPU use for {silence_seconds:g} s: it hangs"
    return None


def main(arguments: list[str]) -> int:
    """Returns 0 when the server is ready, 1 when it will not be, 2 for a usage error."""
    words, journal = arguments[:_ARGUMENTS], arguments[_ARGUMENTS:]
    if len(words) < _ARGUMENTS or (journal and (journal[0] != "--journal" or len(journal) != 2)):  # noqa: PLR2004
        print("usage: health_gate.py URL SILENCE_SECONDS PID [--journal INVOCATION]", file=sys.stderr)
        return 2
    url, silence_seconds, root = words[0], float(words[1]), int(words[2])
    if not journal:
        failure = wait(url, silence_seconds, root, Log(0))
    else:
        argv = ["journalctl", "--follow", "--lines", "all", "--output", "cat", f"_SYSTEMD_INVOCATION_ID={journal[1]}"]
        with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as reader:
            assert reader.stdout is not None
            try:
                failure = wait(url, silence_seconds, root, Log(reader.stdout.fileno()))
            finally:
                reader.terminate()
    if failure is not None:
        print(f"onecat: {failure}", flush=True)
    return 0 if failure is None else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
