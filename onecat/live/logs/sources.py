"""The logs of a deployment on one host."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from onecat.deploy.operations import shown_release
from onecat.deploy.proxies import proxy_of
from onecat.deploy.proxies.directory import DirectoryNginx
from onecat.deploy.releases import Release
from onecat.deploy.servers import server_of
from onecat.deploy.store import DeploymentStore, find_deployment
from onecat.errors import ExitCode, OnecatError
from onecat.hosts import Machine
from onecat.live.logs.merging import Reader
from onecat.live.logs.moments import offset_of
from onecat.live.logs.records import Source, Stream, Wanted

MOST_LINES = 200_000
"""Lines of a log's end that are searched where no number of lines bounds it: some 40 MB."""
_POLL_SECONDS = 0.5


class Lines(Protocol):
    """Where lines come from; a deploy.Server is one."""

    def last_lines(self, count: int) -> list[str]: ...

    def follow(self, count: int) -> Iterator[str]: ...


@dataclass(frozen=True)
class Log:
    """One log that can be read."""

    reader: Reader
    lines: Lines


def open_logs(machine: Machine, wanted: Wanted) -> list[Log]:
    """The logs that are wanted of a deployment on a host.

    Raises OnecatError where there is no such deployment or release, and where nginx's logs are wanted and the nginx is
    none of onecat's own.
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


def _of_server(store: DeploymentStore, release: Release, stream: Stream) -> Log:
    source = Source(store.machine.name, stream, release.number, store.name)
    return Log(Reader(source), server_of(store.machine, release))


def _of_nginx(store: DeploymentStore) -> list[Log]:
    machine, release = store.machine, shown_release(store, None)
    proxy = None if release.own_proxy_kind is None else proxy_of(store, release.own_proxy_kind)
    if not isinstance(proxy, DirectoryNginx):
        host = "its nginx runs on another host" if release.front is not None else "its nginx is the host's"
        raise OnecatError(
            f"--nginx: {store.name} has no nginx of onecat's own" + (f": {host}" if release.proxied else ""),
            where=machine.name,
            expected="proxy.instance: own or container, in onecat.yaml",
            next_steps=["leave out --nginx; the host's nginx writes to /var/log/nginx"],
            code=ExitCode.USAGE,
        )
    offset = offset_of(machine.run(["date", "+%z"]).stdout.decode("ascii", "replace"))
    streams: tuple[tuple[Stream, str], ...] = (
        ("nginx error", proxy.error_log_path),
        ("nginx access", proxy.access_log_path),
    )
    return [
        Log(Reader(Source(machine.name, stream, None, store.name), offset), LogFile(machine, path))
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

    def follow(self, count: int) -> Iterator[str]:
        """Its last lines, then new ones as they come, without an end."""
        seen = self._machine.status(self._path)
        position = 0 if seen is None else seen.size
        yield from self.last_lines(count)
        rest = b""
        while True:
            time.sleep(_POLL_SECONDS)
            seen = self._machine.status(self._path)
            size = 0 if seen is None else seen.size
            if size < position:
                position, rest = 0, b""
            if size > position:
                data = self._machine.read_part(self._path, position, size - position)
                position += len(data)
                *lines, rest = (rest + data).split(b"\n")
                yield from (line.decode("utf-8", "replace") for line in lines)


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
