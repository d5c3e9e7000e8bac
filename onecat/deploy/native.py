"""The native runtime: the server as a process of this user, looked after by `onecat.deploy.supervisor`."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from onecat.deploy import processes, supervisor
from onecat.deploy.server import Activity, Secret, ServerState
from onecat.errors import ExitCode, OnecatError
from onecat.files import read_json, write_json
from onecat.hosts.followed_file import POLL_SECONDS, FollowedFile

if TYPE_CHECKING:
    from onecat.config.schema import Restart

# The log of one release takes at most LOG_BYTES * (LOG_PIECES + 1) of disk space.
LOG_BYTES = 16 * 1024 * 1024
LOG_PIECES = 3
STOP_SECONDS = 30.0
_ENDED = ("stopped", "exited", "keeps-crashing")
_STATE_KEYS = {
    *("supervisor", "server", "state", "started_at", "restarts", "crashes_in_a_row", "last_exit", "next_start_at")
}


def launch_document(
    argv: Sequence[str], env: Mapping[str, str], restart: Restart, secret: Secret | None
) -> dict[str, Any]:
    """What the supervisor needs to know, as the content of `launch.json`. Holds the secret's place, never its value."""
    return {
        "argv": list(argv),
        "env": dict(env),
        "secret": secret and {"variable": "VLLM_API_KEY", "file": secret.file, "env": secret.env},
        "restart": restart.model_dump(),
        "stop_seconds": STOP_SECONDS,
        "log": {"max_bytes": LOG_BYTES, "keep": LOG_PIECES},
    }


class NativeServer:
    """The server of the release in `directory`; implements `onecat.deploy.server.Server`."""

    def __init__(self, directory: str) -> None:
        self._directory = Path(directory)
        self._log = self._directory / supervisor.LOG_FILE

    @classmethod
    def prepare(cls, directory: str, launch: Mapping[str, Any]) -> NativeServer:
        """Write what the supervisor reads."""
        write_json(Path(directory) / supervisor.LAUNCH_FILE, dict(launch))
        return cls(directory)

    def start(self) -> None:
        self._forget_last_run()
        package_root = Path(__file__).resolve().parents[2]
        with tempfile.TemporaryFile() as said:
            with subprocess.Popen(
                [sys.executable, "-m", "onecat.deploy.supervisor", str(self._directory)],
                cwd=package_root,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=said,
                start_new_session=True,
            ) as process:
                _wait_for(process)
            said.seek(0)
            told = said.read().decode("utf-8", "replace")
        if process.returncode != 0:
            *before, reason = told.strip().splitlines() or ["the supervisor could not be started"]
            raise OnecatError(
                f"the server did not start: {reason}",
                where=str(self._directory),
                details=before[-5:],
                next_steps=["read the reason above, then run onecat up again"],
                code=ExitCode.ROLLED_BACK,
            )

    def accept(self) -> None:
        (self._directory / supervisor.ACCEPTED_FILE).touch(mode=0o600)

    def stop(self) -> None:
        if self._directory.is_dir():
            (self._directory / supervisor.ENDED_FILE).touch(mode=0o600)
        document = self._document()
        if document is None:
            return
        guardian = _identity(document["supervisor"])
        if guardian is not None and processes.alive(guardian):
            os.kill(guardian.pid, signal.SIGTERM)
            limit = time.monotonic() + STOP_SECONDS + 15
            while processes.alive(guardian) and time.monotonic() < limit:
                time.sleep(0.05)
            if processes.alive(guardian):
                left = processes.descendants(guardian.pid)
                _kill((guardian.pid, *left))
        self._kill_left_over(document)

    def state(self) -> ServerState:
        document = self._document()
        if document is None:
            return ServerState("absent")
        server = _identity(document["server"])
        guardian = _identity(document["supervisor"])
        guarded = guardian is not None and processes.alive(guardian)
        last_exit = document["last_exit"]
        condition = document["state"]
        if condition == "stopping":
            condition = "running" if guarded else "stopped"
        elif condition not in _ENDED and not guarded:
            condition = "lost"
        return ServerState(
            condition=condition,
            pid=server.pid if server is not None and processes.alive(server) else None,
            started_at=document["started_at"],
            restarts=document["restarts"],
            crashes_in_a_row=document["crashes_in_a_row"],
            last_exit=None if last_exit is None else f"{last_exit['text']} at {last_exit['at']}",
            next_start_at=document["next_start_at"],
        )

    def activity(self) -> Activity:
        document = self._document()
        guardian = None if document is None else _identity(document["supervisor"])
        if guardian is None:
            return Activity(0.0, 0)
        used = processes.usage(processes.descendants(guardian.pid))
        return Activity(used.cpu_seconds, used.read_bytes, used.runnable)

    def last_lines(self, count: int) -> list[str]:
        return list(deque(self.lines(), maxlen=count))

    def lines(self, since: float | None = None) -> Iterator[str]:
        with contextlib.closing(FollowedFile(str(self._log))) as newest:
            yield from self._kept(newest, since)
            yield from map(_text, newest.rest())

    def follow(self, count: int | None) -> Iterator[str]:
        with contextlib.closing(FollowedFile(str(self._log))) as newest:
            yield from deque(self._kept(newest), maxlen=count)
            while True:
                ended = self.state().condition in (*_ENDED, "absent")
                while lines := newest.lines():
                    yield from map(_text, lines)
                if ended:
                    yield from map(_text, newest.rest())
                    return
                time.sleep(POLL_SECONDS)

    def _kept(self, newest: FollowedFile, since: float | None = None) -> Iterator[str]:
        """The lines of all pieces, oldest first; the newest one has been opened and is read on by the caller."""
        with contextlib.ExitStack() as opened:
            pieces: dict[int, IO[bytes]] = {}
            # From the newest on: what is rotated meanwhile is met again under its next name, and never missed.
            for number in range(1, LOG_PIECES + 1):
                with contextlib.suppress(FileNotFoundError):
                    path = self._log.with_name(f"{self._log.name}.{number}")
                    piece: IO[bytes] = opened.enter_context(path.open("rb"))
                    found = os.fstat(piece.fileno())
                    is_met = newest.identity == (found.st_dev, found.st_ino) or found.st_ino in pieces
                    if not is_met and (since is None or found.st_mtime >= since):
                        pieces[found.st_ino] = piece
            for piece in reversed(pieces.values()):
                yield from (_text(line.rstrip(b"\n")) for line in piece)
        while lines := newest.lines():
            yield from map(_text, lines)

    def _document(self) -> Any | None:
        path = self._directory / supervisor.STATE_FILE
        try:
            document = read_json(path)
            if document is not None and not (isinstance(document, dict) and document.keys() >= _STATE_KEYS):
                raise ValueError("it is no state of a server")
            return document
        except ValueError as error:
            raise OnecatError(
                "a file that the supervisor of the server has written is damaged",
                where=str(path),
                details=[str(error)],
                next_steps=["stop the server by hand, remove that file, then: onecat up"],
                code=ExitCode.NEEDS_PERSON,
            ) from error

    def _forget_last_run(self) -> None:
        for name in (supervisor.STATE_FILE, supervisor.ACCEPTED_FILE, supervisor.ENDED_FILE):
            with contextlib.suppress(FileNotFoundError):
                (self._directory / name).unlink()

    def _kill_left_over(self, document: dict[str, Any]) -> None:
        """Where the supervisor was killed: end what is left of the server."""
        left = set(processes.with_variable(supervisor.MARK, str(self._directory)))
        server = _identity(document["server"])
        if server is not None and _session_is_ours(server):
            left.update(processes.session_members(server.pid))
        _kill(tuple(left))


def _text(line: bytes) -> str:
    return line.decode("utf-8", "replace")


def _session_is_ours(server: processes.ProcessIdentity) -> bool:
    """Whether the session that `server` has led may still be the one of that number."""
    leader = processes.entry(server.pid)
    # A leader with another start time has taken the number over, so none of the old session is left.
    same_leader = leader is None or leader.start_ticks == server.start_ticks
    return same_leader and server.boot_id == processes.boot_id()


def _identity(document: Mapping[str, Any] | None) -> processes.ProcessIdentity | None:
    return None if document is None else processes.ProcessIdentity(**document)


def _wait_for(process: subprocess.Popen[bytes]) -> None:
    """Wait for the program that starts the supervisor. A Ctrl-C meanwhile counts afterwards.

    It ends by itself as soon as there is a state.json by which the supervisor can be found and ended.
    """
    interrupted = False
    while process.returncode is None:
        try:
            process.wait()
        except KeyboardInterrupt:
            interrupted = True
    if interrupted:
        raise KeyboardInterrupt


def _kill(pids: Sequence[int]) -> None:
    """Kill processes and wait for their end. Raises OnecatError when the kernel does not end one."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    limit = time.monotonic() + supervisor.KILL_SECONDS
    while left := processes.told(pids):
        if time.monotonic() > limit:
            raise OnecatError(
                f"the kernel does not end {left}",
                expected="an end right after SIGKILL; state D waits for a driver or a disk",
                next_steps=["see what the kernel says: dmesg | tail -n 50", "restart the machine if it stays"],
                code=ExitCode.NEEDS_PERSON,
            )
        time.sleep(0.02)
