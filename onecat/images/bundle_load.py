"""A bundle's content into this machine's stores: wheels, sources, images; nothing before all of it is checked."""

from __future__ import annotations

import contextlib
import os
import platform
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onecat.errors import ExitCode, OnecatError
from onecat.files import write_json
from onecat.images.build_host import local_free_space
from onecat.images.bundle import Manifest, Member, OpenMember, members_of, verify_bundle
from onecat.images.bundle_create import IMAGES, LOCK_FILE, PACKAGES, PATCHES, PROFILES, SOURCES, WHEELS, profile_text
from onecat.images.disk import out_of_space_told
from onecat.images.docker_engine import connect, engine_address, unreachable
from onecat.images.engine_images import inspect
from onecat.images.host_check import check_space
from onecat.images.interpreters import OWN_VERSION
from onecat.images.lock import EngineLock, read_lock
from onecat.images.wheels import WheelStore, file_sha256, wheel_store

if TYPE_CHECKING:
    from onecat.paths import Home

Report = Callable[[str], None]


@dataclass(frozen=True)
class Loaded:
    """What a bundle gave.

    profile: what `--profile` takes for it, a name or a file. files: names that were stored now. images: tags that were
    loaded now. directory: where its small files lie. lock_file: its lock file there, if it has one. packages: the
    folder there with wheels for an image's build, if it has any.
    """

    manifest: Manifest
    profile: str
    files: tuple[str, ...]
    images: tuple[str, ...]
    directory: Path
    lock_file: Path | None
    packages: Path | None

    @property
    def has_built_image(self) -> bool:
        """Whether the image that a server starts from came with it: there is nothing to build then."""
        return any(row.get("built") for row in self.manifest.facts["images"])


def load_bundle(
    path: Path, home: Home, report: Report, *, images: bool = True, docker_host: str | None = None
) -> Loaded:
    """Check a bundle, then bring into the stores what they lack. Loading it twice changes nothing.

    Parameters:
        images: whether its images go to the Docker engine at `docker_host`.

    Raises:
        OnecatError: it is damaged, or made for another onecat (exit code 1), no bundle (2), no Docker engine answers
            (3), not enough disk (5). Nothing has been written then, unless the disk filled up underway.
    """
    report(f"bundle: checking {path}")
    manifest = verify_bundle(path, report)
    _check_machine(manifest, path, report)
    store = wheel_store(home)
    recorded = _check_wheels(manifest, store, path)
    _check_series(manifest, path)
    wanted = {each.name: target for each, target in _targets(manifest, home, store) if not _holds(target, each)}
    needs = [(target, each.size) for each in manifest.members if (target := wanted.get(each.name))]
    client = None
    if images and manifest.facts["images"]:
        client = _engine(docker_host)
        lacking = _lacking(client, manifest)
        if not lacking:
            client = None
            report("image: all images are here")
        elif engine_address(docker_host).startswith("unix://"):
            sizes = {row["tag"]: int(row["size"]) for row in manifest.facts["images"]}
            root = str(client.info().get("DockerRootDir") or "")
            # In a virtual machine, or closed to this user, it is a disk that nothing is known of.
            if root and local_free_space(root) is not None:
                needs.append((Path(root), sum(sizes[tag] for tag in lacking)))
    check_space(needs)
    loaded: tuple[str, ...] = ()
    for each in members_of(path, report):
        if each.member.name in wanted:
            _store(each, wanted[each.member.name])
        elif each.member.name == IMAGES and client is not None:
            loaded = _load_images(client, each, manifest, docker_host, report)
    for file, sha256 in store.record(recorded).items():
        report(f"wheels: {file}: the bundle's hash was recorded as sha256 {sha256} in {store.recorded}")
    directory = _directory(manifest, home)
    lock_file = directory / LOCK_FILE if any(each.name == LOCK_FILE for each in manifest.members) else None
    write_json(directory / "manifest.json", {**manifest.facts}, 0o644)
    stored = tuple(sorted(wanted))
    report(f"bundle: {len(stored)} files stored, {len(manifest.members) - len(stored)} were here or are not needed")
    packages = directory / PACKAGES if manifest.below(PACKAGES) else None
    return Loaded(manifest, _profile(manifest, directory), stored, loaded, directory, lock_file, packages)


def _directory(manifest: Manifest, home: Home) -> Path:
    facts = manifest.facts
    return home.data / "bundles" / f"{facts['profile']['name']}-{facts['profile']['sha256'][:12]}"


def _targets(manifest: Manifest, home: Home, store: WheelStore) -> Iterator[tuple[Member, Path]]:
    """Where each member goes; those that only installing onecat needs go nowhere."""
    folders = {
        WHEELS: store.directory,
        SOURCES: home.sources,
        **{name: _directory(manifest, home) / name for name in (PACKAGES, PATCHES, PROFILES)},
    }
    for member in manifest.members:
        top, _, rest = member.name.partition("/")
        if top in folders and rest:
            yield member, folders[top] / rest
        elif member.name == LOCK_FILE:
            yield member, _directory(manifest, home) / LOCK_FILE


def _holds(path: Path, member: Member) -> bool:
    return path.is_file() and path.stat().st_size == member.size and file_sha256(path) == member.sha256


def _check_wheels(manifest: Manifest, store: WheelStore, path: Path) -> dict[str, str]:
    """Hashes to be recorded: file name -> SHA-256, of wheels whose hash this onecat's lock does not know.

    Raises OnecatError (exit code 1) when a wheel is not what this onecat's lock or its record says.
    """
    wheels = manifest.below(WHEELS)
    if not wheels:
        return {}
    engine = manifest.facts["engine"]
    lock: EngineLock = read_lock(engine["name"], engine["version"])
    known = {row.file: store.with_recorded_hash(row).sha256 for row in lock.files}
    new: dict[str, str] = {}
    wrong = []
    for member in wheels:
        file = member.name.removeprefix(f"{WHEELS}/")
        if file not in known:
            wrong.append(f"{file} is not in the lock of {lock.engine} {lock.version}")
        elif known[file] is None:
            new[file] = member.sha256
        elif known[file] != member.sha256:
            wrong += [f"{file} has sha256 {member.sha256}", f"the lock or the record has {known[file]}"]
    if wrong:
        raise _foreign(manifest, path, wrong, "the wheels of its engine lock")
    return new


def _check_machine(manifest: Manifest, path: Path, report: Report) -> None:
    """Raises OnecatError (exit code 1) where nothing of the bundle could run; tells what to mind otherwise."""
    wanted, here = manifest.facts["machine"], platform.machine()
    if wanted != here:
        raise OnecatError(
            f"this bundle is for Linux {wanted}",
            expected=here,
            where=str(path.absolute()),
            next_steps=[f"make one on a {here} machine: onecat bundle create --profile PROFILE"],
            code=ExitCode.NO,
        )
    pythons = manifest.facts["pythons"]
    if manifest.below(WHEELS) and OWN_VERSION not in pythons:
        report(f"bundle: its wheels are for Python {', '.join(pythons)}; onecat runs on {OWN_VERSION} here")


def _check_series(manifest: Manifest, path: Path) -> None:
    """Raises OnecatError (exit code 1) where patches or the source that they are made for are not this onecat's."""
    from onecat.patching import list_series, load_series

    series = manifest.facts["series"]
    pinned: set[tuple[str, str]] = set()
    if series is not None:
        if series["name"] not in list_series():
            raise _foreign(manifest, path, [f"it has no series {series['name']}"], f"the series {series['name']}")
        known = load_series(series["name"])
        if known.digest != series["digest"]:
            details = [f"the bundle's digest is {series['digest']}", f"this onecat's is {known.digest}"]
            raise _foreign(manifest, path, details, f"the series {series['name']}")
        pinned = {(f"{SOURCES}/{known.upstream.file}", known.upstream.sha256)}
    for member in manifest.below(SOURCES):
        if (member.name, member.sha256) not in pinned:
            details = [f"{member.name} with sha256 {member.sha256} is no source that it patches"]
            raise _foreign(manifest, path, details, "the source archives that patches are made for")


def _foreign(manifest: Manifest, path: Path, details: list[str], what: str) -> OnecatError:
    return OnecatError(
        f"this bundle was made by another onecat ({manifest.facts['onecat']})",
        expected=f"{what} as this onecat has them",
        where=str(path.absolute()),
        details=details[:8],
        next_steps=[
            "install the onecat that is in the bundle: its README.txt says how",
            "or make the bundle anew with this version of onecat",
        ],
        code=ExitCode.NO,
    )


def _engine(docker_host: str | None) -> Any:
    try:
        return connect(docker_host)
    except OnecatError as error:
        raise OnecatError(
            f"the bundle has images, and there is no engine for them: {error.found}",
            where=error.where,
            details=error.details,
            next_steps=["load the rest: --no-images", *error.next_steps[:2]],
            code=error.code,
        ) from error


def _lacking(client: Any, manifest: Manifest) -> list[str]:
    """Tags of the bundle that the engine lacks or has for another image."""
    return [row["tag"] for row in manifest.facts["images"] if inspect(client, row["tag"]).get("Id") != row["id"]]


def _store(opened: OpenMember, target: Path) -> None:
    """Write a member to its place, whole and checked or not at all."""
    with out_of_space_told(target.parent):
        target.parent.mkdir(parents=True, exist_ok=True)
        partial = target.with_name(f".{target.name}.{os.getpid()}")
        try:
            with partial.open("wb") as stream:
                for piece in opened.pieces:
                    stream.write(piece)
            partial.replace(target)
        finally:
            partial.unlink(missing_ok=True)


def _load_images(
    client: Any, opened: OpenMember, manifest: Manifest, docker_host: str | None, report: Report
) -> tuple[str, ...]:
    from docker.errors import APIError
    from requests.exceptions import RequestException

    address = engine_address(docker_host)
    lacking = _lacking(client, manifest)
    report(f"image: loading {', '.join(lacking)} into the engine at {address}")
    problem = ""
    try:
        with (
            contextlib.closing(client),
            client.post(
                f"{client.base_url}/v{client.api_version}/images/load",
                params={"quiet": 1},
                data=opened.pieces,
                headers={"Content-Type": "application/gzip"},
                timeout=None,
            ) as answer,
        ):
            problem = answer.text if answer.status_code != 200 or '"error"' in answer.text else ""
    except (APIError, RequestException) as error:
        raise unreachable(address, str(error)) from error
    with contextlib.closing(connect(docker_host)) as again:
        absent = [tag for tag in lacking if not inspect(again, tag)]
    if problem or absent:
        raise OnecatError(
            "the engine did not take the bundle's images",
            expected=f"{', '.join(lacking)} on the engine",
            where=address,
            details=[problem.strip()[:300]] if problem else [f"missing afterwards: {', '.join(absent)}"],
            next_steps=["see what takes the space: docker system df", "then run the same command again"],
            code=ExitCode.ROLLED_BACK,
        )
    return tuple(lacking)


def _profile(manifest: Manifest, directory: Path) -> str:
    """The profile's name where this onecat has the same one, else the file that the bundle brought."""
    from onecat.config import list_profiles, load_profile

    name = str(manifest.facts["profile"]["name"])
    brought = directory / PROFILES / f"{name}.yaml"
    if name in list_profiles() and profile_text(load_profile(name)) == brought.read_bytes():
        return name
    return str(brought)
