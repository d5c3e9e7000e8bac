"""The image of a profile, from its recipe to a tag on a Docker engine."""

from __future__ import annotations

import contextlib
import hashlib
import io
import re
import tarfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onecat.errors import ExitCode, OnecatError
from onecat.images.context import DEFAULT_OPTIONS, Context, render_context
from onecat.images.docker_build import (
    BuilderChoice,
    BuiltImage,
    build_image,
    build_stage,
    check_buildable,
    find_image,
)
from onecat.images.docker_engine import connect
from onecat.images.interpreters import interpreters
from onecat.images.options import BuildOptions
from onecat.images.wheels import Downloader, WheelStore, fetch, wheel_store

if TYPE_CHECKING:
    from onecat.config.schema import Profile
    from onecat.paths import Home

Report = Callable[[str], None]

WHEELS_IN_STAGE = "/wheels"
"""Where the stage that makes the engine's wheel leaves it."""


@dataclass(frozen=True)
class BuiltWheel:
    """A wheel that was taken out of its build stage. sha256: in hex. size: in bytes. build: the stage it is from."""

    path: Path
    sha256: str
    size: int
    build: BuiltImage


def ensure_image(
    profile: Profile,
    home: Home,
    docker_host: str | None,
    report: Report,
    options: BuildOptions = DEFAULT_OPTIONS,
    choice: BuilderChoice = "auto",
) -> BuiltImage:
    """The image of a profile on the engine at `docker_host`, built now unless an equal one is there.

    Raises OnecatError as `build_image` does, and as `onecat.images.wheels.fetch` and
    `onecat.images.sources.fetch_source` do for recipes with wheels or a pinned source.
    """
    context = render_context(profile, wheel_store(home).recorded_hashes(), options)
    check_buildable(context)
    present = find_image(context, docker_host)
    if present is not None:
        report(f"image: {context.tag} is up to date")
        return present
    context = complete(context, profile, home, report, options)
    return build_image(context, docker_host, report, log_file(home, context.tag), choice)


def build_wheel(
    profile: Profile,
    home: Home,
    docker_host: str | None,
    report: Report,
    options: BuildOptions,
    choice: BuilderChoice = "auto",
) -> BuiltWheel:
    """Build the engine's wheel and put it into the folder `options.wheel_only`; no image is made.

    Raises OnecatError as `ensure_image` does, and for a recipe that builds no wheel (exit code 2).
    """
    assert options.wheel_only is not None
    context = render_context(profile, wheel_store(home).recorded_hashes(), options)
    check_buildable(context)
    if context.wheel_stage is None:
        raise OnecatError(
            f"the image of profile {profile.name} is made without building a wheel",
            expected="a profile whose engine is compiled from source",
            next_steps=["onecat profile list", f"or build the image: onecat build --profile {profile.name}"],
        )
    stage = context.wheel_stage
    context = complete(context, profile, home, report, options)
    tag = f"{context.tag}-wheel"
    built = build_stage(context, stage, tag, docker_host, report, log_file(home, tag), choice)
    client = connect(docker_host, timeout=600)
    try:
        path = _take_wheel(client, tag, options.wheel_only)
    finally:
        client.remove_image(tag)
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while piece := stream.read(1 << 20):
            digest.update(piece)
    report(f"wheel: {path}")
    report(f"wheel: sha256 {digest.hexdigest()}")
    return BuiltWheel(path, digest.hexdigest(), path.stat().st_size, built)


def _take_wheel(client: Any, tag: str, folder: Path) -> Path:
    """Copy the one wheel in the stage's folder to `folder`, through a container that never runs."""
    container = client.create_container(tag, command=["true"], network_disabled=True)["Id"]
    try:
        pieces, _ = client.get_archive(container, WHEELS_IN_STAGE)
        folder.mkdir(parents=True, exist_ok=True)
        found = []
        with tarfile.open(fileobj=io.BufferedReader(_Pieces(pieces)), mode="r|") as archive:
            for entry in archive:
                name = Path(entry.name).name
                content = archive.extractfile(entry) if entry.isfile() and name.endswith(".whl") else None
                if content is None:
                    continue
                partial = folder / f".{name}.partial"
                try:
                    with partial.open("wb") as stream:
                        while piece := content.read(1 << 20):
                            stream.write(piece)
                    partial.replace(folder / name)
                finally:
                    with contextlib.suppress(FileNotFoundError):
                        partial.unlink()
                found.append(folder / name)
    finally:
        client.remove_container(container, force=True)
    if len(found) != 1:
        raise OnecatError(
            f"the build left {len(found)} wheels and not one: {', '.join(path.name for path in found) or 'none'}",
            where=f"{WHEELS_IN_STAGE} in the stage",
            code=ExitCode.ROLLED_BACK,
        )
    return found[0]


class _Pieces(io.RawIOBase):
    """Pieces of bytes as a file that can be read from once, as tarfile's stream mode wants it."""

    def __init__(self, pieces: Iterable[bytes]) -> None:
        self._pieces = iter(pieces)
        self._rest = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._rest:
            piece = next(self._pieces, None)
            if piece is None:
                return 0
            self._rest = piece
        count = min(len(buffer), len(self._rest))
        buffer[:count], self._rest = self._rest[:count], self._rest[count:]
        return count


def log_file(home: Home, tag: str) -> Path:
    """Where the builder's whole output for an image is kept."""
    return home.data / "builds" / f"{re.sub(r'[^A-Za-z0-9.-]+', '-', tag)}.log"


def complete(context: Context, profile: Profile, home: Home, report: Report, options: BuildOptions) -> Context:
    """The context with all its stored files on this machine, verified: the lock's wheels, the pinned source.

    Raises OnecatError as `onecat.images.wheels.fetch` and `onecat.images.sources.fetch_source` do.
    """
    if context.lock is not None:
        report(
            f"engine: {context.lock.engine} {context.lock.version} on Python {context.python}. "
            f"{context.lock.packaged_by}"
        )
        store = wheel_store(home)
        context = _with_fetched_wheels(context, profile, store, log_file(home, f"{context.tag}.pip"), report, options)
    if context.source is not None:
        from onecat.images.sources import fetch_source

        path = fetch_source(context.source, home, report, options.source)
        context = context.with_paths({context.source.file: path})
    return context


def _with_fetched_wheels(
    context: Context, profile: Profile, store: WheelStore, log: Path, report: Report, options: BuildOptions
) -> Context:
    """The context again, now that all wheels are in the store and all hashes are known."""
    assert context.lock is not None
    rows = fetch(context.lock, store, Downloader(_interpreter_with_pip(), context.python, log), report)
    complete = render_context(profile, store.recorded_hashes(), options)
    return complete.with_paths({f"wheels/{row.file}": store.path(row) for row in rows})


def _interpreter_with_pip() -> Path:
    for python in interpreters(("3", "3.14", "3.13", "3.12", "3.11", "3.10")):
        if python.answers("import pip; print('yes')") == "yes":
            return python.path
    raise OnecatError(
        "no Python with pip was found to download the wheels",
        next_steps=["on Debian or Ubuntu: apt-get install python3-pip", "or: python3 -m ensurepip"],
        code=ExitCode.USAGE,
    )
