"""What a run writes, and what it refuses before it writes anything."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path

import numpy
import pytest
from safetensors.numpy import load_file

from onecat.errors import ExitCode, OnecatError
from onecat.nvfp4.rewriting import Contents, Made, Progress, Rewrite, Shard, SourceFiles, Step, check_target, rewrite
from onecat.nvfp4.rewriting.state import state_directory
from onecat.space import Room
from tests.unit.nvfp4.rewriting.small_work import FILES, everything, halved, plan, write_source


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write_source(tmp_path / "source")


def refused(work: Rewrite, read: SourceFiles) -> OnecatError:
    """The error of a run that changes nothing."""
    before = everything(work.target) if work.target.is_dir() else None
    with pytest.raises(OnecatError) as raised:
        rewrite(work, read)
    assert (everything(work.target) if work.target.is_dir() else None) == before
    assert not state_directory(work.target).exists()
    assert raised.value.next_steps
    return raised.value


def test_all_tensors_are_made_and_nothing_else_is_left(source: Path, tmp_path: Path) -> None:
    shown: list[Progress] = []
    work, read = plan(source, tmp_path / "new/target")
    found = rewrite(work, read, shown.append)
    for number, file in enumerate(FILES):
        old, new = load_file(source / file), load_file(work.target / file)
        for name in (f"layers.{number}.{each}" for each in "abc"):
            assert (new[name] == (old[name] / 2).astype(numpy.float16)).all()
            assert (new[f"{name}.rows"] == old[name].max(axis=1)).all()
        assert (new[f"layers.{number}.norm"] == old[f"layers.{number}.norm"]).all()
    there = everything(work.target)
    assert set(there) == {*FILES, *work.documents, *work.copied}
    assert there["config.json"] == work.documents["config.json"].encode()
    assert there["pooling/config.json"] == b"{}"
    assert [each.module for each in found.reports[:2]] == ["layers.0.a", "layers.0.norm"]
    assert found.reports[0].measured["largest"] == load_file(source / FILES[0])["layers.0.a"].max()
    assert (found.bytes_read, found.reused, found.bytes_reused) == (2 * (3 * 512 + 64), (), 0)
    assert found.bytes_written == 2 * (3 * (256 + 32) + 64)
    assert [each.done for each in shown] == sorted(each.done for each in shown)
    assert shown[-1].done == shown[-1].total == found.bytes_read


def test_new_files_have_the_mode_that_the_umask_leaves(source: Path, tmp_path: Path) -> None:
    (source / "tokenizer.json").chmod(0o600)
    work, read = plan(source, tmp_path / "target")
    before = os.umask(0o027)
    try:
        rewrite(work, read)
    finally:
        os.umask(before)
    assert {(work.target / name).stat().st_mode & 0o777 for name in everything(work.target)} == {0o640}


def test_what_links_lead_to_is_read_and_copied(source: Path, tmp_path: Path) -> None:
    """As in a hub's cache."""
    cache = tmp_path / "snapshot"
    (cache / "pooling").mkdir(parents=True)
    for name in everything(source):
        (cache / name).symlink_to(source / name)
    work, read = plan(cache, tmp_path / "target")
    rewrite(work, read)
    assert not any(each.is_symlink() for each in work.target.rglob("*"))
    assert (work.target / "tokenizer.json").read_bytes() == (source / "tokenizer.json").read_bytes()


def test_tensors_asked_for_in_another_order_or_again_are_right(source: Path, tmp_path: Path) -> None:
    def both(given: SourceFiles) -> Contents:
        second = given.read("layers.0.b")
        first, again = given.read("layers.0.a"), given.read("layers.0.a")
        return Contents([first + again, second])

    work, read = plan(source, tmp_path / "target")
    outputs = tuple(Made(name, "F32", (8, 16)) for name in "ab")
    step = Step("both", outputs, ("layers.0.a", "layers.0.c", "layers.0.b"), both)
    last = replace(work.shards[0].steps[3], module="last")
    rewrite(replace(work, shards=(Shard(FILES[0], (step, last)),), documents={}), read)
    old, new = load_file(source / FILES[0]), load_file(work.target / FILES[0])
    assert (new["a"] == 2 * old["layers.0.a"]).all()
    assert (new["b"] == old["layers.0.b"]).all()
    assert (new["layers.0.c"] == (old["layers.0.c"] / 2).astype(numpy.float16)).all()


def test_no_more_is_read_ahead_than_may_be_held(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Twice the largest tensor: the one that is worked on, and the next."""
    read_so_far: list[str] = []
    seen: list[tuple[str, ...]] = []
    real = SourceFiles.piece

    def noted(files: SourceFiles, name: str, begin: int, end: int) -> numpy.ndarray:
        read_so_far.append(name)
        return real(files, name, begin, end)

    def make(given: SourceFiles) -> Contents:
        made = halved("layers.0.a")(given)
        limit = time.monotonic() + 5
        while "layers.0.b" not in read_so_far and time.monotonic() < limit:
            time.sleep(0.001)
        time.sleep(0.05)
        seen.append(tuple(read_so_far))
        return made

    monkeypatch.setattr("onecat.nvfp4.rewriting.memory.SLACK", 0)
    monkeypatch.setattr(SourceFiles, "piece", noted)
    rewrite(*plan(source, tmp_path / "target", makes={"layers.0.a": make}))
    assert seen == [("layers.0.a", "layers.0.b")]


def test_contents_that_a_step_refuses_are_told_with_the_name_of_the_module(source: Path, tmp_path: Path) -> None:
    def make(given: SourceFiles) -> Contents:
        raise ValueError("3 of 128 weights are NaN or infinite")

    work, read = plan(source, tmp_path / "target", makes={"layers.1.b": make})
    with pytest.raises(OnecatError) as raised:
        rewrite(work, read)
    assert raised.value.found == "layers.1.b: 3 of 128 weights are NaN or infinite"
    assert "kept" in raised.value.details[0]
    assert not (work.target / "config.json").exists()
    assert rewrite(*plan(source, work.target)).reused == (FILES[0],)


@pytest.mark.parametrize("made", [[], [numpy.zeros(128, "<f2")], [numpy.zeros(128, "<f4"), numpy.zeros(8, "<f4")],
                                  [numpy.zeros(128, "<f2"), *[numpy.zeros(8, "<f4")] * 2]])  # fmt: skip
def test_a_step_that_makes_another_size_than_planned_is_a_fault_of_ours(
    source: Path, tmp_path: Path, made: list[numpy.ndarray]
) -> None:
    work, read = plan(source, tmp_path / "target", makes={"layers.0.b": lambda given: Contents(made)})
    with pytest.raises(AssertionError, match=r"layers\.0\.b"):
        rewrite(work, read)


def test_the_source_and_what_is_in_it_are_no_targets(source: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(source)
    for target in (source, tmp_path / "link", source / "new"):
        before = everything(source)
        with pytest.raises(OnecatError) as raised:
            rewrite(*plan(source, target))
        assert raised.value.code is ExitCode.USAGE
        assert everything(source) == before
    (tmp_path / "file").write_text("mine")
    assert "no directory" in refused(*plan(source, tmp_path / "file")).found
    assert "file is no directory" in refused(*plan(source, tmp_path / "file/new")).found


def test_a_target_that_holds_things_is_refused_and_told_what(source: Path, tmp_path: Path) -> None:
    work, read = plan(source, tmp_path / "target")
    work.target.mkdir()
    (work.target / "notes.txt").write_text("mine")
    assert refused(work, read).found.endswith("target holds other things: notes.txt")
    (work.target / "notes.txt").unlink()
    rewrite(work, read)
    error = refused(work, read)
    assert error.found.endswith("target holds a finished checkpoint")
    assert any("--replace" in step for step in error.next_steps)


def test_replacing_takes_our_names_and_leaves_others_but_no_weights(source: Path, tmp_path: Path) -> None:
    work, read = plan(source, tmp_path / "target", replace=True)
    (work.target / "pooling").mkdir(parents=True)
    (work.target / "notes.txt").write_text("mine")
    (work.target / "config.json").symlink_to(tmp_path / "outside")
    (tmp_path / "outside").write_text("theirs")
    rewrite(work, read)
    assert (tmp_path / "outside").read_text() == "theirs"
    assert (work.target / "notes.txt").read_text() == "mine"
    assert everything(work.target)["config.json"] == work.documents["config.json"].encode()
    (work.target / "model.safetensors").write_text("old")
    assert "taken for a part" in refused(work, read).found
    (work.target / "model.safetensors").unlink()
    (work.target / FILES[0]).unlink()
    (work.target / FILES[0]).mkdir()
    assert "is a directory" in refused(work, read).found


@pytest.mark.parametrize("name", [FILES[1], "config.json", "tokenizer.json"])
@pytest.mark.parametrize("option", ["replace", "restart"])
def test_no_file_is_removed_that_the_source_links_to(source: Path, tmp_path: Path, name: str, option: str) -> None:
    target = tmp_path / "target"
    target.mkdir()
    (source / name).rename(target / name)
    (source / name).symlink_to(target / name)
    before = everything(source)
    error = refused(*plan(source, target, **{option: True}))
    assert f"{name} is a link to" in error.found and error.code is ExitCode.USAGE
    assert everything(source) == before


def test_replacing_removes_nothing_behind_a_link(source: Path, tmp_path: Path) -> None:
    work, read = plan(source, tmp_path / "target", replace=True)
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs/config.json").write_text("theirs")
    work.target.mkdir()
    (work.target / "config.json").write_text("mine")
    (work.target / "pooling").symlink_to(tmp_path / "theirs")
    assert "is a link" in refused(work, read).found
    assert (tmp_path / "theirs/config.json").read_text() == "theirs"
    assert everything(work.target) == {"config.json": b"mine"}, "nothing was replaced yet"
    (work.target / "pooling").unlink()
    (work.target / "pooling").write_text("mine")
    assert "a directory of that name is to be made" in refused(work, read).found


def test_replacing_leaves_no_other_account_of_the_quantisation(source: Path, tmp_path: Path) -> None:
    work, read = plan(source, tmp_path / "target", replace=True)
    work.target.mkdir()
    (work.target / "hf_quant_config.json").write_text("{}")
    assert refused(work, read).found.startswith("hf_quant_config.json is there, would stay there")


STRANGE = ("../model.safetensors", "/tmp/model.safetensors", "a/model.safetensors", "..", "", ".", "a\0b",
           "\udcff" * 300, ".onecat-rewrite", "x" * 256, "\ud800", "config.json")  # fmt: skip


@pytest.mark.parametrize("name", STRANGE)
def test_names_that_lead_elsewhere_are_refused(source: Path, tmp_path: Path, name: str) -> None:
    work, read = plan(source, tmp_path / "target")
    error = refused(replace(work, shards=(replace(work.shards[0], file=name), work.shards[1])), read)
    assert "whose name" in error.found
    error.found.encode()  # can be printed


@pytest.mark.parametrize(
    "name", ["../tokenizer.json", "a/../../b", "/etc/passwd", "a//b", ".onecat-rewrite/state.json"]
)
def test_copied_files_stay_in_the_target(source: Path, tmp_path: Path, name: str) -> None:
    work, read = plan(source, tmp_path / "target")
    assert "no plain file name" in refused(replace(work, copied=(name,)), read).found


def test_without_room_nothing_is_made(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onecat.nvfp4.rewriting.execution.room", lambda directory: Room(2**20, None))
    work, read = plan(source, tmp_path / "new/target")
    error = refused(work, read)
    assert error.found.startswith("not enough room: 2.") and error.code is ExitCode.NO
    assert not (tmp_path / "new").exists()


def test_a_target_that_may_not_be_written_is_told(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode, **how: False)
    assert "you may not write" in refused(*plan(source, tmp_path / "target")).found
    system = os.statvfs(tmp_path)
    fields = [getattr(system, name) for name in ("f_bsize", "f_frsize", "f_blocks", "f_bfree", "f_bavail")]
    read_only = os.statvfs_result((*fields, 0, 0, 0, os.ST_RDONLY, 255))
    monkeypatch.setattr(os, "statvfs", lambda path: read_only)
    assert "file system that can only be read" in refused(*plan(source, tmp_path / "target")).found


def test_a_source_that_changes_while_it_is_read_makes_no_checkpoint(source: Path, tmp_path: Path) -> None:
    def make(given: SourceFiles) -> Contents:
        os.utime(source / FILES[0], ns=(0, 0))
        return halved("layers.1.c")(given)

    work, read = plan(source, tmp_path / "target", makes={"layers.1.c": make})
    with pytest.raises(OnecatError, match="changed while it was read"):
        rewrite(work, read)
    assert not (work.target / "config.json").exists()


def test_a_dry_run_finds_what_a_run_would_refuse_and_makes_nothing(source: Path, tmp_path: Path) -> None:
    work, read = plan(source, tmp_path / "new/target")
    check_target(work, read)
    assert not (tmp_path / "new").exists()
    rewrite(work, read)
    for target in (work.target, source, source / "inside"):
        would = replace(work, target=target)
        is_told = refused(would, read)
        with pytest.raises(OnecatError) as raised:
            check_target(would, read)
        assert (raised.value.found, raised.value.code) == (is_told.found, is_told.code)
