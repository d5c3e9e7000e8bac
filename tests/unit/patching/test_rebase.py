"""A series on another release: what moves, what upstream did around the rest, what can be dropped."""

from __future__ import annotations

from pathlib import Path

import pytest

from onecat.errors import OnecatError
from onecat.patching import Series, State, load_series, read_members, touched_paths, verify
from onecat.patching.rebase import Rebase, try_rebase, write_rebased
from tests.unit.patching.small_series import FILES, pin, write_archive, write_series

GUARDS = {
    "0001-first.patch": {"after": [{"file": "engine/windows.txt", "contains": ["TWO"]}]},
    "0002-second.patch": {"before": [{"file": "engine/core.py", "contains": ["line 30"]}]},
}


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    return write_archive(tmp_path / "engine-1.0.tar.gz")


@pytest.fixture
def series(tmp_path: Path, archive: Path) -> Series:
    return write_series(tmp_path / "series", pin(archive), guards=GUARDS)


def rebase(series: Series, archive: Path, changes: dict[str, bytes | None]) -> Rebase:
    files = {path: content for path, content in {**FILES, **changes}.items() if content is not None}
    other = write_archive(archive.with_name("engine-2.0.tar.gz"), files, "engine-2.0")
    return try_rebase(series, archive, other, pin(other, "2.0"))


def test_on_the_same_content_everything_fits(series: Series, archive: Path) -> None:
    result = rebase(series, archive, {})
    assert [move.word for move in result.moves] == ["fits", "fits"]
    assert result.is_whole and not result.moved and not result.vanished


def test_lines_above_are_offsets_with_what_upstream_did(series: Series, archive: Path) -> None:
    first, second = rebase(series, archive, {"engine/core.py": b"new\n" + FILES["engine/core.py"]}).moves
    assert (first.word, second.word) == ("fits with offsets", "fits with offsets")
    (around,) = first.surroundings
    assert (around.path, around.fit.offset) == ("engine/core.py", 1)
    assert [hunk.lines[0] for hunk in around.upstream] == [("+", b"new\n")]


def test_a_hunk_that_fits_nowhere_is_shown_with_upstreams_change_and_the_rest_moves(
    series: Series, archive: Path
) -> None:
    changed = FILES["engine/core.py"].replace(b"line 5\n", b"line V\n").replace(b"line 29\n", b"line XXIX\n")
    result = rebase(series, archive, {"engine/core.py": changed})
    first, second = result.moves
    assert (first.word, second.word) == ("partly", "partly")
    assert "+line five" in first.rejected and "+TWO" not in first.rejected
    assert "+TWO" in first.diff and "core.py" not in first.diff
    (around,) = first.surroundings
    (hunk,) = around.upstream
    assert ("+", b"line V\n") in hunk.lines and ("+", b"line XXIX\n") not in hunk.lines
    told = [line for each in second.surroundings for hunk in each.upstream for line in hunk.lines]
    assert ("-", b"line five\n") not in told, "our own earlier edit is not upstream's change"


def test_a_hunk_that_upstream_has_already_is_no_obstacle(series: Series, archive: Path) -> None:
    result = rebase(series, archive, {"engine/core.py": FILES["engine/core.py"].replace(b"line 5\n", b"line five\n")})
    first, second = result.moves
    assert (first.word, second.word) == ("fits with offsets", "fits")
    (there,) = (each for each in first.surroundings if each.is_there)
    assert there.path == "engine/core.py"
    assert first.rejected == "" and "core.py" not in first.diff and "windows.txt" in first.diff


def test_a_guard_that_an_earlier_patch_makes_true_drops_nothing(archive: Path, tmp_path: Path) -> None:
    guards = {"0002-second.patch": {"after": [{"file": "engine/windows.txt", "contains": ["TWO"]}]}}
    guarded = write_series(tmp_path / "guarded", pin(archive), guards=guards)
    assert [move.word for move in rebase(guarded, archive, {}).moves] == ["fits", "fits"]


def test_a_patch_whose_guards_hold_without_it_can_be_dropped(series: Series, archive: Path) -> None:
    result = rebase(
        series,
        archive,
        {
            "engine/windows.txt": b"one\r\nTWO\r\nthree\r\n",
            "engine/core.py": FILES["engine/core.py"].replace(b"line 5\n", b"line five\n"),
        },
    )
    assert [move.word for move in result.moves] == ["to drop", "fits"]
    assert result.is_whole


def test_moved_vanished_and_taken_files_and_guards_are_told(series: Series, archive: Path) -> None:
    result = rebase(
        series,
        archive,
        {
            "engine/core.py": None,
            "engine/inner/core.py": FILES["engine/core.py"].replace(b"line 30\n", b"line XXX\n"),
            "engine/gone.py": None,
            "ours/kernels.py": b"upstream's\n",
        },
    )
    assert result.moved == {"engine/core.py": "engine/inner/core.py"}
    assert result.vanished == ("engine/gone.py",)
    assert result.taken == ("ours/kernels.py",)
    first, second = result.moves
    assert first.word == "fits" and "a/engine/inner/core.py" in first.diff
    assert [str(guard) for guard in second.guards] == [
        "guard before does not hold: engine/inner/core.py lacks 'line 30'"
    ]
    assert not result.is_whole


def test_with_fuzz_a_hunk_whose_context_changed_moves_too(series: Series, archive: Path) -> None:
    changed = FILES["engine/core.py"].replace(b"line 2\n", b"line II\n")
    assert [move.word for move in rebase(series, archive, {"engine/core.py": changed}).moves] == ["partly", "partly"]
    other = archive.with_name("engine-2.0.tar.gz")
    first, second = try_rebase(series, archive, other, pin(other, "2.0"), fuzz=1).moves
    assert first.word == second.word == "fits with fuzz"
    assert " line II\n" in first.diff and "+line five\n" in first.diff


def test_what_moves_is_written_as_a_series_and_the_rest_as_rejects(
    series: Series, archive: Path, tmp_path: Path
) -> None:
    changed = FILES["engine/core.py"].replace(b"line 5\n", b"line V\n")
    result = rebase(series, archive, {"engine/core.py": b"new\n" + changed})
    written = write_rebased(result, tmp_path / "next")
    assert {"0001-first.rej", "0002-second.rej", "0001-first.patch", "add/ours/kernels.py"} <= set(written)
    moved = load_series(f"{tmp_path / 'next'}/")
    assert moved.upstream.version == "2.0" and moved.upstream.licence == "MIT"
    source = read_members(archive.with_name("engine-2.0.tar.gz"), moved.upstream, touched_paths(moved))
    assert {state.state for state in verify(moved, source)} == {State.APPLIES}
    with pytest.raises(OnecatError, match="is not empty"):
        write_rebased(result, tmp_path / "next")
