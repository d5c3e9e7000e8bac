"""The process in a server's container that answers crashes: `python3 guard.pyz OPTIONS -- PROGRAM ARGUMENT...`.

It gives onecat.yaml's `restart` the same meaning in a container as `onecat.deploy.supervisor` does without one, which
Docker's restart policies cannot: they count over the container's whole life, know no limit for the pause, and either
do not bring a container back after a restart of the daemon or the host, or never give it up.

Docker's part is `unless-stopped`: a container that ends is started again, also by a restarted daemon. So that its
devices, /dev/shm and /tmp are fresh, a crash ends the container. Docker waits 0.1 s before the next start of one that
ran for 10 s, and doubles the pause for shorter runs; a younger container is therefore kept, and the program is started
again in it. A server that is given up leaves this process waiting, and finds it so after a restart of the host:
nothing else ends a container under that policy for good.

In: the file `accepted` in GUARD_MOUNT, once `up` has accepted the release: before that, a program that ends is the end
of the container. Out, and in again after a restart: `state.json` in STATE_MOUNT. Standard library only; travels as
the zip file that `archive` makes.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from onecat.deploy.processes import boot_id
from onecat.deploy.supervisor import ACCEPTED_FILE, Exit, backoff, crashes_in_a_row, describe_exit, oom_kills, timestamp
from onecat.files import read_json, write_json

SCHEMA = "onecat.guard/1"
GUARD_DIRECTORY = Path("/run/onecat/guard")
STATE_PATH = Path("/run/onecat/state/state.json")
# What the images' entry point ends with when it cannot have its API key (sysexits.h): another start would not help.
UNUSABLE_CONFIGURATION = 78
# moby, restartmanager: a run of 10 s sets the pause back to 0.1 s. A little more, since ours begins later.
DOCKERS_STABLE_SECONDS = 11.0
# Process 1 of a container with --init: Docker's and Podman's.
_CONTAINER_INITS = ("docker-init", "tini", "catatonit")
_STOPS = (signal.SIGTERM, signal.SIGINT)
_SIGNALS = (*_STOPS, signal.SIGCHLD)
_MODULES = ("__init__", "files", "deploy/__init__", "deploy/processes", "deploy/supervisor", "deploy/container_guard")
_MAIN = "import sys\n\nfrom onecat.deploy.container_guard import main\n\nsys.exit(main(sys.argv[1:]))\n"


def archive() -> bytes:
    """This program with all it needs, as a zip file that Python runs. The same bytes for the same code."""
    package = Path(__file__).resolve().parents[1]
    texts = {f"onecat/{name}.py": (package / f"{name}.py").read_text(encoding="utf-8") for name in _MODULES}
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as made:
        for name, text in {"__main__.py": _MAIN, **texts}.items():
            made.writestr(zipfile.ZipInfo(name), text, zipfile.ZIP_DEFLATED)
    return content.getvalue()


def options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="guard.pyz")
    parser.add_argument("--max-crashes", type=int, required=True)
    parser.add_argument("--stable-seconds", type=float, required=True)
    parser.add_argument("--backoff-seconds", type=float, required=True)
    parser.add_argument("--backoff-max-seconds", type=float, required=True)
    parser.add_argument("argv", nargs="+")
    return parser.parse_args(arguments)


class Guard:
    """Runs one program until told to stop, until Docker shall start the container again, or for good."""

    def __init__(self, asked: argparse.Namespace) -> None:
        self._asked = asked
        self._born = time.monotonic()
        self._stop_requested = False
        self._restarts = 0
        self._crashes = 0
        self._last_exit: Exit | None = None
        self._started_at: float | None = None
        self._is_written = False

    def run(self) -> int:
        """Returns the container's exit status."""
        signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
        goes_on = self._take_up(_state_before())
        while goes_on:
            last = self._run_once()
            self._last_exit = last
            if self._stop_requested:
                _tell(f"server stopped: {last.text}")
                return self._end("stopped", 0)
            if not (GUARD_DIRECTORY / ACCEPTED_FILE).exists():
                _tell(f"server {last.text} after {last.ran_seconds:.1f} s, before it was ready")
                return self._end("exited", _status(last.code))
            goes_on = self._answer(last)
            if self._stop_requested:
                return self._end("stopped", 0)
            if goes_on and self._is_written and time.monotonic() - self._born >= DOCKERS_STABLE_SECONDS:
                return _status(last.code) or 1
            self._restarts += goes_on
        return self._wait_for_stop()

    # --- what was before -----------------------------------------------------------------------------------------

    def _take_up(self, before: Mapping[str, Any] | None) -> bool:
        """Go on where the container's last life ended; False when the server was given up."""
        if before is None:
            return True
        self._restarts, self._crashes = before["restarts"], before["crashes_in_a_row"]
        self._last_exit = Exit(**before["last_exit"]) if before["last_exit"] else None
        self._started_at = before["started_at_seconds"]
        if before["state"] == "keeps-crashing":
            _tell("the server was given up; it is not started before the next onecat up or onecat restart")
            return False
        if before["state"] == "backing-off":
            self._restarts += 1
            left = min(before["next_start_seconds"] - time.time(), self._asked.backoff_max_seconds)
            return self._pause(left) if left > 0 else True
        if before["state"] == "running" and before["boot_id"] == boot_id():
            # Killed together with this process: the container's main process, or all of it for its memory.
            ran = max(0.0, time.time() - before["started_at_seconds"])
            self._last_exit = Exit(-9, "was killed with its whole container", 0, timestamp(time.time()), round(ran, 3))
            goes_on = self._answer(self._last_exit)
            self._restarts += goes_on
            return goes_on
        return True

    def _answer(self, last: Exit) -> bool:
        """Count a crash, and wait before the next start; False when the server is given up."""
        self._crashes = crashes_in_a_row(self._crashes, last.ran_seconds, self._asked.stable_seconds)
        limit = self._asked.max_crashes
        told = f"server {last.text} after {last.ran_seconds:.1f} s; crash {self._crashes} of {limit} in a row"
        if last.code == UNUSABLE_CONFIGURATION:
            told, limit = f"server {last.text}, which another start would not change", self._crashes
        if self._crashes >= limit:
            _tell(f"{told}; given up")
            self._write("keeps-crashing")
            return False
        pause = backoff(self._crashes, self._asked.backoff_seconds, self._asked.backoff_max_seconds)
        _tell(f"{told}; next start in {pause:.1f} s")
        return self._pause(pause)

    # --- one run of the server -----------------------------------------------------------------------------------

    def _run_once(self) -> Exit:
        struck = oom_kills()
        self._started_at = time.time()
        began = time.monotonic()
        try:
            program = subprocess.Popen(
                self._asked.argv, stdin=subprocess.DEVNULL, preexec_fn=_unblock_signals, start_new_session=True
            )
        except OSError as error:
            _tell(f"cannot start {self._asked.argv[0]}: {error.strerror}")
            return Exit(127, describe_exit(127), 0, timestamp(time.time()), 0.0)
        self._write("running")
        while (code := program.poll()) is None:
            caught = signal.sigtimedwait(_SIGNALS, 1.0)
            if caught is not None and caught.si_signo in _STOPS:
                self._stop_requested = True
                program.terminate()
                self._write("stopping")
        _kill_the_rest()
        told = describe_exit(code) + (", the kernel's OOM killer struck meanwhile" if oom_kills() > struck else "")
        ran = round(time.monotonic() - began, 3)
        return Exit(code, told, oom_kills() - struck, timestamp(time.time()), ran)

    def _pause(self, seconds: float) -> bool:
        """Wait before the next start; False when a stop was asked for meanwhile."""
        self._write("backing-off", time.time() + seconds)
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            caught = signal.sigtimedwait(_SIGNALS, left)
            if caught is not None and caught.si_signo in _STOPS:
                self._stop_requested = True
                return False
        return True

    def _wait_for_stop(self) -> int:
        """Stay without a server until the container is stopped. The state stays what it is."""
        if not self._stop_requested:
            signal.sigwait(_STOPS)
        return 0

    # --- telling -------------------------------------------------------------------------------------------------

    def _end(self, state: str, status: int) -> int:
        self._write(state)
        return status

    def _write(self, state: str, next_start: float | None = None) -> None:
        """Write `state.json`. Without it the server goes on; then no restart of the container forgets the count."""
        document = {
            "schema": SCHEMA,
            "state": state,
            "started_at": None if self._started_at is None else timestamp(self._started_at),
            "started_at_seconds": self._started_at,
            "restarts": self._restarts,
            "crashes_in_a_row": self._crashes,
            "last_exit": self._last_exit and self._last_exit._asdict(),
            "next_start_at": None if next_start is None else timestamp(next_start),
            "next_start_seconds": next_start,
            "boot_id": boot_id(),
        }
        try:
            write_json(STATE_PATH, document)
            self._is_written = True
        except OSError as error:
            self._is_written = False
            _tell(f"the state '{state}' could not be written: {error.strerror}")


def _state_before() -> dict[str, Any] | None:
    try:
        found = read_json(STATE_PATH)
    except (OSError, ValueError) as error:
        _tell(f"the state of the last run cannot be read: {error}")
        return None
    return found if isinstance(found, dict) and found.get("schema") == SCHEMA else None


def _status(code: int) -> int:
    """An exit code as a shell tells it: 128 and the signal for a killed program."""
    return code if code >= 0 else 128 - code


def _unblock_signals() -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def _kill_the_rest() -> None:
    """Kill what the server left behind. Only where all that can be reached is the container's own."""
    if os.getppid() == 1 and Path("/proc/1/comm").read_text(encoding="utf-8").strip() in _CONTAINER_INITS:
        with contextlib.suppress(ProcessLookupError):
            os.kill(-1, signal.SIGKILL)


def _tell(text: str) -> None:
    print(f"onecat: {text}", flush=True)


def main(arguments: Sequence[str]) -> int:
    return Guard(options(arguments)).run()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
