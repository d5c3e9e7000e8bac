"""Manifests from files, by their content, and all that lie in a model directory."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from onecat.checkpoints.integrity.manifests.hub_cache import left_by_the_hub
from onecat.checkpoints.integrity.manifests.listings import parse_listing
from onecat.checkpoints.integrity.manifests.records import Manifest
from onecat.checkpoints.integrity.manifests.text import is_text_manifest, parse_text
from onecat.errors import OnecatError

LARGEST = 64 << 20


def read_manifest(path: Path, name: str | None = None) -> Manifest:
    """The checksums in a file: lines as of sha256sum, or a hub's listing as JSON.

    Parameters:
        name: what it is called in findings, by default its path.

    Raises OnecatError when it is not there, too large to be one, or no text.
    """
    named = name or str(path)
    try:
        with path.open("rb") as file:
            content = file.read(LARGEST + 1)
        text = content.decode("utf-8")
    except OSError as error:
        raise _unreadable(path, f"cannot be read ({error.strerror})") from error
    except UnicodeDecodeError as error:
        raise _unreadable(path, "is no text") from error
    if len(content) > LARGEST:
        raise _unreadable(path, f"is larger than {LARGEST >> 20} MiB")
    if text.lstrip()[:1] in ("{", "["):
        try:
            listing = parse_listing(json.loads(text), named)
        except (ValueError, RecursionError) as error:
            raise _unreadable(path, f"is not valid JSON ({error})") from error
        if listing is None:
            raise _unreadable(path, "is JSON without checksums of files")
        return listing
    return parse_text(text, named)


def find_manifests(directory: Path, names: Iterable[str]) -> tuple[Manifest, ...]:
    """All lists of checksums in a model directory, of which `names` are the files."""
    listed = list(names)
    found = [read_manifest(directory / name, name) for name in listed if "/" not in name and is_text_manifest(name)]
    hub = left_by_the_hub(directory, listed)
    return (*found, hub) if hub is not None else tuple(found)


def _unreadable(path: Path, text: str) -> OnecatError:
    return OnecatError(
        f"the manifest {path} {text}",
        expected="lines as sha256sum writes them, or a hub's listing as JSON",
        where=str(path),
        next_steps=["get it again from the checkpoint's publisher"],
    )
