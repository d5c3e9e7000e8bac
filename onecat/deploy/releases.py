"""Releases on disk: numbered directories that people can read, one lock per deployment.

deployments/NAME/lock                who is deploying
deployments/NAME/deployment.json     which release is the current one
deployments/NAME/proxy/              the running nginx's own directory
deployments/NAME/releases/0003/      plan.json, release.json, launch.json, nginx/, systemd/, state.json, server.log
"""

from __future__ import annotations

import contextlib
import fcntl
import getpass
import json
import os
import shutil
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal, TextIO

from onecat.deploy.supervisor import timestamp
from onecat.errors import ExitCode, OnecatError
from onecat.files import read_json, write_json
from onecat.paths import Home

RELEASE_SCHEMA = "onecat.release/1"
DEPLOYMENT_SCHEMA = "onecat.deployment/1"
KEPT_RELEASES = 5

# starting: not accepted yet. serving: accepted. failed: its start failed. stopped: ended by `down` or a newer release.
Outcome = Literal["starting", "serving", "failed", "interrupted", "stopped"]


@dataclass(frozen=True)
class Release:
    """One rendered and started deployment.

    fingerprint: hash of everything that decides how the server runs; equal means nothing would change.
    host, port: where the server itself answers; endpoint: the address for clients, without /v1.
    container: the container's name, or None for a native server; docker_host: the daemon it runs on (None: default).
    protected: whether clients must send an API key. cause: why it failed.
    """

    deployment: str
    number: int
    directory: Path
    runtime: Literal["native", "container"]
    profile: str
    model: str
    host: str
    port: int
    endpoint: str
    proxied: bool
    protected: bool
    fingerprint: str
    created_at: str
    container: str | None = None
    docker_host: str | None = None
    outcome: Outcome = "starting"
    cause: str | None = None

    @property
    def server_url(self) -> str:
        """The server's own address as this machine reaches it."""
        return f"http://{reachable(self.host)}:{self.port}"

    @property
    def endpoint_port(self) -> int:
        """The port of the address for clients."""
        return int(self.endpoint.rpartition(":")[2])


def reachable(host: str) -> str:
    """The address to connect to for a server that listens on `host`; IPv6 in brackets."""
    address = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}.get(host, host)  # noqa: S104 - compared, not bound
    return f"[{address}]" if ":" in address else address


class DeploymentStore:
    """The directory of one deployment."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.name = directory.name
        self.proxy_directory = directory / "proxy"
        self._releases = directory / "releases"
        self._document = directory / "deployment.json"

    def exists(self) -> bool:
        return self._document.exists()

    def releases(self) -> tuple[Release, ...]:
        """All kept releases, oldest first."""
        if not self._releases.is_dir():
            return ()
        numbers = sorted(int(path.name) for path in self._releases.iterdir() if path.name.isdigit())
        found = (self.load(number) for number in numbers)
        return tuple(release for release in found if release is not None)

    def release_directory(self, number: int) -> Path:
        return self._releases / f"{number:04d}"

    def load(self, number: int) -> Release | None:
        directory = self.release_directory(number)
        document = read_json(directory / "release.json")
        if document is None:
            return None
        fields = {name: value for name, value in document.items() if name not in ("schema", "directory")}
        return Release(directory=directory, **fields)

    def current(self) -> Release | None:
        """The release that serves or should serve; None when there is none or it was taken down."""
        document = read_json(self._document)
        number = None if document is None else document["current"]
        return None if number is None else self.load(number)

    def latest(self) -> Release | None:
        """The newest release, whatever became of it."""
        return next(iter(self.releases()[::-1]), None)

    def new_directory(self) -> tuple[int, Path]:
        """Make the directory of the next release."""
        newest = self.latest()
        number = 1 if newest is None else newest.number + 1
        directory = self.release_directory(number)
        if directory.exists():
            shutil.rmtree(directory)  # left without release.json by an `up` that was killed while rendering
        directory.mkdir(parents=True, mode=0o700)
        return number, directory

    def save(self, release: Release) -> Release:
        document = {"schema": RELEASE_SCHEMA, **asdict(release)}
        del document["directory"]
        write_json(release.directory / "release.json", document)
        return release

    def end(self, release: Release, outcome: Outcome, cause: str | None = None) -> Release:
        """Write down what became of a release; one that does not serve needs its secrets no longer."""
        if outcome != "serving" and (release.directory / "secrets").exists():
            shutil.rmtree(release.directory / "secrets")
        return self.save(replace(release, outcome=outcome, cause=cause))

    def taken_down(self) -> bool:
        """Whether `down` was the last thing that happened: no release was tried since."""
        document, latest = read_json(self._document), self.latest()
        return document is not None and latest is not None and document["down_after"] == latest.number

    def set_current(self, number: int | None) -> None:
        """Say which release is the current one; None when all are taken down."""
        latest = self.latest()
        document = {
            "schema": DEPLOYMENT_SCHEMA,
            "name": self.name,
            "current": number,
            "down_after": latest.number if number is None and latest is not None else None,
            "updated_at": timestamp(time.time()),
        }
        write_json(self._document, document)

    def prune(self, keep: int = KEPT_RELEASES) -> None:
        """Remove the oldest releases; the current one and those that still serve stay."""
        current = self.current()
        protected = {current.number} if current else set()
        for release in self.releases()[:-keep]:
            if release.number not in protected and release.outcome not in ("serving", "starting"):
                shutil.rmtree(release.directory)

    @contextlib.contextmanager
    def lock(self, purpose: str) -> Iterator[None]:
        """Hold the deployment for oneself; raises OnecatError naming the holder when another has it.

        The kernel's lock on the file (flock(2)) decides, so a lock whose holder died is free again at once; the text in
        the file only tells who holds it. A deployment that has no release at the end leaves nothing behind.
        """
        existed = self.directory.exists()
        self.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        with self._locked_file() as stream:
            holder = {"who": _user(), "pid": os.getpid(), "since": timestamp(time.time()), "purpose": purpose}
            stream.truncate(0)
            stream.write(json.dumps(holder, indent=2) + "\n")
            stream.flush()
            try:
                yield
            finally:
                stream.truncate(0)
                if not existed and not self.exists() and not self.releases():
                    shutil.rmtree(self.directory)

    @contextlib.contextmanager
    def _locked_file(self) -> Iterator[TextIO]:
        path = self.directory / "lock"
        with path.open("a+", encoding="utf-8") as stream:
            try:
                fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise _held(path) from error
            # The file may have been removed between opening and locking: then the lock holds nobody off.
            if not path.exists() or path.stat().st_ino != os.fstat(stream.fileno()).st_ino:
                raise _held(path)
            yield stream


def deployments(home: Home) -> tuple[DeploymentStore, ...]:
    """All deployments of this machine, by name."""
    if not home.deployments.is_dir():
        return ()
    stores = (DeploymentStore(path) for path in sorted(home.deployments.iterdir()) if path.is_dir())
    return tuple(store for store in stores if store.exists() or store.releases())


def find_deployment(home: Home, name: str | None) -> DeploymentStore:
    """The deployment called `name`, or the only one there is. Raises OnecatError."""
    stores = deployments(home)
    names = [store.name for store in stores]
    if name is None and len(stores) == 1:
        return stores[0]
    if name is not None and name in names:
        return stores[names.index(name)]
    if not stores:
        found = "nothing is deployed on this machine" if name is None else f"there is no deployment {name}"
        raise OnecatError(found, where=str(home.deployments), next_steps=["onecat quickstart", "onecat init"])
    if name is None:
        raise OnecatError("there are several deployments", expected=f"one of: {', '.join(names)}")
    raise OnecatError(f"there is no deployment {name}", expected=f"one of: {', '.join(names)}")


def current_release(home: Home, name: str) -> Release | None:
    """The release of deployment `name` that serves or should serve."""
    return DeploymentStore(home.deployments / name).current()


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())


def _held(path: Path) -> OnecatError:
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    try:
        holder: dict[str, Any] = json.loads(text)
        told = f"{holder['who']} runs `{holder['purpose']}` since {holder['since']} (pid {holder['pid']})"
        step = f"wait for it, or end it: kill {holder['pid']}"
    except (ValueError, KeyError):
        told, step = "another onecat is just starting on it", "try again in a moment"
    return OnecatError(
        f"deployment {path.parent.name} is being worked on: {told}",
        where=str(path),
        next_steps=[step],
        code=ExitCode.ROLLED_BACK,
    )
