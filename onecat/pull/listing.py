"""Listing a source of any kind, with the checksums that a person has for it."""

from __future__ import annotations

from pathlib import Path

from onecat.errors import ExitCode, OnecatError
from onecat.pull import manifest
from onecat.pull.address import list_address, with_checksums
from onecat.pull.asking import Asker
from onecat.pull.hub import list_model
from onecat.pull.records import Listing
from onecat.pull.sources import HubSource, Source


def list_source(source: Source, asker: Asker, checksums: Path | None) -> Listing:
    """All files of a source. checksums: a file of SHA-256 checksums. Raises OnecatError."""
    asker.say(f"listing {source.text}")
    listing = list_model(source, asker) if isinstance(source, HubSource) else list_address(source, asker)
    if checksums is None:
        return listing
    try:
        text = checksums.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise OnecatError(
            f"the manifest cannot be read: {error.strerror}", where=str(checksums), expected="a file"
        ) from error
    sums = manifest.parse(text, str(checksums))
    files = with_checksums(list(listing.files), sums, str(checksums))
    absent = sorted(sums.keys() - {each.path for each in files})
    if absent:
        raise OnecatError(
            f"the manifest names {absent[0]}, which the source does not have",
            expected="a manifest of this source",
            where=str(checksums),
            details=[f"also {each}" for each in absent[1:20]],
            code=ExitCode.NO,
        )
    return Listing(listing.source, tuple(files), listing.revision)
