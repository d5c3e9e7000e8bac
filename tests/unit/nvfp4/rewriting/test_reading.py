"""Reading ahead goes on after steps that take less than they said, and tells failures where they matter."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from onecat.errors import OnecatError
from onecat.nvfp4.rewriting import Made, Shard, SourceFiles, Step, open_source
from onecat.nvfp4.rewriting.layout import largest_tensor
from onecat.nvfp4.rewriting.memory import Memory
from onecat.nvfp4.rewriting.reading import ReadAhead
from tests.testbed.waiting import wait_until
from tests.unit.nvfp4.rewriting.small_work import FILES, halved, plan, write_source


@pytest.fixture
def read_names(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of tensors in the order in which they are read from the disk."""
    names: list[str] = []
    real = SourceFiles.piece

    def noted(files: SourceFiles, name: str, begin: int, end: int) -> object:
        names.append(name)
        return real(files, name, begin, end)

    monkeypatch.setattr(SourceFiles, "piece", noted)
    return names


def test_what_a_step_leaves_is_given_up_and_the_next_finds_its_own(tmp_path: Path, read_names: list[str]) -> None:
    work, source = plan(write_source(tmp_path / "source"), tmp_path / "target")
    steps = work.shards[0].steps
    memory = Memory(512)
    ahead = ReadAhead(source, steps, memory)
    wait_until(lambda: len(read_names) == 3)
    for step in steps[:3]:  # a, the norm that is copied, b: none is asked for
        ahead.end_step(step)
    found = ahead.take("layers.0.c")
    assert found.tobytes() == source.piece("layers.0.c", 0, 512).tobytes()
    assert read_names == ["layers.0.a", "layers.0.b", "layers.0.c", "layers.0.c"], "once ahead, once by this test"
    ahead.end_step(steps[3])
    ahead.stop()
    assert memory.fits(2 * 512 + 32 * 2**20), "nothing is held any more"


def test_a_tensor_that_is_copied_does_not_let_more_be_read_ahead(tmp_path: Path) -> None:
    """An embedding is copied piece by piece: twice its size read ahead of small matrices would be held for nothing."""
    work, source = plan(write_source(tmp_path / "source"), tmp_path / "target")
    name = "layers.0.a"
    copied = Step(name, (Made(name, "F32", (8, 16)),), (name,))
    norm = Step("layers.0.norm", (Made("layers.0.norm", "F32", (16,)),), ("layers.0.norm",), halved("layers.0.norm"))
    assert largest_tensor(work, source) == 8 * 16 * 4
    assert largest_tensor(replace(work, shards=(Shard("model.safetensors", (copied, norm)),)), source) == 16 * 4


def test_a_file_that_became_shorter_is_told_where_its_tensor_is_asked_for(tmp_path: Path) -> None:
    directory = write_source(tmp_path / "source")
    work, _ = plan(directory, tmp_path / "target")
    source = open_source(directory, FILES)
    (directory / FILES[0]).write_bytes((directory / FILES[0]).read_bytes()[:-100])
    ahead = ReadAhead(source, work.shards[0].steps, Memory(512))
    ahead.take("layers.0.a")
    ahead.end_step(work.shards[0].steps[0])
    ahead.take("layers.0.b")
    ahead.end_step(work.shards[0].steps[2])
    with pytest.raises(OnecatError, match="became shorter"):
        ahead.take("layers.0.c")
    ahead.stop()
