"""What a pull prints: progress, the result for a person, and for a program."""

from __future__ import annotations

from pathlib import Path

import pytest

from onecat.pull import Progress, Pulled, PulledFile, Skipped
from onecat.render.pulls import document, duration, lines, progress_line, size

FOUND = Pulled(
    source="https://hub.example/org/name@main",
    directory=Path("/models/name"),
    revision="c0ffee" * 6 + "c0ff",
    files=(
        PulledFile("config.json", 23, "fetched", "ab" * 32, "git-blob"),
        PulledFile("model.safetensors", 5_000_000_000, "resumed", "cd" * 32, "sha256"),
    ),
    skipped=(Skipped("a\x1b[2J.bin", "pickle; the source has safetensors"),),
    notes=("one\x1b[2J note",),
    fetched_bytes=2_000_000_023,
    seconds=20.0,
    manifest=Path("/models/name/SHA256SUMS"),
)


@pytest.mark.parametrize(
    ("progress", "line"),
    [
        (
            Progress(5 * 10**8, 10**10, 10**8, 1, 3),
            "500.0 MB of 10.0 GB (5 %), 100.0 MB/s, 1 min 35 s left; 1 of 3 files",
        ),
        (Progress(700, None, 100.0, 0, 1), "700 B, 100 B/s; 0 of 1 file"),
        (Progress(0, 10**12, 0.0, 0, 1), "0 B of 1.00 TB (0 %), 0 B/s; 0 of 1 file"),
        (Progress(0, 0, 0.0, 0, 1), "0 B of 0 B, 0 B/s; 0 of 1 file"),
    ],
)
def test_progress_tells_bytes_speed_and_what_is_left(progress: Progress, line: str) -> None:
    assert progress_line(progress) == line


def test_the_result_names_each_file_how_it_was_checked_and_what_was_left_out() -> None:
    text = lines(FOUND)
    assert text[0] == "config.json             23 B  fetched; git blob as the hub tells"
    assert text[1] == "model.safetensors    5.00 GB  fetched, went on; SHA-256 as the source tells"
    assert text[2] == "a?[2J.bin: left out: pickle; the source has safetensors"
    assert text[3] == "note: one?[2J note"
    assert text[4] == (
        "/models/name is complete: 5.00 GB in 2 files at c0ffeec0ffee; 2.00 GB fetched in 20 s, 100.0 MB/s"
    )


def test_the_document_has_what_programs_need() -> None:
    found = document(FOUND)
    assert (found["schema"], found["bytes"], found["fetched_bytes"]) == (
        "onecat.model-pull/1",
        5_000_000_023,
        2_000_000_023,
    )
    assert found["files"][1] == {
        "path": "model.safetensors",
        "bytes": 5_000_000_000,
        "state": "resumed",
        "sha256": "cd" * 32,
        "checked": "sha256",
    }
    assert found["manifest"] == "/models/name/SHA256SUMS"


def test_sizes_and_times_are_told_for_people() -> None:
    assert [size(each) for each in (0, 999, 1000, 12_345, 5 * 10**11)] == [
        "0 B",
        "999 B",
        "1.00 kB",
        "12.3 kB",
        "500.0 GB",
    ]
    assert [duration(each) for each in (0.4, 59.6, 3599, 7384)] == ["0 s", "1 min 00 s", "59 min 59 s", "2 h 03 min"]
