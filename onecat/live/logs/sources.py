"""The logs of a deployment on one host."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from onecat.deploy.operations import shown_release
from onecat.deploy.proxies import proxy_of
from onecat.deploy.releases import Release
from onecat.deploy.servers import server_of
from onecat.deploy.store import DeploymentStore, find_deployment
from onecat.errors import ExitCode, OnecatError
from onecat.hosts import Machine, followed_file
from onecat.live.logs.merging import Reader
from onecat.live.logs.moments import offset_of
from onecat.live.logs.records import Source, Stream, Wanted
from onecat.probe.program import PYTHONS

_FOLLOW = (
    "program=$1; shift; "
    f"for p in {' '.join(PYTHONS)}; do "
    'case "$("$p" -V 2>&1 </dev/null)" in "Python 3."[6-9]*|"Python 3."[1-9][0-9]*) '
    'exec "$p" -I -S -c "$program" "$@";; esac; '
    "done; "
    "echo no Python 3.6 or newer on this host, which follows its files >&2; exit 127"
)
"""Runs the text `$1` with the first Python that can; see onecat.probe.program.BOOTSTRAP."""


class Lines(Protocol):
    """Where lines come from; a deploy.Server is one."""

    def last_lines(self, count: int) -> list[str]: ...

    def lines(self, since: float | None = None) -> Iterator[str]: ...

    def follow(self, count: int | None) -> Iterator[str]: ...


@dataclass(frozen=True)
class Log:
    """One log that can be read. is_awaited: whether what writes it is still to be started."""

    reader: Reader
    lines: Lines
    is_awaited: Callable[[], bool] = lambda: False


def open_logs(machine: Machine, wanted: Wanted) -> list[Log]:
    """The logs that are wanted of a deployment on a host.

    Raises OnecatError where there is no such deployment or release, and where nginx's logs are wanted and there is no
    nginx on this host, or only root may read them.
    """
    store = find_deployment(machine, wanted.name)
    release = shown_release(store, wanted.release)
    logs = [_of_server(store, release, "server")]
    canary = store.canary() if wanted.release is None else None
    if canary is not None and canary.number != release.number:
        logs.append(_of_server(store, canary, "canary"))
    if wanted.nginx:
        logs += _of_nginx(store)
    return logs


def newer_logs(machine: Machine, name: str | None, known: Set[int]) -> list[tuple[Log, Release]]:
    """The logs of releases that have begun since: that start, serve, or are tried as a canary, oldest first.

    known: numbers of the releases that are followed, or were. Nothing where the deployment has been removed meanwhile.
    """
    store = find_deployment(machine, name)
    if not known:
        return []
    canary = store.canary_document() or {}
    return [
        (_of_server(store, release, "canary" if release.number == canary.get("release") else "server"), release)
        for release in store.releases_after(max(known))
        if release.live
    ]


def _of_server(store: DeploymentStore, release: Release, stream: Stream) -> Log:
    server = server_of(store.machine, release)

    def is_awaited() -> bool:
        """A release is written down before the one that it replaces makes way."""
        now = store.load(release.number)
        return now is not None and now.outcome == "starting" and server.state().condition == "absent"

    return Log(Reader(Source(store.machine.name, stream, release.number, store.name)), server, is_awaited)


def _of_nginx(store: DeploymentStore) -> list[Log]:
    release = shown_release(store, None)
    if release.own_proxy_kind is None:
        elsewhere = release.front if release.proxied else None
        raise OnecatError(
            f"--nginx: {store.name} has no nginx on this host" + (f": it is on {elsewhere}" if elsewhere else ""),
            where=store.machine.name,
            next_steps=["leave out --nginx"]
            + ([f"read it there: ssh {elsewhere} tail -F /var/log/nginx/error.log"] if elsewhere else []),
            code=ExitCode.USAGE,
        )
    machine = store.machine if release.own_proxy_kind != "host" else store.machine.root()
    if machine is None:
        raise OnecatError(
            "--nginx: the logs of the host's nginx are root's, and this user cannot become root",
            where=store.machine.name,
            next_steps=["run onecat as root, or let this user use sudo", "leave out --nginx"],
            code=ExitCode.USAGE,
        )
    proxy = proxy_of(store, release.own_proxy_kind)
    offset = offset_of(machine.run(["date", "+%z"]).stdout.decode("ascii", "replace"))
    streams: tuple[tuple[Stream, str], ...] = (
        ("nginx error", proxy.error_log_path()),
        ("nginx access", proxy.access_log_path()),
    )
    return [
        Log(Reader(Source(store.machine.name, stream, None, store.name), offset), LogFile(machine, path))
        for stream, path in streams
    ]


class LogFile:
    """A log that is a file on a host and may be begun anew."""

    def __init__(self, machine: Machine, path: str) -> None:
        self._machine = machine
        self._path = path

    def last_lines(self, count: int) -> list[str]:
        """Its last lines, oldest first; none where there is no such file."""
        found = self._machine.run(["tail", "-n", str(count), self._path]).stdout
        return found.decode("utf-8", "replace").splitlines()

    def lines(self, since: float | None = None) -> Iterator[str]:
        """All of it; `since` changes nothing. None where there is no such file."""
        if self._machine.status(self._path) is None:
            return iter(())
        return self._told(["cat", self._path])

    def follow(self, count: int | None) -> Iterator[str]:
        """Its last lines (None: all), then new ones as they come, without an end."""
        program = Path(followed_file.__file__).read_text(encoding="utf-8")
        return self._told(["sh", "-c", _FOLLOW, "sh", program, self._path, str(-1 if count is None else count)])

    def _told(self, argv: list[str]) -> Iterator[str]:
        """The lines that a program prints. Raises OnecatError where it fails."""
        rest = b""
        with self._machine.start(argv) as talk:
            while data := talk.receive():
                *lines, rest = (rest + data).split(b"\n")
                yield from (line.decode("utf-8", "replace") for line in lines)
            if rest:
                yield rest.decode("utf-8", "replace")
            said = talk.errors.decode("utf-8", "replace").strip().splitlines()
            if talk.exit_code not in (0, None) or said:
                raise OnecatError(
                    said[-1] if said else f"{argv[0]} ended with exit code {talk.exit_code}",
                    where=self._path,
                    code=ExitCode.UNREACHABLE,
                )


def lost_error(machine: Machine, error: Exception | None) -> Exception | None:
    """What to tell of an error while a host's logs are read: that its connection is lost, where it is."""
    if not machine.is_lost or (isinstance(error, OnecatError) and error.code is ExitCode.UNREACHABLE):
        return error
    return OnecatError(
        "the connection is lost",
        where=machine.name,
        next_steps=[f"onecat doctor --host {machine.name}"],
        code=ExitCode.UNREACHABLE,
    )
