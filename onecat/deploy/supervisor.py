"""The process that keeps a native server running: `python -m onecat.deploy.supervisor RELEASE_DIRECTORY`.

It leaves the terminal, starts the server, writes its output with timestamps to `server.log`, restarts it after a crash
with growing pauses, gives up after too many crashes in a row, and stops everything on SIGTERM. What it does stands in
`state.json`. Standard library only: it lives as long as the server and must stay small.

In: `launch.json` (see `onecat.deploy.native`) and, once `up` has accepted the release, the file `accepted`: before
that a server that exits is not started again. Where the file `ended` lies, the release was ended already, and nothing
is started. Out: `state.json`, `server.log`.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import selectors
import signal
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from onecat.deploy import processes
from onecat.files import read_json, write_json

SCHEMA = "onecat.supervisor/1"
LAUNCH_FILE = "launch.json"
STATE_FILE = "state.json"
LOG_FILE = "server.log"
ACCEPTED_FILE = "accepted"
ENDED_FILE = "ended"
# Set for the server to its release directory, so that its processes can be found when the supervisor is dead.
MARK = "ONECAT_RELEASE"

# prctl(2)
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_LONGEST_LINE = 64 * 1024
# So long a process may take to end after SIGKILL. One that waits for a driver or a disk (state D) may never do.
KILL_SECONDS = 10.0
# A pipe holds at most 1 MiB (pipe(7), /proc/sys/fs/pipe-max-size): so many reads of 64 KiB empty it.
_READS_AT_ONCE = 17


class Exit(NamedTuple):
    """How a server ended.

    code: exit status, or the negative number of the signal that killed it. oom_kills: how often the kernel's
    out-of-memory killer struck anything on this machine during the run (`oom_kill` in /proc/vmstat).
    """

    code: int
    text: str
    oom_kills: int
    at: str
    ran_seconds: float


def describe_exit(code: int) -> str:
    """An exit code in words: `exited with status 1`, `killed by signal 9 (SIGKILL)`."""
    if code >= 0:
        return f"exited with status {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = "unknown"
    return f"killed by signal {-code} ({name})"


def oom_kills() -> int:
    """How often the kernel's out-of-memory killer has struck since boot (0 where the kernel does not count)."""
    counters = dict(line.split() for line in Path("/proc/vmstat").read_text(encoding="ascii").splitlines())
    return int(counters.get("oom_kill", 0))


def backoff(crashes: int, first: float, longest: float) -> float:
    """Seconds to wait after the given number of crashes in a row: doubles from `first`, never above `longest`."""
    return float(min(longest, first * 2 ** min(crashes - 1, 60)))


def crashes_in_a_row(before: int, ran_seconds: float, stable_seconds: float) -> int:
    """Crashes in a row, with one after a run of `ran_seconds`, when there were `before`: a stable run clears them."""
    return 1 if ran_seconds >= stable_seconds else before + 1


def timestamp(moment: float) -> str:
    """A moment (seconds since the epoch) as UTC, RFC 3339 with milliseconds."""
    whole = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(moment))
    return f"{whole}.{int(moment * 1000) % 1000:03d}Z"


class RotatingLog:
    """A log with a timestamp before each line, cut into pieces of bounded size: path, path.1 (older), path.2, ...

    A full disk never stops the server: lines that cannot be written are counted, and the count is written when
    there is room again.
    """

    def __init__(self, path: Path, max_bytes: int, keep: int) -> None:
        self._path = path
        self._max_bytes = max_bytes
        self._keep = keep
        self._lost = 0
        self._descriptor: int | None = None
        self._size = 0

    def write(self, line: str) -> None:
        if self._lost and self._append(f"onecat: {self._lost} lines were lost: the log could not be written"):
            self._lost = 0
        if not self._append(line):
            self._lost += 1

    def _append(self, line: str) -> bool:
        data = f"{timestamp(time.time())} {line}\n".encode("utf-8", "replace")
        try:
            if self._descriptor is None:
                self._open()
            if self._size and self._size + len(data) > self._max_bytes:
                self._rotate()
            assert self._descriptor is not None
            written = os.write(self._descriptor, data)
            self._size += written
            return written == len(data)
        except OSError:
            return False

    def _open(self) -> None:
        self._descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self._size = os.fstat(self._descriptor).st_size

    def _rotate(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
        for number in range(self._keep - 1, 0, -1):
            older = self._path.with_name(f"{self._path.name}.{number}")
            if older.exists():
                older.replace(self._path.with_name(f"{self._path.name}.{number + 1}"))
        self._path.replace(self._path.with_name(f"{self._path.name}.1"))
        self._open()


def _prctl(option: int, value: int) -> None:
    library = ctypes.CDLL(None, use_errno=True)
    if library.prctl(option, value, 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"prctl({option}): {os.strerror(number)}")


def server_environment(launch: dict[str, Any], inherited: dict[str, str]) -> dict[str, str]:
    """The server's environment: what the operator has, less what would change the plan unseen, plus the plan's.

    Variables that steer Python or vLLM are not inherited; the secret is read here, from its file or the environment,
    and is held nowhere else. Raises OSError or KeyError when the secret cannot be had.
    """
    secret = launch.get("secret")
    dropped = {"PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV"} | ({secret["env"]} if secret and secret.get("env") else set())
    environment = {
        name: value for name, value in inherited.items() if name not in dropped and not name.startswith("VLLM_")
    }
    program = Path(launch["argv"][0])
    if program.is_absolute():
        environment["PATH"] = f"{program.parent}{os.pathsep}{environment.get('PATH', os.defpath)}"
    environment.update(launch["env"])
    if secret:
        value = Path(secret["file"]).read_text(encoding="utf-8") if secret.get("file") else inherited[secret["env"]]
        environment[secret["variable"]] = value.strip()
    return environment


class Supervisor:
    """Runs one server until told to stop or until it is not worth another try."""

    def __init__(self, directory: Path, launch: dict[str, Any]) -> None:
        self._directory = directory
        self._launch = launch
        self._restart = launch["restart"]
        self._environment = {**server_environment(launch, dict(os.environ)), MARK: str(directory)}
        self._log = RotatingLog(directory / LOG_FILE, launch["log"]["max_bytes"], launch["log"]["keep"])
        self._stop_requested = False
        self._restarts = 0
        self._crashes = 0
        self._oom_kills = 0
        self._last_exit: Exit | None = None
        self._server: processes.ProcessIdentity | None = None
        self._started_at: float | None = None
        self._unwritten: dict[str, Any] | None = None
        self._wake_read, self._wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    def prepare(self) -> None:
        """Take over signals and orphans, and say in `state.json` that the supervisor is there. Raises OSError."""
        _prctl(_PR_SET_CHILD_SUBREAPER, 1)
        signal.set_wakeup_fd(self._wake_write, warn_on_full_buffer=False)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_stop)
        write_json(self._directory / STATE_FILE, self._state("starting"))

    def run(self) -> int:
        """Keep the server running; returns 0 after a stop that was asked for, 1 when it was given up."""
        # Whoever ends a release writes this first and looks for `state.json` then: one of both always sees the other.
        if (self._directory / ENDED_FILE).exists():
            return self._end("stopped", 0)
        while True:
            pid, output = self._start()
            code = self._watch(pid, output)
            self._kill_rest(output)
            ran = time.time() - (self._started_at or time.time())
            struck = oom_kills() - self._oom_kills
            told = describe_exit(code) + (", the kernel's OOM killer struck meanwhile" if struck else "")
            self._last_exit = Exit(code, told, struck, timestamp(time.time()), round(ran, 3))
            self._server = None
            if self._stop_requested:
                self._log.write(f"onecat: server stopped: {self._last_exit.text}")
                return self._end("stopped", 0)
            if not (self._directory / ACCEPTED_FILE).exists():
                self._log.write(f"onecat: server {self._last_exit.text} after {ran:.1f} s, before it was ready")
                return self._end("exited", 1)
            self._crashes = crashes_in_a_row(self._crashes, ran, self._restart["stable_seconds"])
            limit = self._restart["max_crashes"]
            told = f"onecat: server {self._last_exit.text} after {ran:.1f} s; crash {self._crashes} of {limit} in a row"
            if self._crashes >= limit:
                self._log.write(f"{told}; given up")
                return self._end("keeps-crashing", 1)
            pause = backoff(self._crashes, self._restart["backoff_seconds"], self._restart["backoff_max_seconds"])
            self._log.write(f"{told}; next start in {pause:.1f} s")
            if not self._pause(pause):
                return self._end("stopped", 0)
            self._restarts += 1

    # --- one run of the server -----------------------------------------------------------------------------------

    def _start(self) -> tuple[int, int]:
        """Start the server in a session of its own; returns its pid and the reading end of its output."""
        read, write = os.pipe2(os.O_CLOEXEC)
        own = os.getpid()
        pid = os.fork()
        if pid == 0:
            self._become_server(own, write)
        os.close(write)
        os.set_blocking(read, False)
        self._oom_kills = oom_kills()
        self._started_at = time.time()
        self._server = processes.identify(pid)
        self._write_state("running")
        return pid, read

    def _become_server(self, supervisor: int, output: int) -> NoReturn:
        """In the child: never returns."""
        try:
            os.setsid()
            # The server gets SIGTERM when the supervisor dies for whatever reason (prctl(2), PR_SET_PDEATHSIG).
            _prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
            if os.getppid() != supervisor:
                os._exit(1)
            signal.set_wakeup_fd(-1)
            for number in (signal.SIGHUP, signal.SIGCHLD, signal.SIGTERM, signal.SIGINT):
                signal.signal(number, signal.SIG_DFL)
            null = os.open(os.devnull, os.O_RDONLY)
            os.dup2(null, 0)
            os.dup2(output, 1)
            os.dup2(output, 2)
            os.execvpe(self._launch["argv"][0], self._launch["argv"], self._environment)
        except OSError as error:
            os.write(output, f"onecat: cannot start {self._launch['argv'][0]}: {error}\n".encode())
        os._exit(127)

    def _watch(self, server: int, output: int) -> int:
        """Pass the output on until the server has ended; on a stop request end it. Returns its exit code."""
        told = False
        deadline: float | None = None
        with selectors.DefaultSelector() as selector:
            selector.register(output, selectors.EVENT_READ, "output")
            selector.register(self._wake_read, selectors.EVENT_READ, "wake")
            pending = b""
            while True:
                wait = 1.0 if deadline is None else max(0.05, min(1.0, deadline - time.monotonic()))
                for key, _ in selector.select(wait):
                    if key.data == "wake":
                        self._drain_wakeups()
                    else:
                        pending, open_ = self._pump(output, pending)
                        if not open_:
                            selector.unregister(output)
                code = self._reap(server)
                if code is not None:
                    pending, _ = self._pump(output, pending)
                    if pending:
                        self._log.write(pending.decode("utf-8", "replace"))
                    return code
                if self._stop_requested and not told:
                    told = True
                    deadline = time.monotonic() + self._launch["stop_seconds"]
                    self._write_state("stopping")
                    os.kill(server, signal.SIGTERM)
                if deadline is not None and time.monotonic() >= deadline:
                    os.kill(server, signal.SIGKILL)
                self._retry_state()

    def _pump(self, output: int, pending: bytes) -> tuple[bytes, bool]:
        """Move what can be read now into the log; returns the unfinished line and whether the pipe is open."""
        for _ in range(_READS_AT_ONCE):
            try:
                data = os.read(output, 65536)
            except BlockingIOError:
                return pending, True
            if not data:
                return pending, False
            # A progress bar ends its states with a carriage return: each is a line of its own here.
            *lines, pending = (pending + data).replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
            for line in lines:
                if line.strip():
                    self._log.write(line.decode("utf-8", "replace"))
            if len(pending) > _LONGEST_LINE:
                self._log.write(pending.decode("utf-8", "replace"))
                pending = b""
        return pending, True

    def _reap(self, server: int) -> int | None:
        """Wait for every child that has ended; returns the server's exit code when it is among them."""
        code: int | None = None
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return code
            if pid == 0:
                return code
            if pid == server:
                code = os.waitstatus_to_exitcode(status)

    def _kill_rest(self, output: int) -> None:
        """Kill what the server left behind (engine and worker processes come to us as orphans) and wait for it."""
        limit = time.monotonic() + KILL_SECONDS
        while True:
            left = processes.descendants(os.getpid())
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            try:
                ended, _ = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if ended == 0:
                if time.monotonic() > limit:
                    self._log.write(f"onecat: cannot be killed, so it is left: {processes.told(left)}")
                    break
                time.sleep(0.02)
        pending, _ = self._pump(output, b"")
        if pending:
            self._log.write(pending.decode("utf-8", "replace"))
        os.close(output)

    def _pause(self, seconds: float) -> bool:
        """Wait before the next start; False when a stop was asked for meanwhile."""
        until = time.time() + seconds
        self._write_state("backing-off", next_start_at=timestamp(until))
        with selectors.DefaultSelector() as selector:
            selector.register(self._wake_read, selectors.EVENT_READ)
            while not self._stop_requested and time.time() < until:
                if selector.select(min(1.0, max(0.0, until - time.time()))):
                    self._drain_wakeups()
        return not self._stop_requested

    # --- signals and state ---------------------------------------------------------------------------------------

    def _on_stop(self, *_: object) -> None:
        self._stop_requested = True

    def _drain_wakeups(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while os.read(self._wake_read, 512):
                pass

    def _state(self, state: str, next_start_at: str | None = None) -> dict[str, Any]:
        own = processes.identify(os.getpid())
        return {
            "schema": SCHEMA,
            "state": state,
            "supervisor": own and own._asdict(),
            "server": self._server and self._server._asdict(),
            "started_at": None if self._server is None or self._started_at is None else timestamp(self._started_at),
            "restarts": self._restarts,
            "crashes_in_a_row": self._crashes,
            "last_exit": self._last_exit and self._last_exit._asdict(),
            "next_start_at": next_start_at,
        }

    def _write_state(self, state: str, next_start_at: str | None = None) -> None:
        """Write `state.json`; when the disk is full the server goes on and the writing is tried again."""
        self._unwritten = self._state(state, next_start_at)
        self._retry_state()

    def _retry_state(self) -> None:
        if self._unwritten is not None:
            with contextlib.suppress(OSError):
                write_json(self._directory / STATE_FILE, self._unwritten)
                self._unwritten = None

    def _end(self, state: str, code: int) -> int:
        self._write_state(state)
        if self._unwritten is not None:
            self._log.write(f"onecat: the state '{state}' could not be written to {STATE_FILE}")
        return code


def _report(channel: int, text: str) -> None:
    os.write(channel, text.encode())
    os.close(channel)


def main(arguments: list[str]) -> int:
    """Become a daemon and supervise. Returns in the starting process: 0 when the daemon is up, 1 with the reason."""
    if len(arguments) != 1:
        print("usage: python -m onecat.deploy.supervisor RELEASE_DIRECTORY", file=sys.stderr)
        return 2
    directory = Path(arguments[0]).absolute()
    launch = read_json(directory / LAUNCH_FILE)
    if launch is None:
        print(f"{directory / LAUNCH_FILE} is missing", file=sys.stderr)
        return 2
    read, write = os.pipe()
    if os.fork():
        os.close(write)
        with open(read, encoding="utf-8") as stream:  # noqa: PTH123 - a descriptor, not a path
            answer = json.loads(stream.read() or '{"error": "the supervisor died while starting"}')
        if "error" in answer:
            print(answer["error"], file=sys.stderr)
            return 1
        return 0
    os.close(read)
    os.setsid()
    if os.fork():
        os._exit(0)
    os.umask(0o077)
    try:
        supervisor = Supervisor(directory, launch)
        supervisor.prepare()
        null = os.open(os.devnull, os.O_RDWR)
        log = os.open(directory / "supervisor.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(null, 0)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.chdir("/")
    except (OSError, KeyError) as error:
        _report(write, json.dumps({"error": f"the supervisor cannot start: {error}"}))
        os._exit(1)
    _report(write, json.dumps({"pid": os.getpid()}))
    return supervisor.run()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
