"""Listings of a repository's files as hubs answer them, saved as JSON.

Hugging Face: https://huggingface.co/docs/hub/api (`/api/models/NAME/tree/main?recursive=true`, a list with `oid` and
`lfs.oid`; `/api/models/NAME?blobs=true`, `siblings` with `blobId` and `lfs.sha256`). ModelScope: `Data.Files` with
`Path` and `Sha256` (modelscope/hub/api.py in https://github.com/modelscope/modelscope).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from onecat.checkpoints.integrity.manifests.records import DIGITS, Entry, Manifest, bad_checksum, wrong_digest
from onecat.checkpoints.integrity.records import Fault


def parse_listing(document: Any, name: str) -> Manifest | None:
    """The checksums in a hub's answer; None when the document is none."""
    rows = _rows(document)
    if rows is None:
        return None
    entries: list[Entry] = []
    faults: list[Fault] = []
    for row in rows:
        path = _text(row, "path", "rfilename", "Path")
        if path is None or _text(row, "type", "Type") in ("directory", "tree"):
            continue
        lfs = row.get("lfs")
        inner = lfs if isinstance(lfs, Mapping) else {}
        size = next((each for each in (inner.get("size"), row.get("size"), row.get("Size")) if type(each) is int), None)
        digest = _text(inner, "oid", "sha256") or _text(row, "Sha256")
        blob = _text(row, "oid", "blobId")
        if digest is not None:
            digest = digest.removeprefix("sha256:")
            if (reason := wrong_digest(digest)) is not None:
                faults.append(bad_checksum(name, path, reason))
            else:
                entries.append(Entry(path, "sha256", digest.lower(), size))
        elif blob is not None and len(blob) == DIGITS["git-blob"]:
            entries.append(Entry(path, "git-blob", blob.lower(), size))
    return Manifest(name, "hub listing", tuple(entries), tuple(faults)) if entries or faults else None


def _rows(document: Any) -> list[Mapping[str, Any]] | None:
    for candidate in _candidates(document):
        if isinstance(candidate, list) and candidate and all(isinstance(row, Mapping) for row in candidate):
            return candidate
    return None


def _candidates(document: Any) -> Iterator[Any]:
    yield document
    if isinstance(document, Mapping):
        yield document.get("siblings")
        yield document.get("files")
        data = document.get("Data")
        yield data.get("Files") if isinstance(data, Mapping) else None


def _text(row: Mapping[str, Any], *keys: str) -> str | None:
    return next((row[key] for key in keys if isinstance(row.get(key), str)), None)
