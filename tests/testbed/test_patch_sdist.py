"""The shipped series on the real source: it fits exactly, and comes off without a trace."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from onecat.errors import ExitCode, OnecatError
from onecat.images.sources import fetch_source
from onecat.patching import (
    State,
    apply,
    load_series,
    patched_files,
    read_members,
    reverse,
    touched_paths,
    unpack,
    verify,
)
from onecat.paths import Home
from tests.testbed.command import Onecat
from tests.testbed.sources import vllm_series

SERIES = "vllm-0.27.1"


@pytest.fixture(scope="module")
def tree(vllm_source: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A copy of the source that the tests of this file share, each of which leaves it as upstream has it.

    Its files are those of the source under second names, which patching must never write through.
    """
    copy = tmp_path_factory.mktemp("tree") / "source"
    shutil.copytree(vllm_source, copy, copy_function=os.link)
    yield copy
    shutil.rmtree(copy)


def everything(root: Path) -> dict[str, tuple[int, str | None]]:
    """Each file and folder below a root: its mode and the hash of its bytes."""
    return {
        path.relative_to(root).as_posix(): (
            path.lstat().st_mode,
            hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else None,
        )
        for path in root.rglob("*")
    }


def test_every_patch_of_the_series_fits_exactly_and_all_guards_hold(vllm_archive: Path) -> None:
    series = load_series(SERIES)
    states = verify(series, read_members(vllm_archive, series.upstream, touched_paths(series)))
    assert [state.name for state in states] == [*(patch.name for patch in series.patches), "add"]
    assert len(series.patches) >= 2
    assert {state.state for state in states} == {State.APPLIES}, [state for state in states if not state.is_clean]


def test_git_makes_the_same_bytes_of_every_patch(vllm_archive: Path, tmp_path: Path) -> None:
    series = load_series(SERIES)
    source = read_members(vllm_archive, series.upstream, touched_paths(series))
    for path, file in source.files.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_bytes(file.content)
    for patch in series.patches:
        argv = ["git", "apply", "--whitespace=nowarn", str(series.directory / patch.file)]
        environment = {**os.environ, "GIT_CEILING_DIRECTORIES": str(tmp_path.parent)}
        done = subprocess.run(argv, cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, (patch.file, done.stderr)

    def original(path: str) -> bytes | None:
        file = source.files.get(path)
        return file.content if file else None

    ours = patched_files(series, original, lambda path: path not in series.added)
    assert len(ours) > 10
    assert {path: (tmp_path / path).read_bytes() for path in ours} == ours


def test_the_series_goes_on_once_and_comes_off_byte_for_byte(tree: Path, vllm_source: Path) -> None:
    series = load_series(SERIES)
    pristine = everything(tree)
    first = apply(series, tree)
    patched = everything(tree)
    assert set(first.changed) >= set(series.added)
    assert {state.state for state in verify(series, tree)} == {State.APPLIED}
    assert apply(series, tree).changed == ()
    assert everything(tree) == patched != pristine
    assert everything(vllm_source) == pristine
    assert set(reverse(series, tree).changed) == set(first.changed)
    assert everything(tree) == pristine


def test_a_damaged_archive_is_refused_with_both_hashes(vllm_archive: Path, tmp_path: Path) -> None:
    upstream = vllm_series().upstream
    content = bytearray(vllm_archive.read_bytes())
    content[len(content) // 2] ^= 1
    damaged = tmp_path / upstream.file
    damaged.write_bytes(content)
    for refused in (
        lambda: unpack(damaged, upstream, tmp_path / "into"),
        lambda: fetch_source(upstream, Home(tmp_path, tmp_path), print, tmp_path),
    ):
        with pytest.raises(OnecatError) as raised:
            refused()
        assert raised.value.code is ExitCode.NO
        assert upstream.sha256 in str(raised.value.expected)
        assert hashlib.sha256(content).hexdigest() in raised.value.details[0]
    assert not list((tmp_path / "into").iterdir())


def test_the_command_verifies_applies_and_reverses(onecat: Onecat, vllm_archive: Path, tree: Path) -> None:
    pristine = everything(tree)
    document = onecat("patch", "verify", "--source", vllm_archive, "--json").expect(0).json()
    assert document["schema"] == "onecat.patch/1" and document["clean"]
    onecat("patch", "apply", "--to", tree).expect(0)
    assert "applied" in onecat("patch", "status", tree).expect(0).stdout
    onecat("patch", "reverse", "--to", tree).expect(0)
    assert everything(tree) == pristine
