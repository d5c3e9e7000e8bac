"""Deployments on a host: numbered directories that people can read, one lock per deployment.

deployments/NAME/lock                who is deploying
deployments/NAME/deployment.json     which release is the current one, which one is tried beside it
deployments/NAME/audit.jsonl         who did what when
deployments/NAME/traffic-own.json    where an nginx of that kind sends requests
deployments/NAME/proxy/              an nginx of our own: its files, process id and logs
deployments/NAME/proxy-container/    an nginx in a container: its files and logs
deployments/NAME/releases/0003/      plan.json, release.json, launch.json or container.json, nginx/, systemd/
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import shlex
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from onecat.deploy.audit import AuditLog, user_name
from onecat.deploy.releases import Outcome, Release, from_document, to_document
from onecat.deploy.supervisor import timestamp
from onecat.errors import ExitCode, OnecatError
from onecat.hosts.machine import LockHeldError

if TYPE_CHECKING:
    from onecat.hosts import Machine

LOCK, FLEET_LOCK = "lock", "fleet.lock"
DEPLOYMENT_SCHEMA = "onecat.deployment/1"


class DeploymentStore:
    """The directory of one deployment on one host."""

    def __init__(self, machine: Machine, name: str) -> None:
        self.machine = machine
        self.name = name
        self.directory = f"{deployments_directory(machine)}/{name}"
        self.proxy_directory = f"{self.directory}/proxy"
        self.audit = AuditLog(machine, self.directory)
        self._releases = f"{self.directory}/releases"
        self.document = f"{self.directory}/deployment.json"

    def exists(self) -> bool:
        return self.machine.status(self.document) is not None

    def releases(self) -> tuple[Release, ...]:
        """All kept releases, oldest first."""
        found = (self.load(number) for number in self._numbers())
        return tuple(release for release in found if release is not None)

    def releases_after(self, number: int) -> tuple[Release, ...]:
        """Kept releases that are newer than release `number`, oldest first."""
        found = (self.load(each) for each in self._numbers() if each > number)
        return tuple(release for release in found if release is not None)

    def _numbers(self) -> list[int]:
        return sorted(int(name) for name in self.machine.names(self._releases) if name.isdigit())

    def release_directory(self, number: int) -> str:
        return f"{self._releases}/{number:04d}"

    def load(self, number: int) -> Release | None:
        directory = self.release_directory(number)
        path = f"{directory}/release.json"
        document = read_json(self.machine, path)
        if document is None:
            return None
        with understood(self.machine, path):
            return from_document(document, directory)

    def current(self) -> Release | None:
        """The release that serves or should serve; None when there is none or it was taken down."""
        return self._said(self._deployment().get("current"))

    def canary(self) -> Release | None:
        """The release that is tried beside the current one."""
        found = self.canary_document()
        return None if found is None else self._said(found.get("release"))

    def canary_document(self) -> dict[str, Any] | None:
        """What was written down about the canary: its release, share and limits; see `onecat.deploy.canary`."""
        found = self._deployment().get("canary")
        return found if isinstance(found, dict) else None

    def refuse_canary(self) -> None:
        """Raises OnecatError while a release is tried beside the current one: what shall become of it comes first."""
        canary = self.canary()
        if canary is not None:
            raise OnecatError(
                f"release {canary.number} of {self.name} is tried as a canary",
                expected="no canary while releases are changed",
                next_steps=[
                    f"onecat promote {self.name}   (it takes over)",
                    f"onecat abort {self.name}     (it goes)",
                    f"onecat canary {self.name}    (how it does)",
                ],
                code=ExitCode.ROLLED_BACK,
            )

    def latest(self) -> Release | None:
        """The newest release, whatever became of it."""
        # One after the other from the newest on: on another host each takes several round trips.
        found = (self.load(number) for number in reversed(self._numbers()))
        return next((release for release in found if release is not None), None)

    def new_directory(self) -> tuple[int, str]:
        """Make the directory of the next release."""
        newest = self.latest()
        number = 1 if newest is None else newest.number + 1
        directory = self.release_directory(number)
        self.machine.remove(directory)  # left without release.json by an `up` that was killed while rendering
        self.machine.make_directory(directory)
        return number, directory

    def save(self, release: Release) -> Release:
        write_json(self.machine, f"{release.directory}/release.json", to_document(release))
        return release

    def end(self, release: Release, outcome: Outcome, cause: str | None = None) -> Release:
        """Write down what became of a release; one that does not serve needs its secrets no longer."""
        if outcome not in ("serving", "canary"):
            self.machine.remove(f"{release.directory}/secrets")
        served_at = release.served_at or (timestamp(time.time()) if outcome == "serving" else None)
        ended = self.save(replace(release, outcome=outcome, cause=cause, served_at=served_at))
        self.audit.record(outcome, release.number, **({"cause": cause} if cause else {}))
        return ended

    def taken_down(self) -> bool:
        """Whether `down` was the last thing that happened: no release was tried since."""
        after = self._deployment().get("down_after")
        latest = None if after is None else self.latest()
        return latest is not None and after == latest.number

    def set_current(self, number: int | None, canary: dict[str, Any] | None = None) -> None:
        """Say which release is the current one, and which one is tried beside it; None when all are taken down."""
        latest = self.latest() if number is None else None
        document = {
            "schema": DEPLOYMENT_SCHEMA,
            "name": self.name,
            "current": number,
            "canary": canary,
            "down_after": latest.number if latest is not None else None,
            "updated_at": timestamp(time.time()),
        }
        write_json(self.machine, self.document, document)

    def prune(self, keep: int) -> None:
        """Remove the oldest releases; the current one, the one to go back to and those that still serve stay.

        Releases of experiments are counted by themselves: dozens of them push none out that was meant to serve.
        """
        current = self.current()
        kept = self.releases()
        meant = [each for each in kept if each.purpose != "bench"]
        earlier = [each for each in meant if each.served_at and current and each.fingerprint != current.fingerprint]
        protected = {each.number for each in (current, *earlier[-1:]) if each is not None}
        for release in (*meant[:-keep], *[each for each in kept if each.purpose == "bench"][:-keep]):
            if release.number not in protected and not release.live:
                self.machine.remove(release.directory)

    @contextlib.contextmanager
    def lock(self, purpose: str, file: str = LOCK) -> Iterator[None]:
        """Hold the deployment for oneself; raises OnecatError naming the holder when another has it.

        file: FLEET_LOCK for the deployment on all of its hosts, which is taken before those of each host.

        The host's kernel decides, so a lock whose holder died is free again at once; the text in the file only tells
        who holds it. A deployment that has no release at the end leaves nothing behind.
        """
        existed = self.machine.status(self.directory) is not None
        self.machine.make_directory(self.directory)
        holder = {
            "who": user_name(),
            "operator": platform.node(),
            "pid": os.getpid(),
            "since": timestamp(time.time()),
            "purpose": purpose,
        }
        try:
            with self.machine.lock(f"{self.directory}/{file}", json.dumps(holder, indent=2) + "\n"):
                try:
                    yield
                finally:
                    if not existed and not self.machine.is_lost and not self.exists() and not self.releases():
                        self.machine.remove(self.directory)
        except LockHeldError as held:
            raise _held(self, held) from held

    def _deployment(self) -> dict[str, Any]:
        found = read_json(self.machine, self.document)
        with understood(self.machine, self.document):
            return dict(found or {})

    def _said(self, number: Any) -> Release | None:
        """The release of a number that deployment.json says; None where it says none, or its directory is gone."""
        with understood(self.machine, self.document):
            number = None if number is None else int(number)
        return None if number is None else self.load(number)


def deployments_directory(machine: Machine) -> str:
    """Where the deployments of a host lie."""
    return f"{machine.data_directory}/deployments"


def deployments(machine: Machine) -> tuple[DeploymentStore, ...]:
    """All deployments of a host, by name."""
    stores = (DeploymentStore(machine, name) for name in machine.names(deployments_directory(machine)))
    return tuple(store for store in stores if store.exists() or store.releases())


def find_deployment(machine: Machine, name: str | None) -> DeploymentStore:
    """The deployment called `name`, or the only one there is. Raises OnecatError."""
    stores = deployments(machine)
    names = [store.name for store in stores]
    if name is None and len(stores) == 1:
        return stores[0]
    if name is not None and name in names:
        return stores[names.index(name)]
    if not stores:
        place = "this machine" if machine.is_local else machine.name
        found = f"nothing is deployed on {place}" if name is None else f"there is no deployment {name}"
        steps = ["onecat quickstart", "onecat init"] if name is None else ["onecat up   (beside its onecat.yaml)"]
        raise OnecatError(found, where=deployments_directory(machine), next_steps=steps)
    if name is None:
        raise OnecatError(
            "there are several deployments",
            expected=f"one of: {', '.join(names)}",
            next_steps=[f"name it, as the same command with {names[0]}", "all of them: onecat status"],
        )
    raise OnecatError(f"there is no deployment {name}", expected=f"one of: {', '.join(names)}")


def read_json(machine: Machine, path: str) -> Any | None:
    """The document in a file of a host, or None when there is no such file. Raises OnecatError when it is not JSON."""
    content = machine.read(path)
    with understood(machine, path):
        return None if content is None else json.loads(content)


@contextlib.contextmanager
def understood(machine: Machine, path: str) -> Iterator[None]:
    """While a document of onecat's own is read: what somebody has made of it by hand is told with its place."""
    try:
        yield
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise OnecatError(
            "a file that onecat has written is damaged",
            expected="what onecat wrote there; nobody else changes it",
            where=path if machine.is_local else f"{path} on {machine.name}",
            details=[f"{type(error).__name__}: {error}"],
            next_steps=[
                f"correct it, or do without what it says: mv {shlex.quote(path)} {shlex.quote(path + '.damaged')}",
                "then: onecat status",
            ],
            code=ExitCode.NEEDS_PERSON,
        ) from error


def write_json(machine: Machine, path: str, document: Any, mode: int = 0o600) -> None:
    """Write one JSON document, indented for people, atomically, on a host."""
    machine.write(path, (json.dumps(document, indent=2, ensure_ascii=False) + "\n").encode(), mode)


def _held(store: DeploymentStore, held: LockHeldError) -> OnecatError:
    try:
        holder: dict[str, Any] = json.loads(held.holder)
        told = (
            f"{holder['who']} on {holder['operator']} runs `{holder['purpose']}` since {holder['since']} "
            f"(pid {holder['pid']})"
        )
        step = f"wait for it, or end it there (on {holder['operator']}): kill {holder['pid']}"
    except (ValueError, KeyError):
        told, step = "another onecat is just starting on it", "try again in a moment"
    return OnecatError(
        f"deployment {store.name} is being worked on: {told}",
        where=held.path if store.machine.is_local else f"{held.path} on {store.machine.name}",
        next_steps=[
            step,
            f"onecat unlock {store.name}{'' if store.machine.is_local else ' --host ' + store.machine.name}, "
            "when nobody is at work any more",
        ],
        code=ExitCode.ROLLED_BACK,
    )
