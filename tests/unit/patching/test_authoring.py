"""New patches out of edits, and patches written anew."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onecat.errors import OnecatError
from onecat.patching import Series, State, apply, load_series, reverse, unpack, verify
from onecat.patching.archive import MemorySource
from onecat.patching.authoring import find_edits, new_patch, refreshed, write_refreshed
from onecat.patching.diff import parse_diff
from onecat.patching.source import SourceFile
from onecat.patching.states import try_changes
from onecat.patching.writing import write_diff
from tests.unit.patching.small_series import FIRST, PATCHES, everything, pin, write_archive, write_series

FIELDS = {"purpose": "More", "author": "onecat", "reference": "not sent", "drop_when": "never"}
FILE = st.one_of(
    st.none(),
    st.builds(
        SourceFile,
        st.lists(st.sampled_from([b"a\n", b"b\n", b"\n", b"c\r\n", b"\xff\n", b"--- x\n"]), max_size=20).map(b"".join)
        | st.just(b"no end"),
        st.sampled_from([0o644, 0o755]),
    ),
)


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    return write_archive(tmp_path / "engine-1.0.tar.gz")


@pytest.fixture
def series(tmp_path: Path, archive: Path) -> Series:
    return write_series(tmp_path / "series", pin(archive))


@pytest.fixture
def tree(tmp_path: Path, archive: Path, series: Series) -> Path:
    """The source with the series on it."""
    root = unpack(archive, series.upstream, tmp_path / "into")
    apply(series, root)
    return root


def again(series: Series) -> Series:
    return load_series(f"{series.directory}/")


@given(st.dictionaries(st.sampled_from(["a.py", "b c.py", 'd/tä"\\.py']), st.tuples(FILE, FILE), min_size=1))
def test_a_written_diff_read_back_makes_the_same_files(files: dict[str, tuple[SourceFile, SourceFile]]) -> None:
    text = write_diff((path, before, after) for path, (before, after) in files.items())
    before = {path: old for path, (old, _) in files.items() if old is not None}
    after = {path: new for path, (_, new) in files.items() if new is not None}
    changes = parse_diff(text, "") if text else ()
    attempt = try_changes(changes, MemorySource(before))
    assert attempt.fits
    made = {path: file for path, file in {**before, **attempt.writes}.items() if file is not None}
    assert made == after


@pytest.mark.skipif(shutil.which("git") is None, reason="git, the other implementation, is not installed")
def test_git_applies_what_is_written(tmp_path: Path) -> None:
    before = SourceFile(b"".join(b"def f%d():\n    return %d\n" % (n, n) for n in range(20)))
    after = SourceFile(before.content.replace(b"return 7\n", b"return 70\n").replace(b"return 15\n", b""), 0o755)
    text = write_diff([("x.py", before, after), ("dir/new file.py", None, SourceFile(b"new"))])
    assert "@@ -13,7 +13,7 @@ def f5():\n" in text
    (tmp_path / "x.py").write_bytes(before.content)
    done = subprocess.run(["git", "apply", "-"], cwd=tmp_path, input=text.encode(), capture_output=True)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "x.py").read_bytes() == after.content
    assert (tmp_path / "dir/new file.py").read_bytes() == b"new"


def test_a_tree_without_edits_makes_no_patch(series: Series, archive: Path, tree: Path) -> None:
    edits = find_edits(series, archive, tree)
    assert edits.files == {}
    assert refreshed(series, edits) == {}
    with pytest.raises(OnecatError, match="no edits"):
        new_patch(series, edits, "more", FIELDS)


def test_edits_are_told_from_a_source_without_the_series(series: Series, archive: Path, tree: Path) -> None:
    reverse(series, tree)
    with pytest.raises(OnecatError, match="is not applied to"):
        find_edits(series, archive, tree)


def test_a_new_patch_keeps_bytes_that_are_no_utf_8(series: Series, archive: Path, tree: Path) -> None:
    (tree / "engine/core.py").write_bytes((tree / "engine/core.py").read_bytes() + b"# caf\xe9\n")
    file = new_patch(series, find_edits(series, archive, tree), "more", FIELDS)
    assert b"+# caf\xe9\n" in (series.directory / file).read_bytes()
    assert find_edits(again(series), archive, tree).files == {}


def test_a_new_patch_holds_the_edits_and_stands_last_in_the_series(series: Series, archive: Path, tree: Path) -> None:
    (tree / "engine/core.py").write_bytes((tree / "engine/core.py").read_bytes().replace(b"line 20", b"line twenty"))
    (tree / "engine/more.py").write_bytes(b"more\n")
    (tree / "engine/windows.txt").unlink()
    (tree / "engine/__pycache__").mkdir()
    (tree / "engine/__pycache__/core.pyc").write_bytes(b"\0")
    file = new_patch(series, find_edits(series, archive, tree), "more", FIELDS)
    assert file == "0003-more.patch"
    grown = again(series)
    assert [patch.file for patch in grown.patches] == [*PATCHES, file]
    assert {change.path for change in grown.patches[-1].changes} == {
        "engine/core.py",
        "engine/more.py",
        "engine/windows.txt",
    }
    assert (series.directory / "series.yaml").read_text().startswith("# Kept comment.\n")
    assert {state.state for state in verify(grown, tree)} == {State.APPLIED}
    assert find_edits(grown, archive, tree).files == {}
    shutil.rmtree(tree / "engine/__pycache__")
    reverse(grown, tree)
    assert everything(tree) == everything(unpack(archive, series.upstream, tree.parent / "pristine"))


def test_a_taken_or_impossible_name_is_refused(series: Series, archive: Path, tree: Path) -> None:
    (tree / "engine/more.py").write_bytes(b"more\n")
    edits = find_edits(series, archive, tree)
    with pytest.raises(OnecatError, match="exists"):
        new_patch(series, edits, "0001-first", FIELDS)
    with pytest.raises(OnecatError, match="no name"):
        new_patch(series, edits, "../more", FIELDS)
    assert [patch.file for patch in again(series).patches] == list(PATCHES)


def test_refresh_puts_edits_into_the_last_patch_of_each_file(series: Series, archive: Path, tree: Path) -> None:
    core = tree / "engine/core.py"
    core.write_bytes(core.read_bytes().replace(b"line FIVE", b"line FIVE!"))
    (tree / "engine/unended.txt").write_bytes(b"alpha\nbeta\ngamma\ndelta\n")
    (tree / "ours/kernels.py").write_bytes(b"ours = 2\n")
    edits = find_edits(series, archive, tree)
    texts = refreshed(series, edits)
    assert set(texts) == {"0001-first.patch", "0002-second.patch"}
    assert "+line FIVE!" in texts["0002-second.patch"] and "+delta" in texts["0001-first.patch"]
    written = write_refreshed(series, edits, texts)
    assert set(written) == {*texts, "add/ours/kernels.py"}
    assert {state.state for state in verify(again(series), tree)} == {State.APPLIED}
    assert refreshed(again(series), find_edits(again(series), archive, tree)) == {}


def test_refresh_of_a_named_patch_goes_beneath_the_later_ones(series: Series, archive: Path, tree: Path) -> None:
    core = tree / "engine/core.py"
    core.write_bytes(core.read_bytes().replace(b"line 25", b"line 25!"))
    edits = find_edits(series, archive, tree)
    texts = refreshed(series, edits, "0001-first.patch")
    assert list(texts) == ["0001-first.patch"], "the hunk of the second one is where it was"
    core.write_bytes(core.read_bytes().replace(b"line FIVE", b"line FIVE!"))
    with pytest.raises(OnecatError, match="does not fit beneath"):
        refreshed(series, find_edits(series, archive, tree), "0001-first.patch")


def test_an_edit_that_no_patch_owns_needs_a_name(series: Series, archive: Path, tree: Path) -> None:
    (tree / "PKG-INFO").write_bytes(b"Name: other\n")
    edits = find_edits(series, archive, tree)
    with pytest.raises(OnecatError, match="no patch changes it"):
        refreshed(series, edits)
    assert list(refreshed(series, edits, "0001-first.patch")) == ["0001-first.patch"]


def test_refresh_without_a_tree_takes_offsets_out(tmp_path: Path, archive: Path) -> None:
    shifted = FIRST.replace("@@ -2,7 +2,7 @@", "@@ -7,7 +7,7 @@")
    off = write_series(tmp_path / "off", pin(archive), {"0001-first.patch": shifted})
    edits = find_edits(off, archive, None)
    assert edits.examination.states[0].offset == -5
    write_refreshed(off, edits, refreshed(off, edits))
    fresh = find_edits(again(off), archive, None)
    assert [state.state for state in fresh.examination.states] == [State.APPLIES] * 2
    assert refreshed(again(off), fresh) == {}


def test_refresh_leaves_a_patch_that_fits_as_it_was_written(tmp_path: Path, archive: Path) -> None:
    less = "-line 5\n+line five\n line 6\n line 7\n line 8\n"
    more = "-line 5\n-line 6\n+line five\n+line 6\n line 7\n line 8\n line 9\n"
    other_way = FIRST.replace(less, more).replace("@@ -2,7 +2,7 @@", "@@ -2,8 +2,8 @@")
    assert other_way != FIRST
    ours = write_series(tmp_path / "ours", pin(archive), {"0001-first.patch": other_way})
    edits = find_edits(ours, archive, None)
    assert edits.examination.is_clean
    assert refreshed(ours, edits) == {}
