"""One build and its lock file: what the lock says is used and checked before, what was seen is recorded after."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from packaging.utils import canonicalize_name

from onecat.errors import ExitCode, OnecatError
from onecat.images.context import render_context
from onecat.images.docker_build import find_image
from onecat.images.docker_engine import connect, engine_address
from onecat.images.engine_images import inspect, repository_and_tag
from onecat.images.image_files import read_folder
from onecat.images.lock import lock_path, read_lock
from onecat.images.lock_file import (
    FILE_NAME,
    Key,
    LockEntry,
    differences,
    drifted,
    known_entry,
    read_lock_file,
    write_entry,
)
from onecat.images.native import choose_interpreter
from onecat.images.options import BuildOptions, LockedPackage
from onecat.images.wheels import wheel_store

if TYPE_CHECKING:
    from onecat.config.schema import Profile
    from onecat.paths import Home

Report = Callable[[str], None]
LockMode = Literal["record", "locked", "update"]

REPORTS = "/opt/onecat/share/onecat"
"""Where an image keeps what pip said while it was built (`pip install --report`)."""
LOCAL = "local-image-id"


@dataclass(frozen=True)
class LockSession:
    """A lock file in one build.

    mode: `record` uses the lock and adds what it does not know; `locked` refuses everything that is not as it says,
    and writes nothing; `update` takes what there is. runtime: what is built. docker_host: the engine that builds; None
    for the environment's. looks: whether an engine may be asked at all (not while a context is only rendered).
    plans: nothing is pulled or recorded, for a plan.
    """

    path: Path
    profile: Profile
    home: Home
    mode: LockMode
    runtime: Literal["native", "container"]
    docker_host: str | None = None
    looks: bool = True
    plans: bool = False

    @property
    def entry(self) -> LockEntry | None:
        """What the file says about the profile. Raises OnecatError when it cannot be read."""
        return read_lock_file(self.path).entries.get(self.profile.name)

    def before(self, options: BuildOptions, report: Report) -> BuildOptions:
        """Check what is there against the lock, before anything is built.

        Returns the options with what the lock fixes. Raises OnecatError (exit code 1) for any difference in the mode
        `locked`, and where the lock has no entry for the profile then.
        """
        entry = self.entry
        if entry is None:
            if self.mode == "locked":
                raise OnecatError(
                    f"the lock file has no entry for profile {self.profile.name}"
                    if self.path.exists()
                    else "there is no lock file",
                    where=str(self.path.absolute()),
                    next_steps=[self._update_command()],
                    code=ExitCode.NO,
                )
            return options
        if self.mode == "update":
            return options
        if not self.plans:
            self._take_hashes(entry, report)
            if self.looks and self.runtime == "container":
                self._have_bases(entry, options, report)
        found = self._found(entry)
        different = differences(entry, found)
        if different and self.mode == "locked":
            raise drifted(self.path, self.profile.name, different, self._update_command())
        if different:
            count = f"{len(different)} difference{'s' if len(different) > 1 else ''}"
            report(f"lock: {count}; {self._update_command()} takes what is here into the lock")
        if self.mode == "locked":
            for key, why in sorted(entry.unlocked.items()):
                report(f"lock: not locked: {'.'.join(key)}: {why}")
        return self._with_packages(entry, options, report)

    def after(self, report: Report) -> dict[str, Any]:
        """Compare or record what was built. Returns what the command's document says about the lock.

        Raises OnecatError (exit code 1) when the mode is `locked` and the image is not what the lock says.
        """
        entry = self.entry
        found = self._found(entry)
        if self.looks and self.runtime == "container":
            found = found.with_seen(self._packages_of_image())
        if self.mode == "locked":
            different = differences(entry or LockEntry(), found)
            if different:
                raise drifted(self.path, self.profile.name, different, self._update_command())
            report(f"lock: everything is as {self.path} says")
            return self._document(written=False)
        if entry is None:
            merged, new = found, found.values
        elif self.mode == "update":
            groups = {key[:2] for key in found.values if key[0] in ("images", "packages")}
            kept = {
                key: value
                for key, value in entry.values.items()
                if key[0] in ("images", "packages") and key[:2] not in groups and self._still_meant(key, found)
            }
            merged = LockEntry().with_seen(kept).with_seen(found.values, found.unlocked)
            new = {key: value for key, value in merged.values.items() if entry.values.get(key) != value}
        else:
            new = {key: value for key, value in found.values.items() if self._is_new(key, entry)}
            merged = entry.with_seen(new)
            for each in differences(merged, found):
                report(f"lock: {each}")
        written = write_entry(self.path, self.profile.name, merged)
        if written:
            for line in _groups(new):
                report(f"lock: recorded {line}")
            for key, why in sorted(merged.unlocked.items()):
                report(f"lock: not locked: {'.'.join(key)}: {why}")
        report(f"lock: {self.path} {'written' if written else 'left as it is: nothing new'}")
        return self._document(written)

    def _is_new(self, key: Key, entry: LockEntry) -> bool:
        """Whether the lock knows nothing of that, so that a first look may be recorded."""
        if key in entry.values:
            return False
        unlocked = any(key[:length] in entry.unlocked for length in range(1, len(key) + 1))
        return unlocked or not any(other[:-1] == key[:-1] and len(key) > 1 for other in entry.values)

    def _still_meant(self, key: Key, found: LockEntry) -> bool:
        return key[0] != "images" or key[:2] in found.unlocked

    def _document(self, written: bool) -> dict[str, Any]:
        return {"lock_file": {"path": str(self.path.absolute()), "mode": self.mode, "written": written}}

    def _update_command(self) -> str:
        lock = "" if self.path.parent == Path() and self.path.name == FILE_NAME else f" --lock {self.path}"
        return f"onecat build --profile {self.profile.reference} --runtime {self.runtime} --update-lock{lock}"

    def _found(self, entry: LockEntry | None) -> LockEntry:
        """What there is now: of onecat, of the wheels' record, and of the engine's base images."""
        engine = self.profile.engine
        pythons: tuple[str, ...] = ()
        if self.runtime == "native" and lock_path(engine.name, engine.version).is_file():
            pythons = (choose_interpreter(read_lock(engine.name, engine.version))[1],)
        hashes = wheel_store(self.home).recorded_hashes()
        if self.plans and entry is not None:
            hashes = hashes | self._demanded_hashes(entry)
        found = known_entry(self.profile, hashes, pythons)
        if not (self.looks and self.runtime == "container"):
            return found
        values: dict[Key, str] = {}
        with contextlib.closing(connect(self.docker_host, timeout=600)) as client:
            for base in render_context(self.profile).bases:
                seen = image_identity(base, inspect(client, base), (entry or LockEntry()).values.get(("images", base)))
                if seen is not None:
                    values["images", base] = seen
        return found.with_seen(values)

    def _take_hashes(self, entry: LockEntry, report: Report) -> None:
        """Demand the lock's hashes of wheels that nobody has recorded on this machine yet."""
        for file, sha256 in wheel_store(self.home).record(self._demanded_hashes(entry)).items():
            report(f"lock: {file}: sha256 {sha256} is demanded, as {self.path} says")

    def _demanded_hashes(self, entry: LockEntry) -> dict[str, str]:
        """File name to SHA-256, for wheels that only the lock has a hash of."""
        engine = self.profile.engine
        if not lock_path(engine.name, engine.version).is_file():
            return {}
        known = wheel_store(self.home).recorded_hashes()
        taken: dict[str, str] = {}
        for row in read_lock(engine.name, engine.version).files:
            for python in row.pythons if row.sha256 is None and row.file not in known else ():
                version, _, sha256 = entry.values.get(("packages", python, row.project), "").partition(" sha256:")
                if sha256 and version == row.version:
                    taken[row.file] = sha256
        return taken

    def _have_bases(self, entry: LockEntry, options: BuildOptions, report: Report) -> None:
        """Pull base images that the engine lacks by the digest that the lock names."""
        from docker.errors import APIError
        from requests.exceptions import RequestException

        client = connect(self.docker_host, timeout=600)
        for base in render_context(self.profile).bases:
            locked = entry.values.get(("images", base), "")
            if not locked.startswith("sha256:") or options.origins.offline or inspect(client, base):
                continue
            repository, tag = repository_and_tag(base)
            report(f"lock: pulling {repository}@{locked} as {base}")
            try:
                for _ in client.pull(repository, locked, stream=True, decode=True):
                    pass
                client.tag(f"{repository}@{locked}", repository, tag)
            except (APIError, RequestException) as error:
                raise OnecatError(
                    f"the base image {base} that the lock names cannot be pulled",
                    expected=f"{repository}@{locked}",
                    where=engine_address(self.docker_host),
                    details=[str(getattr(error, "explanation", None) or error)[:300]],
                    next_steps=["load it from a machine that has it: docker save | docker load"],
                    code=ExitCode.UNREACHABLE,
                ) from error

    def _with_packages(self, entry: LockEntry, options: BuildOptions, report: Report) -> BuildOptions:
        """The options with the lock's packages, for images whose packages pip would choose.

        An image that was built without them and holds exactly them stays: compiling it again would change nothing.
        """
        engine = self.profile.engine
        if self.runtime == "native" or lock_path(engine.name, engine.version).is_file():
            return options
        packages = entry.packages(str(self.profile.image.variables.get("python", "")))
        if not packages:
            return options
        if self.looks:
            hashes = wheel_store(self.home).recorded_hashes()
            present = find_image(render_context(self.profile, hashes, options), self.docker_host)
            if present and packages == packages_of(self._reports()):
                report(f"lock: the image that is there holds the lock's {len(packages)} packages")
                return options
        return replace(options, packages=packages)

    def _packages_of_image(self) -> dict[Key, str]:
        """The packages that pip downloaded for the image, read out of it."""
        engine = self.profile.engine
        if lock_path(engine.name, engine.version).is_file():
            return {}
        python = str(self.profile.image.variables.get("python", ""))
        return {
            ("packages", python, row.name): " ".join([row.version, *(f"sha256:{each}" for each in row.sha256)])
            for row in packages_of(self._reports())
        }

    def _reports(self) -> dict[str, bytes]:
        """What pip said while the profile's image was built; nothing without an image."""
        tag = self.profile.image.tag
        with contextlib.closing(connect(self.docker_host, timeout=600)) as client:
            return read_folder(client, tag, REPORTS) if inspect(client, tag) else {}


def image_identity(name: str, inspected: Mapping[str, Any], locked: str | None) -> str | None:
    """What an image is, by content: the digest under which its registry has it, else its id, marked as local.

    An image may have several digests of one name; the locked one is preferred. None for an image that is not there.
    """
    if not inspected:
        return None
    repository = repository_and_tag(name)[0]
    names = [each.rpartition("@") for each in inspected.get("RepoDigests") or ()]
    # A registry's own name may be left out or written in full: docker.io/library/python is python.
    digests = sorted(digest for given, _, digest in names if given == repository or given.endswith(f"/{repository}"))
    if locked in digests:
        return locked
    return digests[0] if digests else f"{LOCAL} {inspected['Id']}"


def packages_of(reports: Mapping[str, bytes]) -> tuple[LockedPackage, ...]:
    """The packages that pip downloaded, by its installation reports (file name -> JSON); sorted by name.

    Wheels that were built on the spot are left out: they follow from the source and the patches. A package that was
    installed without a known hash is left out too: it cannot be locked.
    """
    found: dict[str, LockedPackage] = {}
    for _, content in sorted(item for item in reports.items() if item[0].startswith("pip-")):
        for row in json.loads(content)["install"]:
            hashes = row["download_info"].get("archive_info", {}).get("hashes", {})
            if row.get("is_direct") or "sha256" not in hashes:
                continue
            name = canonicalize_name(row["metadata"]["name"])
            found[name] = LockedPackage(name, row["metadata"]["version"], (hashes["sha256"],))
    return tuple(found[name] for name in sorted(found))


def _groups(values: Mapping[Key, str]) -> list[str]:
    """One line for each kind of thing; the packages of one Python version are one."""
    lines = []
    packages: dict[str, int] = {}
    for key, value in sorted(values.items()):
        if key[0] == "packages":
            packages[key[1]] = packages.get(key[1], 0) + 1
        else:
            lines.append(f"{'.'.join(key)}: {value}")
    return [*lines, *(f"packages.{python}: {count} with their hashes" for python, count in packages.items())]
