"""A series on a tree: all or nothing, once, and off again byte for byte."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from pathlib import Path

import pytest

from onecat.errors import ExitCode, OnecatError
from onecat.patching import Series, State, apply, patched_files, reverse, tree_status, verify
from onecat.patching.source import RECORD, STAGING
from tests.unit.patching.small_series import ADDED, FILES, FIRST, SECOND, everything, write_series, write_tree


@pytest.fixture
def series(tmp_path: Path) -> Series:
    return write_series(tmp_path / "series")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    return write_tree(tmp_path / "tree")


def states(series: Series, root: Path) -> list[State]:
    return [state.state for state in verify(series, root)]


def refusal(series: Series, root: Path, action: object = apply) -> OnecatError:
    before = everything(root)
    with pytest.raises(OnecatError) as raised:
        action(series, root)  # type: ignore[operator]
    assert everything(root) == before, "a refusal must change nothing"
    assert raised.value.code is ExitCode.NO
    return raised.value


def test_applied_the_files_are_what_the_patches_say(series: Series, tree: Path) -> None:
    outcome = apply(series, tree)
    assert (tree / "engine/core.py").read_bytes().splitlines()[3:7] == [
        b"line 4",
        b"line FIVE",
        b"line five and a half",
        b"line 6",
    ]
    assert (tree / "engine/windows.txt").read_bytes() == b"one\r\nTWO\r\nthree\r\n"
    assert (tree / "engine/unended.txt").read_bytes() == b"alpha\nbeta\ngamma"
    assert (tree / "engine/fresh/new.py").read_bytes() == b"new\n"
    assert not (tree / "engine/gone.py").exists()
    assert (tree / "engine/run.sh").stat().st_mode & 0o777 == 0o775
    assert (tree / "ours/csrc/kernel.cu").read_bytes() == ADDED["ours/csrc/kernel.cu"]
    assert len(outcome.changed) == 8
    assert states(series, tree) == [State.APPLIED] * 3
    assert not (tree / STAGING).exists()


def test_applied_twice_nothing_changes(series: Series, tree: Path) -> None:
    apply(series, tree)
    before = everything(tree)
    outcome = apply(series, tree)
    assert outcome.changed == ()
    assert [state.state for state in outcome.states] == [State.APPLIED] * 3
    assert everything(tree) == before


def test_reversed_every_byte_mode_and_folder_is_as_before(series: Series, tree: Path) -> None:
    before = everything(tree)
    apply(series, tree)
    assert len(reverse(series, tree).changed) == 8
    assert everything(tree) == before
    assert reverse(series, tree).changed == ()


def test_without_its_record_the_state_is_told_from_the_files_and_reversed_all_the_same(
    series: Series, tree: Path
) -> None:
    before = everything(tree)
    apply(series, tree)
    (tree / RECORD).unlink()
    assert states(series, tree) == [State.APPLIED] * 3
    assert apply(series, tree).changed == ()
    reverse(series, tree)
    restored = everything(tree)
    # Only the mode of a file that had to be made anew is not known without the record.
    assert restored.pop("engine/gone.py")[1] == before.pop("engine/gone.py")[1]
    assert restored == before


def test_a_record_alone_makes_nothing_applied(series: Series, tree: Path, tmp_path: Path) -> None:
    apply(series, tree)
    other = write_tree(tmp_path / "other")
    (other / RECORD).write_bytes((tree / RECORD).read_bytes())
    assert states(series, other) == [State.APPLIES] * 3
    assert len(apply(series, other).changed) == 8


def test_a_series_that_grew_is_completed_and_reversed_as_a_whole(tree: Path, tmp_path: Path) -> None:
    before = everything(tree)
    short = write_series(tmp_path / "short" / "s", patches={"0001-first.patch": FIRST})
    apply(short, tree)
    grown = write_series(tmp_path / "grown" / "s")
    assert states(grown, tree) == [State.APPLIED, State.APPLIES, State.APPLIED]
    apply(grown, tree)
    assert "patches applied that are not asked for: 0002-second.patch" in _usage(short, tree)
    reverse(grown, tree)
    assert everything(tree) == before


def _usage(series: Series, tree: Path) -> str:
    with pytest.raises(OnecatError) as raised:
        reverse(series, tree)
    return raised.value.found


def test_one_conflict_and_nothing_is_written_not_even_what_fits(series: Series, tree: Path) -> None:
    (tree / "engine/windows.txt").write_bytes(b"one\r\nzwei\r\nthree\r\n")
    error = refusal(series, tree)
    assert "0001-first conflicts" in error.found
    shown = "\n".join(error.details)
    assert "engine/windows.txt: hunk @@ -1,3 +1,3 @@ fits nowhere" in shown
    assert "+TWO" in shown and "2  zwei" in shown


def test_the_line_ends_of_a_file_count(series: Series, tree: Path) -> None:
    (tree / "engine/windows.txt").write_bytes(b"one\ntwo\nthree\n")
    refusal(series, tree)
    (tree / "engine/windows.txt").write_bytes(FILES["engine/windows.txt"])
    (tree / "engine/unended.txt").write_bytes(b"alpha\nbeta\n")
    refusal(series, tree)


def test_lines_put_in_above_are_an_offset_and_told(series: Series, tree: Path) -> None:
    (tree / "engine/core.py").write_bytes(b"new first\nnew second\n" + FILES["engine/core.py"])
    first, second, added = verify(series, tree)
    assert (first.state, first.offset) == (State.OFFSET, 2)
    assert (second.state, second.offset) == (State.OFFSET, 2)
    assert added.state is State.APPLIES
    before = everything(tree)
    apply(series, tree)
    assert states(series, tree) == [State.APPLIED] * 3
    reverse(series, tree)
    assert everything(tree) == before


def test_a_changed_line_of_context_needs_fuzz_and_is_kept(series: Series, tree: Path) -> None:
    (tree / "engine/core.py").write_bytes(FILES["engine/core.py"].replace(b"line 2\n", b"line zwei\n"))
    refusal(series, tree)
    before = everything(tree)
    apply(series, tree, fuzz=1)
    assert (tree / "engine/core.py").read_bytes().startswith(b"line 1\nline zwei\nline 3\nline 4\nline FIVE\n")
    assert states(series, tree) == [State.APPLIED] * 3
    reverse(series, tree)
    assert everything(tree) == before


def test_fuzz_never_gives_up_the_lines_that_change(series: Series, tree: Path) -> None:
    (tree / "engine/core.py").write_bytes(FILES["engine/core.py"].replace(b"line 5\n", b"line 55\n"))
    with pytest.raises(OnecatError):
        apply(series, tree, fuzz=3)


def test_later_patches_are_judged_on_what_the_earlier_ones_make(series: Series, tree: Path) -> None:
    assert states(series, tree) == [State.APPLIES] * 3
    alone = write_series(tree.parent / "alone", patches={"0002-second.patch": SECOND}, added={})
    (state,) = verify(alone, tree)
    assert state.state is State.CONFLICT


@pytest.mark.parametrize("path", ["engine/core.py", "engine/fresh/new.py", "ours/kernels.py", "engine/run.sh"])
def test_edits_made_since_are_not_thrown_away(series: Series, tree: Path, path: str) -> None:
    apply(series, tree)
    (tree / path).write_bytes((tree / path).read_bytes() + b"my edit\n")
    error = refusal(series, tree, reverse)
    assert path in error.details
    assert tree_status(series, tree).edited == (path,)


def test_a_file_that_is_there_already_is_not_overwritten(series: Series, tree: Path) -> None:
    (tree / "engine/fresh").mkdir()
    (tree / "engine/fresh/new.py").write_bytes(b"mine\n")
    assert "engine/fresh/new.py is there already" in "\n".join(refusal(series, tree).details)
    (tree / "engine/fresh/new.py").unlink()
    (tree / "ours").mkdir()
    (tree / "ours/kernels.py").write_bytes(b"mine\n")
    assert "ours/kernels.py is there with other content" in "\n".join(refusal(series, tree).details)


def test_a_folder_that_was_there_before_stays_when_it_is_empty_again(series: Series, tree: Path) -> None:
    (tree / "engine/fresh").mkdir()
    before = everything(tree)
    apply(series, tree)
    reverse(series, tree)
    assert everything(tree) == before


def test_guards_before_and_after_are_conflicts_of_their_own(tree: Path, tmp_path: Path) -> None:
    guards = {
        "0001-first.patch": {"before": [{"file": "engine/core.py", "contains": ["line 31"], "lacks": ["line 30"]}]},
        "0002-second.patch": {"after": [{"file": "engine/run.sh", "contains": ["walk"]}, {"file": "engine/no.py"}]},
    }
    guarded = write_series(tmp_path / "guarded", guards=guards)
    first, second, _ = verify(guarded, tree)
    assert first.state is second.state is State.CONFLICT
    assert [str(guard) for guard in first.guards] == [
        "guard before does not hold: engine/core.py lacks 'line 31'",
        "guard before does not hold: engine/core.py contains 'line 30'",
    ]
    assert [guard.file for guard in second.guards] == ["engine/run.sh", "engine/no.py"]
    assert "guard before does not hold" in "\n".join(refusal(guarded, tree).details)


def test_guards_of_applied_patches_are_judged_where_they_belong(tree: Path, tmp_path: Path) -> None:
    """0001 makes `line five`, which 0002 takes away again: both guards hold, before and after applying."""
    guards = {
        "0001-first.patch": {"after": [{"file": "engine/core.py", "contains": ["line five\n"]}]},
        "0002-second.patch": {"after": [{"file": "engine/core.py", "lacks": ["line five\n"]}]},
    }
    guarded = write_series(tmp_path / "guarded", guards=guards)
    assert states(guarded, tree) == [State.APPLIES] * 3
    apply(guarded, tree)
    assert states(guarded, tree) == [State.APPLIED] * 3


@pytest.mark.parametrize("link", ["engine/core.py", "engine", "ours"])
def test_a_link_on_the_way_is_refused_and_what_it_leads_to_is_untouched(
    series: Series, tree: Path, tmp_path: Path, link: str
) -> None:
    outside = tmp_path / "outside"
    if (tree / link).exists():
        (tree / link).rename(outside)
    else:
        outside.mkdir()
    (tree / link).symlink_to(outside)
    for action in (apply, reverse, verify):
        with pytest.raises(OnecatError, match="symbolic link"):
            action(series, tree)
    assert outside.is_file() or not (outside / "kernels.py").exists()


def test_another_series_on_the_tree_is_named(series: Series, tree: Path, tmp_path: Path) -> None:
    apply(series, tree)
    other = write_series(tmp_path / "other", patches={}, added={})
    with pytest.raises(OnecatError) as raised:
        apply(other, tree)
    assert "has the series series applied" in raised.value.found


def test_patched_files_gives_only_the_wanted_ones_without_a_tree(series: Series) -> None:
    files = patched_files(series, FILES.get, lambda path: path.endswith(".py"))
    assert set(files) == {"engine/core.py", "engine/fresh/new.py", "ours/kernels.py"}
    assert b"line five and a half\n" in files["engine/core.py"]
    with pytest.raises(OnecatError, match="0001-first"):
        patched_files(series, {**FILES, "engine/core.py": b"other\n"}.get, lambda path: path.endswith(".py"))


def test_a_tree_is_patched_by_one_onecat_at_a_time(series: Series, tree: Path) -> None:
    from onecat.patching.transaction import exclusively

    with exclusively(tree.resolve()), pytest.raises(OnecatError, match="another onecat"):
        apply(series, tree)


CUT_OFF = """
import os, signal, sys
from pathlib import Path
from onecat.patching import apply, load_series, reverse
action, directory, tree, calls = sys.argv[1:]
left = int(calls)
def counted(name):
    real = getattr(os, name)
    def call(*arguments, **options):
        global left
        left -= 1
        if left < 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return real(*arguments, **options)
    setattr(os, name, call)
for name in ("replace", "rename", "unlink", "mkdir", "rmdir", "link", "fsync"):
    counted(name)
{"apply": apply, "reverse": reverse}[action](load_series(directory), Path(tree))
"""


@pytest.mark.parametrize("action", ["apply", "reverse"])
def test_killed_at_any_moment_the_next_call_finds_the_old_tree_or_finishes_the_new_one(
    series: Series, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, action: str
) -> None:
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)  # a killed process loses nothing that the kernel has
    pristine = everything(write_tree(tmp_path / "pristine"))
    done = write_tree(tmp_path / "done")
    apply(series, done)
    patched = everything(done)
    interrupted = 0
    for calls in range(200):
        tree = write_tree(tmp_path / f"tree-{calls}")
        if action == "reverse":
            apply(series, tree)
        child = os.fork()
        if child == 0:
            sys.argv = ["", action, f"{series.directory}/", str(tree), str(calls)]
            try:
                exec(CUT_OFF, {})
                os._exit(0)
            finally:
                os._exit(1)
        _, status = os.waitpid(child, 0)
        if os.WIFEXITED(status):
            assert os.WEXITSTATUS(status) == 0
            break
        assert os.WTERMSIG(status) == signal.SIGKILL
        interrupted += tree_status(series, tree).interrupted
        if tree_status(series, tree).interrupted:
            with pytest.raises(OnecatError, match="cut off"):
                verify(series, tree)
        apply(series, tree)
        assert everything(tree) == patched, f"apply after {calls} calls"
        reverse(series, tree)
        assert everything(tree) == pristine, f"reverse after {calls} calls"
    assert calls > 30, "the change was cut off at every step"
    assert interrupted > 5, "some of them after the journal"


@pytest.mark.parametrize("path", ["../outside", "/etc/outside", "engine/link/outside"])
def test_a_journal_or_record_made_by_others_leads_nowhere(
    series: Series, tree: Path, tmp_path: Path, path: str
) -> None:
    (tmp_path / "outside").mkdir()
    (tree / "engine/link").symlink_to(tmp_path)
    (tree / STAGING).mkdir()
    (tree / STAGING / "0.new").write_bytes(b"theirs\n")
    journal = {"writes": {"0": path}, "removed": [], "kept": [], "made": [], "emptied": []}
    others = {"writes": {}, "emptied": [path]}, {"writes": {}, "removed": [[0, path]]}
    for written in (journal, *({**journal, **each} for each in others)):
        (tree / STAGING / "journal.json").write_text(json.dumps(written))
        with pytest.raises(OnecatError) as raised:
            apply(series, tree)
        assert raised.value.code is ExitCode.NEEDS_PERSON
    assert (tmp_path / "outside").is_dir()
    shutil.rmtree(tree / STAGING)
    (tree / "engine/link").unlink()
    apply(series, tree)
    record = json.loads((tree / RECORD).read_text())
    (tree / RECORD).write_text(json.dumps({**record, "directories": ["../outside"]}))
    with pytest.raises(OnecatError, match="record .* is damaged"):
        reverse(series, tree)
    assert (tmp_path / "outside").is_dir()


def test_a_disk_without_room_leaves_the_tree_as_it_was(
    series: Series, tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = everything(tree)
    real, calls = os.fsync, 0

    def full(descriptor: int) -> None:
        nonlocal calls
        calls += 1
        if calls == 4:
            raise OSError(28, "No space left on device")
        real(descriptor)

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        apply(series, tree)
    assert everything(tree) == before


@pytest.mark.parametrize("failing", range(1, 7))
def test_a_rename_that_fails_in_the_middle_is_taken_back(
    series: Series, tree: Path, monkeypatch: pytest.MonkeyPatch, failing: int
) -> None:
    before = everything(tree)
    real, calls = os.replace, 0

    def failed(source: str, target: str) -> None:
        nonlocal calls
        forward = str(source).endswith(".new")
        calls += forward
        if forward and calls == failing:
            raise PermissionError(13, "Permission denied")
        real(source, target)

    monkeypatch.setattr(os, "replace", failed)
    with pytest.raises(PermissionError):
        apply(series, tree)
    assert everything(tree) == before


def test_a_folder_that_cannot_be_written_is_told_before_anything_is_done(
    series: Series, tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = everything(tree)
    real = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path).name != "engine" and real(path, mode))
    with pytest.raises(PermissionError) as raised:
        apply(series, tree)
    assert raised.value.filename == str(tree / "engine")
    assert everything(tree) == before
