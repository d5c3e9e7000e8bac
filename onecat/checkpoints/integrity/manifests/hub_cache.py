"""Checksums that huggingface_hub leaves beside what it downloads.

`DIR/.cache/huggingface/download/NAME.metadata` has three lines: commit, etag, time; in its shared cache a file is a
link to `blobs/ETAG`. The etag is the SHA-256 of a file in LFS, and the git id of any other.
Source: https://huggingface.co/docs/huggingface_hub/guides/manage-cache and huggingface_hub/_local_folder.py.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path

from onecat.checkpoints.integrity.manifests.records import Entry, Manifest

METADATA = ".cache/huggingface/download/"


def left_by_the_hub(directory: Path, names: Iterable[str]) -> Manifest | None:
    """What the hub said of the files in `directory` when they were downloaded; None when it left nothing.

    Parameters:
        names: all files below the directory. Files that changed since their download are hashed as any other.
    """
    entries = []
    names = list(names)
    links = _links(directory, {name.rpartition("/")[0] for name in names})
    for name in names:
        if name.startswith(METADATA) and name.endswith(".metadata"):
            try:
                lines = (directory / name).read_text(encoding="utf-8").splitlines()
            except (OSError, ValueError):
                continue
            if len(lines) >= 2 and (entry := _entry(name[len(METADATA) : -len(".metadata")], lines[1].strip())):
                entries.append(entry)
        elif name in links:
            target = (directory / name).readlink()
            if target.parent.name == "blobs" and (entry := _entry(name, target.name)):
                entries.append(entry)
    return Manifest("the hub's own checksums", "hub cache", tuple(entries)) if entries else None


def _links(directory: Path, folders: Iterable[str]) -> set[str]:
    """The links in some folders below a directory: whole listings tell them without a look at each file."""
    found: set[str] = set()
    for folder in folders:
        with os.scandir(directory / folder) as entries:
            found.update(f"{folder}/{each.name}" if folder else each.name for each in entries if each.is_symlink())
    return found


def _entry(path: str, etag: str) -> Entry | None:
    etag = etag.strip('"').lower()
    if re.fullmatch("[0-9a-f]{64}", etag):
        return Entry(path, "sha256", etag)
    return Entry(path, "git-blob", etag) if re.fullmatch("[0-9a-f]{40}", etag) else None
