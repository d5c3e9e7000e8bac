"""Files against lists of their checksums."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from onecat.checkpoints.integrity.hashing import Task
from onecat.checkpoints.integrity.manifests import Entry, Manifest
from onecat.checkpoints.integrity.manifests.text import is_text_manifest
from onecat.checkpoints.integrity.records import Fault
from onecat.checkpoints.json_text import DOWNLOAD_AGAIN
from onecat.checkpoints.numbering import first_of

SOURCE = "https://www.gnu.org/software/coreutils/manual/html_node/sha2-utilities.html"


def tasks_of(entries: Iterable[Entry], sizes: Mapping[str, int]) -> tuple[Task, ...]:
    """What is to be hashed to compare the files that are there."""
    return tuple(
        dict.fromkeys(Task(entry.path, entry.algorithm) for entry in entries if sizes.get(entry.path, -1) >= 0)
    )


def check_without_hashing(manifest: Manifest, sizes: Mapping[str, int]) -> Iterator[Fault]:
    """What a list tells by names and sizes alone: lines that are none, missing files, other sizes, files without."""
    yield from manifest.faults
    for entry in manifest.entries:
        size = sizes.get(entry.path)
        if size is None or size < 0:
            yield Fault("missing-file", "fail", f"is in {manifest.name} and not there", entry.path, "download it",
                        source=SOURCE)  # fmt: skip
        elif entry.size is not None and entry.size != size:
            text = f"has {size} bytes; {manifest.name} states {entry.size}"
            yield Fault("wrong-size", "fail", text, entry.path, DOWNLOAD_AGAIN, source=SOURCE)


def without_entry(manifests: Iterable[Manifest], sizes: Mapping[str, int]) -> Iterator[Fault]:
    """Files of the top directory that no list names."""
    listed = {entry.path for manifest in manifests for entry in manifest.entries}
    others = [
        name
        for name in sizes
        if name not in listed and "/" not in name and not name.startswith(".") and not is_text_manifest(name)
    ]
    if listed and others:
        yield Fault("no-checksum", "info", f"no list has a checksum of {first_of(others, 5)}", others[0], "",
                    "Whether these are whole is not known.", SOURCE)  # fmt: skip


def compare(manifest: Manifest, digests: Mapping[Task, str]) -> Iterator[Fault]:
    """Files whose checksum is another than a list states."""
    for entry in manifest.entries:
        digest = digests.get(Task(entry.path, entry.algorithm))
        if digest is not None and digest != entry.digest:
            kind = "SHA-256" if entry.algorithm == "sha256" else "git id"
            text = f"has the {kind} {digest}; {manifest.name} states {entry.digest}"
            why = "Some of its bytes are not those that were published."
            yield Fault("wrong-checksum", "fail", text, entry.path, DOWNLOAD_AGAIN, why, SOURCE)
