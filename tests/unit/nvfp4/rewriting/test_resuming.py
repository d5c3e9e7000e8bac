"""A run that was broken off, at any moment and however, and what goes on with it."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import resource
import shutil
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from onecat.checkpoints.rewritten import unfinished_rewrite
from onecat.errors import ExitCode, OnecatError
from onecat.nvfp4.rewriting import Contents, Progress, Rewritten, SourceFiles, rewrite
from onecat.nvfp4.rewriting.state import only_run, state_directory
from tests.testbed.waiting import wait_until
from tests.unit.nvfp4.rewriting.small_work import FILES, everything, halved, plan, write_source

OPERATIONS = ("replace", "rename", "unlink", "mkdir", "rmdir", "fsync", "write", "ftruncate", "open", "pwrite")


@pytest.fixture(autouse=True)
def _fast_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)  # a killed process loses nothing that the kernel has


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write_source(tmp_path / "source")


@pytest.fixture
def whole(source: Path, tmp_path: Path) -> tuple[dict[str, bytes], Rewritten]:
    """What an undisturbed run makes."""
    work, read = plan(source, tmp_path / "whole")
    found = rewrite(work, read)
    return everything(work.target), found


def in_child(body: Callable[[], object]) -> int:
    """Run this in a process of its own; its wait status."""
    child = os.fork()
    if child == 0:
        try:
            body()
            os._exit(0)
        finally:
            os._exit(1)
    return os.waitpid(child, 0)[1]


def killed_after(calls: int, body: Callable[[], object]) -> int:
    """Run this in a process that is killed when it is about to do one more operation on files than `calls`."""

    def counted(name: str) -> None:
        real = getattr(os, name)

        def call(*arguments: object, **options: object) -> object:
            nonlocal calls
            calls -= 1
            if calls < 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*arguments, **options)

        setattr(os, name, call)

    def run() -> None:
        for name in OPERATIONS:
            counted(name)
        body()

    return in_child(run)


def check_honest(target: Path, whole: dict[str, bytes]) -> None:
    """Nothing that looks finished is there before all is: a file in its place is whole, config.json comes last."""
    there = {name: content for name, content in everything(target).items() if not name.startswith(".onecat-rewrite")}
    assert there.items() <= whole.items()
    if "config.json" in there:
        assert there == whole
    if there and unfinished_rewrite(target) is None:
        assert there == whole


def test_killed_at_any_moment_the_next_run_ends_with_the_same_bytes(
    source: Path, tmp_path: Path, whole: tuple[dict[str, bytes], Rewritten]
) -> None:
    reused = taken_further = 0
    for calls in range(400):
        target = tmp_path / f"target-{calls}"
        status = killed_after(calls, lambda target=target: rewrite(*plan(source, target)))
        if os.WIFEXITED(status):
            assert os.WEXITSTATUS(status) == 0
            break
        assert os.WTERMSIG(status) == signal.SIGKILL
        check_honest(target, whole[0])
        if calls % 3 == 0:  # and the run that goes on is killed, too
            killed_after(calls // 2, lambda target=target: rewrite(*plan(source, target)))
            check_honest(target, whole[0])
        try:
            found = rewrite(*plan(source, target))
        except OnecatError as error:
            assert "holds a finished checkpoint" in error.found  # it was killed after the last moment
        else:
            assert found.reports == whole[1].reports
            reused += bool(found.reused)
            taken_further += bool(found.bytes_reused) and not found.reused
        assert everything(target) == whole[0], f"after {calls} operations"
        shutil.rmtree(target)
    assert calls > 60, "it was cut off at every operation"
    assert reused > 10 and taken_further > 10, "its work was taken further, also inside a file"


def interrupted(source: Path, target: Path, module: str = "layers.1.b") -> list[str]:
    """Break a run off with Ctrl-C while it makes a module, when all before it is written; what it said."""
    number, before = int(module[7]), {"b": 2, "c": 3}[module[9]]

    def make(given: SourceFiles) -> Contents:
        journal = state_directory(target) / f"{number}.jsonl"
        wait_until(lambda: journal.read_bytes().count(b"\n") >= before)
        raise KeyboardInterrupt

    said: list[str] = []
    with pytest.raises(KeyboardInterrupt):
        rewrite(*plan(source, target, makes={module: make}), say=said.append)
    return said


def test_a_ctrl_c_says_how_to_go_on(source: Path, tmp_path: Path, whole: tuple[dict[str, bytes], Rewritten]) -> None:
    target = tmp_path / "target"
    (said,) = interrupted(source, target)
    assert "the same command goes on" in said
    assert unfinished_rewrite(target) is not None
    shown: list[Progress] = []
    lines: list[str] = []
    found = rewrite(*plan(source, target), show=shown.append, say=lines.append)
    assert lines == ["going on with what an earlier run has made; it is checked first"]
    assert found.reused == (FILES[0],)
    assert found.bytes_reused == 1600 + 512 + 64
    assert [each.checked for each in shown] == sorted((each.checked for each in shown), reverse=True)
    assert shown[-1].done == shown[-1].total
    assert everything(target) == whole[0]


@pytest.mark.parametrize("name", [FILES[0], ".onecat-rewrite/1.unfinished", ".onecat-rewrite/1.jsonl",
                                  ".onecat-rewrite/0.jsonl"])  # fmt: skip
@pytest.mark.parametrize("how", ["flipped", "cut", "longer", "gone", "empty", "linked"])
def test_what_was_damaged_since_is_made_anew(
    source: Path, tmp_path: Path, whole: tuple[dict[str, bytes], Rewritten], name: str, how: str
) -> None:
    target, elsewhere = tmp_path / "target", tmp_path / "elsewhere"
    interrupted(source, target, "layers.1.c")
    place = target / name
    content = bytearray(place.read_bytes())
    content[len(content) * 3 // 4] ^= 0x40
    changed = {"flipped": content, "cut": content[:-7], "longer": content + b"\n{}\n", "empty": b""}.get(how)
    place.unlink()
    if changed is not None:
        place.write_bytes(changed)
    if how == "linked":
        elsewhere.write_text("theirs")
        place.symlink_to(elsewhere)
    shown: list[Progress] = []
    try:
        rewrite(*plan(source, target), show=shown.append)
    except OnecatError as error:
        assert how == "linked" and "is a link" in error.found
        place.unlink()
        rewrite(*plan(source, target), show=shown.append)
    assert shown[-1].done == shown[-1].total
    assert everything(target) == whole[0]
    assert not elsewhere.exists() or elsewhere.read_text() == "theirs"


def test_a_journal_with_a_torn_end_is_written_on_from_its_last_whole_line(source: Path, tmp_path: Path) -> None:
    target = tmp_path / "target"
    interrupted(source, target, "layers.1.b")
    with (state_directory(target) / "1.jsonl").open("a") as stream:
        stream.write('{"module": "layers.1.b", "mea')
    interrupted(source, target, "layers.1.c")
    found = rewrite(*plan(source, target))
    assert found.bytes_read - found.bytes_reused == 512, "only the last weight was missing"


def test_another_identity_is_refused_until_it_may_begin_anew(
    source: Path, tmp_path: Path, whole: tuple[dict[str, bytes], Rewritten]
) -> None:
    target = tmp_path / "target"
    interrupted(source, target)
    before = everything(target)
    work, read = plan(source, target, identity={"search": "minmax", "ignore": ["lm_head"]})
    with pytest.raises(OnecatError) as raised:
        rewrite(work, read)
    assert 'ignore: not given then, ["lm_head"] now' in raised.value.found
    assert raised.value.details == ('search: "mse" then, "minmax" now',)
    assert any("--restart" in step for step in raised.value.next_steps)
    assert raised.value.code is ExitCode.NO
    assert {**everything(target), ".onecat-rewrite/lock": b""} == {**before, ".onecat-rewrite/lock": b""}
    assert rewrite(replace(work, restart=True), read).reused == ()
    assert everything(target) == whole[0]


def test_a_plan_of_other_tensors_is_refused(source: Path, tmp_path: Path) -> None:
    target = tmp_path / "target"
    interrupted(source, target)
    work, read = plan(source, target)
    other = {**work.documents, "config.json": '{"model_type": "gpt2"}'}
    for changed in (replace(work, shards=work.shards[:1]), replace(work, documents=other)):
        with pytest.raises(OnecatError, match="other tensors, other files or another config"):
            rewrite(changed, read)


def test_a_changed_source_is_refused(source: Path, tmp_path: Path) -> None:
    target = tmp_path / "target"
    interrupted(source, target)
    os.utime(source / FILES[1], ns=(10**18, 10**18))
    with pytest.raises(OnecatError) as raised:
        rewrite(*plan(source, target))
    assert raised.value.found.startswith(f"{FILES[1]} of the source is another file now")
    assert any("--restart" in step for step in raised.value.next_steps)
    assert rewrite(*plan(source, target, restart=True)).reused == ()


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"schema": "onecat.rewrite-state/2"}'])
def test_a_record_that_cannot_be_read_is_no_finished_checkpoint(source: Path, tmp_path: Path, text: str) -> None:
    target = tmp_path / "target"
    interrupted(source, target, "layers.0.b")
    (state_directory(target) / "state.json").write_text(text)
    assert unfinished_rewrite(target) is not None
    with pytest.raises(OnecatError, match="cannot read"):
        rewrite(*plan(source, target))
    rewrite(*plan(source, target, restart=True))
    assert unfinished_rewrite(target) is None


def test_beginning_anew_removes_nothing_outside(source: Path, tmp_path: Path) -> None:
    target = tmp_path / "target"
    interrupted(source, target)
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/mine").write_text("mine")
    (tmp_path / "mine").write_text("mine")
    (target / "folder").symlink_to(tmp_path / "outside")
    path = state_directory(target) / "state.json"
    names = ["../mine", str(tmp_path / "mine"), "folder/mine"]
    path.write_text(json.dumps({**json.loads(path.read_text()), "writes": names}))
    with pytest.raises(OnecatError, match="holds other things"):
        rewrite(*plan(source, target, restart=True))
    assert (tmp_path / "mine").exists() and (tmp_path / "outside/mine").exists()


def test_a_target_that_is_a_link_to_a_directory_is_begun_anew_like_any(
    source: Path, tmp_path: Path, whole: tuple[dict[str, bytes], Rewritten]
) -> None:
    (tmp_path / "disk").mkdir()
    target = tmp_path / "target"
    target.symlink_to(tmp_path / "disk")
    interrupted(source, target)
    assert (target / FILES[0]).exists()
    assert rewrite(*plan(source, target, restart=True)).reused == ()
    assert everything(tmp_path / "disk") == whole[0]


def test_a_name_that_a_network_file_system_keeps_until_the_lock_is_closed_ends_no_run_in_an_error(
    source: Path, tmp_path: Path, whole: tuple[dict[str, bytes], Rewritten], monkeypatch: pytest.MonkeyPatch
) -> None:
    """NFS gives a file that is removed while it is open another name, and removes that when it is closed."""
    target = tmp_path / "target"
    kept = state_directory(target) / ".nfs0001"
    unlink, close = os.unlink, os.close

    def renaming(path: str | Path, **options: object) -> None:
        if Path(path).name == "lock":
            os.rename(path, kept)  # noqa: PTH104 - as the file system does it
        else:
            unlink(path, **options)

    def closing(descriptor: int) -> None:
        is_kept = kept.exists() and os.path.samestat(os.fstat(descriptor), kept.stat())
        close(descriptor)
        if is_kept:
            unlink(kept)

    with monkeypatch.context() as patched:
        patched.setattr(os, "unlink", renaming)
        patched.setattr(os, "close", closing)
        rewrite(*plan(source, target))
    assert everything(target) == whole[0] and not state_directory(target).exists()


@pytest.mark.parametrize("planted", [".onecat-rewrite", ".onecat-rewrite/lock", ".onecat-rewrite/copy.unfinished"])
def test_links_in_the_place_of_our_files_are_not_followed(source: Path, tmp_path: Path, planted: str) -> None:
    target, outside = tmp_path / "target", tmp_path / "outside"
    interrupted(source, target)
    place = target / planted
    if place.is_dir():
        place.rename(outside)
    else:
        place.unlink(missing_ok=True)
        outside.write_text("theirs")
    place.symlink_to(outside)
    before = outside.read_text() if outside.is_file() else everything(outside)
    with pytest.raises(OnecatError, match="is a link"):
        rewrite(*plan(source, target))
    assert (outside.read_text() if outside.is_file() else everything(outside)) == before


def test_a_second_run_is_locked_out_and_told_who_is_at_it(
    source: Path, tmp_path: Path, whole: tuple[dict[str, bytes], Rewritten]
) -> None:
    target = tmp_path / "target"
    seen: list[OnecatError] = []

    def make(given: SourceFiles) -> Contents:
        def second() -> None:
            try:
                rewrite(*plan(source, target, identity={"other": 1}, restart=True))
            except OnecatError as error:
                os._exit(10 + (f"process {os.getppid()})" in error.found and error.code is ExitCode.ROLLED_BACK))

        seen.append(os.WEXITSTATUS(in_child(second)))
        return halved("layers.0.c")(given)

    rewrite(*plan(source, target, makes={"layers.0.c": make}))
    assert seen == [11]
    assert everything(target) == whole[0]


def test_a_lock_that_its_holder_removes_at_its_end_is_no_lock(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One run opens the lock file, another one ends and removes it: who comes then must not get a lock of his own."""
    target = tmp_path / "target"
    real = fcntl.flock
    removed: list[Path] = []

    def late(descriptor: int, operation: int) -> None:
        if not removed:
            removed.append(state_directory(target) / "lock")
            shutil.rmtree(state_directory(target))
        real(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", late)
    second = only_run(target, lambda line: None)
    with only_run(target, lambda line: None), pytest.raises(OnecatError, match="another onecat"), second:
        pass
    assert removed and not target.exists()


def test_left_overs_without_a_record_are_not_taken_further(source: Path, tmp_path: Path) -> None:
    target = tmp_path / "target"
    interrupted(source, target, "layers.0.c")
    (state_directory(target) / "state.json").unlink()
    assert rewrite(*plan(source, target, identity={"other": 1})).bytes_reused == 0


@pytest.mark.parametrize(("number", "told"), [(errno.ENOSPC, "the disk is full"), (errno.EIO, "the disk failed"),
                                              (errno.EDQUOT, "quota"), (errno.EACCES, "may not be")])  # fmt: skip
@pytest.mark.parametrize("operation", ["write", "fsync", "replace", "preadv"])
def test_a_failing_disk_is_told_and_nothing_looks_finished(
    source: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    whole: tuple[dict[str, bytes], Rewritten],
    number: int,
    told: str,
    operation: str,
) -> None:
    target = tmp_path / "target"
    real, calls = getattr(os, operation), 0

    def failing(*arguments: object, **options: object) -> object:
        nonlocal calls
        calls += 1
        if calls > 4:
            raise OSError(number, os.strerror(number))
        return real(*arguments, **options)

    with monkeypatch.context() as patched:
        patched.setattr(os, operation, failing)
        with pytest.raises(OnecatError) as raised:
            rewrite(*plan(source, target))
    assert told in raised.value.found
    assert raised.value.where and raised.value.next_steps and "kept" in raised.value.details[0]
    assert raised.value.code is ExitCode.NEEDS_PERSON
    check_honest(target, whole[0])
    rewrite(*plan(source, target))
    assert everything(target) == whole[0]


def test_a_limit_of_the_process_on_files_is_told(
    source: Path, tmp_path: Path, whole: tuple[dict[str, bytes], Rewritten]
) -> None:
    target = tmp_path / "target"

    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1200, 1200))
        try:
            rewrite(*plan(source, target))
        except OnecatError as error:
            os._exit(10 + ("may not become that large" in error.found))

    assert os.WEXITSTATUS(in_child(limited)) == 11
    check_honest(target, whole[0])
    rewrite(*plan(source, target))
    assert everything(target) == whole[0]
