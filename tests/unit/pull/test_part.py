"""Parts of files: what survives a kill, and whose bytes it may be continued with."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path

import pytest

from onecat.pull.part import Part
from onecat.pull.ranges import SMALLEST_PIECE
from onecat.pull.records import RemoteFile

CONTENT = bytes(range(256)) * 40
FILE = RemoteFile("sub/model.safetensors", "https://h.example/m", len(CONTENT), hashlib.sha256(CONTENT).hexdigest())


def written(folder: Path, file: RemoteFile, end: int, validator: str | None = '"v1"') -> Part:
    """A part whose first `end` bytes are there and in the journal, as a killed run leaves it."""
    part = Part(folder, file, 4)
    claim = part.claim()
    assert claim is not None
    part.validator = validator
    part.write(claim, CONTENT[:end])
    part.save()
    part.close()
    return part


def finish(part: Part) -> None:
    claim = part.claim()
    assert claim is not None and claim.end is not None
    part.write(claim, CONTENT[claim.position : claim.end])
    part.release(claim)


def test_a_part_goes_on_where_its_journal_ends(tmp_path: Path) -> None:
    written(tmp_path, FILE, 1000)
    part = Part(tmp_path, FILE, 4)
    assert (part.resumed, part.ranges(), part.is_complete) == (1000, ((0, 1000),), False)
    finish(part)
    assert part.is_complete and part.digests()[0] == FILE.sha256
    part.move_to(tmp_path / "m" / "sub" / "model.safetensors")
    assert (tmp_path / "m" / "sub" / "model.safetensors").read_bytes() == CONTENT
    assert [each.name for each in tmp_path.iterdir()] == ["m"]


@pytest.mark.parametrize(
    "other",
    [
        replace(FILE, sha256="0" * 64),
        replace(FILE, size=len(CONTENT) + 1),
        replace(FILE, sha256=None, blob="0" * 40),
    ],
    ids=["other checksum", "other size", "other kind of checksum"],
)
def test_a_part_of_another_version_begins_anew(tmp_path: Path, other: RemoteFile) -> None:
    written(tmp_path, FILE, 1000)
    assert Part(tmp_path, other, 4).resumed == 0


def test_a_part_whose_version_nobody_can_tell_begins_anew(tmp_path: Path) -> None:
    unknown = replace(FILE, sha256=None)
    written(tmp_path, unknown, 1000, validator=None)
    assert Part(tmp_path, unknown, 4).resumed == 0
    written(tmp_path, unknown, 1000, validator='"v1"')
    part = Part(tmp_path, unknown, 4)
    assert (part.resumed, part.validator) == (1000, '"v1"')


@pytest.mark.parametrize(
    "journal", ["", "{", "[]", "{}", '{"schema": "onecat.pull-part/1"}', '{"schema": "onecat.pull-part/1", "path": 1}']
)
def test_a_damaged_journal_costs_the_part_and_nothing_else(tmp_path: Path, journal: str) -> None:
    written(tmp_path, FILE, 1000)
    next(tmp_path.glob("*.json")).write_text(journal)
    part = Part(tmp_path, FILE, 4)
    assert part.resumed == 0
    finish(part)
    assert part.digests()[0] == FILE.sha256


def test_a_journal_never_promises_more_than_the_file_holds(tmp_path: Path) -> None:
    written(tmp_path, FILE, 1000)
    path = next(tmp_path.glob("*.json"))
    document = json.loads(path.read_text())
    path.write_text(json.dumps({**document, "ranges": [[0, 5000], [9000, 10**15]]}))
    assert Part(tmp_path, FILE, 4).ranges() == ((0, 1000),)


def test_several_connections_get_different_pieces_once_the_server_is_known_to_give_ranges(tmp_path: Path) -> None:
    part = Part(tmp_path, RemoteFile("big", "https://h.example/big", 3 * SMALLEST_PIECE), 4)
    first = part.claim()
    assert first is not None and part.claim() is None
    part.can_range = True
    second, third = part.claim(), part.claim()
    assert second is not None and third is not None and part.claim() is None
    assert [(each.start, each.end) for each in (first, second, third)] == [
        (number * SMALLEST_PIECE, (number + 1) * SMALLEST_PIECE) for number in range(3)
    ]


def test_bytes_are_hashed_in_order_whatever_order_they_come_in(tmp_path: Path) -> None:
    part = Part(tmp_path, FILE, 4)
    part.can_range = True
    claim = part.claim()
    assert claim is not None
    claim.start = claim.position = 5000
    part.write(claim, CONTENT[5000:])
    part.release(claim)
    part.catch_up()
    assert part.hashed == 0
    finish(part)
    assert part.digests() == (FILE.sha256, None)


def test_a_git_blob_is_hashed_with_its_header(tmp_path: Path) -> None:
    # `printf 'hello\n' | git hash-object --stdin`
    part = Part(tmp_path, RemoteFile("a", "https://h.example/a", 6, blob="ce013625030ba8dba906f756967f9e9ca394464a"), 4)
    claim = part.claim()
    assert claim is not None
    part.write(claim, b"hello\n")
    part.release(claim)
    assert part.digests()[1] == "ce013625030ba8dba906f756967f9e9ca394464a"


def test_a_connection_with_bytes_of_an_older_version_writes_nothing_any_more(tmp_path: Path) -> None:
    part = Part(tmp_path, RemoteFile("big", "https://h.example/big", 3 * SMALLEST_PIECE), 4)
    first = part.claim()
    part.can_range = True
    second = part.claim()
    assert first is not None and second is not None
    part.write(second, b"old")
    part.begin_anew(first, None)
    assert part.write(second, b"old") is False
    assert part.ranges() == () and part.path.stat().st_size == 0
    assert (first.start, first.end, first.position) == (0, 3 * SMALLEST_PIECE, 0)


def test_an_empty_file_is_whole_at_once(tmp_path: Path) -> None:
    part = Part(tmp_path, RemoteFile("empty", "https://h.example/empty", 0), 4)
    assert part.is_complete and part.claim() is None
    assert part.digests()[0] == hashlib.sha256(b"").hexdigest()
