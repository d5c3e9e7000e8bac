"""A full disk is told from what a program says, or from the disk when its words did not fit on it."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from onecat.images.disk import FULL_BYTES, is_out_of_space


def test_a_programs_own_words_are_believed(tmp_path: Path) -> None:
    assert is_out_of_space("OSError: [Errno 28] No space left on device", tmp_path / "absent")
    assert not is_out_of_space("ERROR: No matching distribution found", tmp_path)
    assert not is_out_of_space("ERROR: No matching distribution found", tmp_path / "absent")


@pytest.mark.parametrize(("free", "full"), [(0, True), (FULL_BYTES - 1, True), (FULL_BYTES, False)])
def test_a_log_that_was_cut_off_hides_no_full_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free: int, full: bool
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=free))
    assert is_out_of_space("ERROR: Exception:", tmp_path) is full
