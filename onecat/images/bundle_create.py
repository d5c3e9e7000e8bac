"""What goes into a bundle: everything a machine without a network needs for one profile, onecat included."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import os
import platform
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from packaging.requirements import Requirement

from onecat import __version__
from onecat.errors import ExitCode, OnecatError
from onecat.images.bundle import CHUNK_BYTES, Manifest, Source, write_bundle
from onecat.images.context import Context, render_context
from onecat.images.disk import megabytes
from onecat.images.docker_build import find_image
from onecat.images.docker_engine import connect, engine_address, unreachable
from onecat.images.engine_images import ensure_base, inspect
from onecat.images.interpreters import OWN_VERSION, interpreter_with_pip
from onecat.images.lock import EngineLock, lock_path, read_lock
from onecat.images.own_wheel import (
    PinnedRequirement,
    fetch_own_wheels,
    fetch_pinned,
    own_requirements,
    own_wheel,
    requirements_text,
)
from onecat.images.wheels import Downloader, WheelStore, fetch, file_sha256, wheel_store

if TYPE_CHECKING:
    from onecat.config.schema import Profile
    from onecat.paths import Home

Report = Callable[[str], None]

OWN, WHEELS, PACKAGES, SOURCES, PATCHES, PROFILES, LOCK_FILE, IMAGES = (
    *("onecat", "wheels", "packages", "sources", "patches", "profiles"),
    *("onecat.lock", "images.tar.gz"),
)
IMAGE_GLIBC = "2.39"  # of Ubuntu 24.04, which the images that are built from source start from
IMAGE_RATIO = 0.4  # measured with gzip -1: Debian 12 249 MB to 100 MB, libtorch_cpu.so 434 MB to 131 MB
GZIP_BLOCK = 4 << 20
README = """\
onecat {version}, profile {profile}: everything for a machine without a network.

Needs: Linux {machine}, Python {pythons} with venv{docker}.
With FILE for the name of this bundle:

  tar -xf FILE onecat
  python3 -m venv onecat-env
  onecat-env/bin/pip install --no-index --require-hashes \\
      --find-links onecat --requirement onecat/requirements.txt
  onecat-env/bin/onecat bundle load FILE
  onecat-env/bin/onecat build --profile {profile} --offline

`onecat bundle verify FILE` checks every byte; manifest.json has sizes and
SHA-256 of all members.
"""


@dataclass(frozen=True)
class BundledImage:
    """An image of a bundle.

    tag: its name. image_id: `sha256:...` on the engine it came from. size: in bytes. digests: names with digest under
    which registries have it; none for images that were made locally.
    """

    tag: str
    image_id: str
    size: int
    digests: tuple[str, ...]


def create_bundle(
    profile: Profile,
    home: Home,
    output: Path,
    report: Report,
    *,
    pythons: Sequence[str] = (),
    images: bool = True,
    docker_host: str | None = None,
    lock_file: Path | None = None,
) -> Manifest:
    """Collect everything for a profile into one file. What has been downloaded until an interruption is kept.

    Parameters:
        output: the bundle; replaced when it is there. pythons: CPython versions of the machines it is for, as "3.11";
            the one that runs onecat, and that of the image, if none are named.
        images: whether it gets the base images, and the built one if the engine has it.
        lock_file: the lock file to be included.

    Raises:
        OnecatError: a Python version without wheels (exit code 2), an index, a registry or the Docker engine that
            cannot be reached (3), the disk is full (5).
    """
    store = wheel_store(home)
    logs = home.data / "builds"
    context = render_context(profile, store.recorded_hashes())
    lock = _engine_lock(profile)
    chosen = _pythons(profile, lock, pythons)
    report(f"bundle: profile {profile.name}, Python {', '.join(chosen)}, {platform.machine()}")
    bundled: tuple[BundledImage, ...] = ()
    stream: list[Source] = []
    if images:
        bundled, stream = _images(profile, context, docker_host, report)
    own = _own_sources(chosen, store, logs, report)
    facts: dict[str, Any] = {
        "onecat": __version__,
        "profile": {"name": profile.name, "sha256": hashlib.sha256(profile_text(profile)).hexdigest()},
        "engine": {"name": profile.engine.name, "version": profile.engine.version},
        "series": None,
        "machine": platform.machine(),
        "pythons": list(chosen),
        "images": [
            {
                "tag": each.tag,
                "id": each.image_id,
                "size": each.size,
                "digests": list(each.digests),
                "built": each.tag not in context.bases,
            }
            for each in bundled
        ],
    }
    small = [Source.of_bytes(f"{PROFILES}/{profile.name}.yaml", profile_text(profile))]
    if lock_file is not None:
        small.append(Source.of_bytes(LOCK_FILE, lock_file.read_bytes()))
    if profile.image.patches:
        series, files = _series(str(profile.image.patches))
        facts["series"] = series
        small += files
    large = _wheels(lock, chosen, store, logs, report) if lock else []
    if lock is None and lock_file is not None:
        large += _packages(profile, lock_file, store, logs, report)
    if context.source is not None:
        from onecat.images.sources import fetch_source

        archive = fetch_source(context.source, home, report, None)
        large.append(_stored(f"{SOURCES}/{archive.name}", archive, context.source.sha256))
    readme = README.format(
        version=__version__,
        profile=profile.name,
        machine=platform.machine(),
        pythons=" or ".join(chosen),
        docker="" if "native" in profile.launch.runtimes else ", Docker",
    )
    sources = [Source.of_bytes("README.txt", readme.encode()), *own, *small, *large, *stream]
    for name, part in (("onecat and its packages", own), ("engine", large), ("images", stream)):
        if part:
            size = megabytes(sum(each.size or each.about for each in part))
            report(f"bundle: {name}: {len(part)} file{'s' * (len(part) > 1)}, {size}")
    from onecat.images.host_check import check_space

    check_space([(output.absolute().parent, sum(each.size or each.about for each in sources))])
    return write_bundle(output, facts, sources, report)


def profile_text(profile: Profile) -> bytes:
    """A profile with everything it inherits, as a file that `--profile FILE` takes."""
    import yaml

    # Its layers are in it already, and need not be there where the bundle is loaded.
    data = profile.model_dump(mode="json", exclude_defaults=True, exclude={"extends", "drop"})
    return yaml.safe_dump(data, sort_keys=False, allow_unicode=True, width=110).encode()


def _engine_lock(profile: Profile) -> EngineLock | None:
    name, version = profile.engine.name, profile.engine.version
    return read_lock(name, version) if lock_path(name, version).is_file() else None


def _pythons(profile: Profile, lock: EngineLock | None, wanted: Sequence[str]) -> tuple[str, ...]:
    """The CPython versions of the machines that a bundle is for, oldest first."""
    known = lock.pythons if lock else ("3.10", "3.11", "3.12", "3.13", "3.14")
    for python in wanted:
        if python not in known:
            raise OnecatError(f"there are no wheels for Python {python}", expected=f"one of: {', '.join(known)}")
    image = str(profile.image.variables.get("python", ""))
    chosen = set(wanted) or {OWN_VERSION, *({image} if lock and image else ())} & set(known)
    return tuple(sorted(chosen, key=lambda python: [int(part) for part in python.split(".")]))


def _stored(name: str, path: Path, sha256: str) -> Source:
    return Source(name, path, path.stat().st_size, sha256)


def _own_sources(pythons: Sequence[str], store: WheelStore, logs: Path, report: Report) -> list[Source]:
    """onecat's own wheel, the wheels it needs, and the requirements file that installs them."""
    name, wheel = own_wheel()
    packages = {
        path.name: path
        for python in pythons
        for path in fetch_own_wheels(python, store, logs / "bundle.pip.log", report)
    }
    rows = [row for row in own_requirements() if any(row.needed_on(python) for python in pythons)]
    text = requirements_text(rows, name, hashlib.sha256(wheel).hexdigest())
    return [
        Source.of_bytes(f"{OWN}/requirements.txt", text.encode()),
        Source.of_bytes(f"{OWN}/{name}", wheel),
        *(_stored(f"{OWN}/{each}", path, file_sha256(path)) for each, path in sorted(packages.items())),
    ]


def _wheels(lock: EngineLock, pythons: Sequence[str], store: WheelStore, logs: Path, report: Report) -> list[Source]:
    """The wheels of the engine for these Python versions."""
    found: dict[str, Source] = {}
    for python in pythons:
        report(f"engine: {lock.engine} {lock.version} on Python {python}. {lock.packaged_by}")
        downloader = Downloader(interpreter_with_pip(), python, logs / "bundle.pip.log")
        for row in fetch(lock, store, downloader, report):
            found[row.file] = _stored(f"{WHEELS}/{row.file}", store.path(row), str(row.sha256))
    return [found[name] for name in sorted(found)]


def _packages(profile: Profile, lock_file: Path, store: WheelStore, logs: Path, report: Report) -> list[Source]:
    """The wheels that the lock file names for an image whose packages pip installs in its build."""
    from onecat.images.lock_file import read_lock_file

    python = str(profile.image.variables.get("python", ""))
    entry = read_lock_file(lock_file).entries.get(profile.name)
    rows = (
        [PinnedRequirement(Requirement(f"{row.name}=={row.version}"), row.sha256) for row in entry.packages(python)]
        if entry
        else []
    )
    log = logs / "bundle.pip.log"
    paths = fetch_pinned(rows, python, IMAGE_GLIBC, store, log, report, f"the image of {profile.name}") if rows else ()
    return [_stored(f"{PACKAGES}/{path.name}", path, file_sha256(path)) for path in paths]


def _series(name: str) -> tuple[dict[str, str], list[Source]]:
    from onecat.patching import load_series

    series = load_series(name)
    files = [path for path in sorted(series.directory.rglob("*")) if path.is_file() and "__pycache__" not in path.parts]
    sources = [
        Source.of_bytes(f"{PATCHES}/{series.name}/{path.relative_to(series.directory).as_posix()}", path.read_bytes())
        for path in files
    ]
    return {"name": series.name, "digest": series.digest}, sources


def _images(
    profile: Profile, context: Context, docker_host: str | None, report: Report
) -> tuple[tuple[BundledImage, ...], list[Source]]:
    """The images that a build starts from, and the one it makes if the engine has it as it would be made now."""
    try:
        client = connect(docker_host)
        for base in context.bases:
            ensure_base(client, base, engine_address(docker_host), report)
        built = _built(client, profile, context, docker_host, report)
    except OnecatError as error:
        if error.code is not ExitCode.UNREACHABLE:
            raise
        raise error.told_as(next_steps=[*error.next_steps, "or leave the images out: --no-images"]) from error
    tags = [*context.bases, *([context.tag] if built else [])]
    found = {tag: inspect(client, tag) for tag in tags}
    images = tuple(
        BundledImage(tag, each["Id"], each["Size"], tuple(each.get("RepoDigests") or ())) for tag, each in found.items()
    )
    # The built one has the layers of the runtime's base in it; that of the compilers stands beside it.
    about = round(sum({each.image_id: each.size for each in images}.values()) * IMAGE_RATIO)
    return images, [Source(IMAGES, lambda: saved_images(docker_host, tags), about=about)]


def _built(client: Any, profile: Profile, context: Context, docker_host: str | None, report: Report) -> bool:
    """Whether the engine has the profile's image, with its patches; says what is to be known about it."""
    labels = (inspect(client, context.tag).get("Config") or {}).get("Labels") or {}
    wanted = None
    if profile.image.patches:
        from onecat.patching import load_series

        series = load_series(str(profile.image.patches)).for_profile(profile)
        wanted = f"{series.name} sha256:{series.digest}"
    if labels.get("io.onecat.profile") == profile.name and labels.get("io.onecat.patch-series") == wanted:
        if find_image(context, docker_host) is None:
            report(f"image: {context.tag} was built with other options or by another onecat; it goes in as it is")
        return True
    report(f"image: {context.tag} is not built, or with other patches; only what it starts from goes in")
    if context.source is not None:
        report("image: its build downloads Python packages: only those that a lock file names go into the bundle")
        report(f"image: or build it first: onecat build --profile {profile.reference}")
    return False


@contextlib.contextmanager
def saved_images(docker_host: str | None, tags: Sequence[str]) -> Iterator[Iterable[bytes]]:
    """The archive of several images as `docker save` writes it, gzipped; layers they share are in it once.

    Raises OnecatError (exit code 3) when the engine hangs up.
    """
    from docker.errors import APIError
    from requests.exceptions import RequestException

    client = connect(docker_host)
    address = f"{client.base_url}/v{client.api_version}/images/get"
    try:
        # The engine prepares the whole archive before its first byte.
        with client.get(address, params={"names": list(tags)}, stream=True, timeout=None) as answer:
            answer.raise_for_status()
            yield gzipped(answer.iter_content(CHUNK_BYTES))
    except (APIError, RequestException) as error:
        raise unreachable(engine_address(docker_host), str(error)) from error
    finally:
        client.close()


def gzipped(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """A stream as gzip, compressed on all processors: a block of it is a member of its own (RFC 1952, 2.2).

    `docker load` takes it as it is.
    """
    threads = os.cpu_count() or 1
    with ThreadPoolExecutor(threads) as pool:
        waiting: deque[Future[bytes]] = deque()
        for block in _blocks(pieces):
            waiting.append(pool.submit(gzip.compress, block, 1, mtime=0))
            if len(waiting) > 2 * threads:
                yield waiting.popleft().result()
        for each in waiting:
            yield each.result()


def _blocks(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Pieces gathered to blocks of GZIP_BLOCK bytes or a little more; one block, an empty one, for no pieces."""
    block = bytearray()
    for piece in pieces:
        block += piece
        if len(block) >= GZIP_BLOCK:
            yield bytes(block)
            block.clear()
    yield bytes(block)
