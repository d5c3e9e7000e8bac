"""The source archive: nothing of it is believed before its hash is right, and nothing leaves the folder."""

from __future__ import annotations

import io
import os
import tarfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from onecat.errors import ExitCode, OnecatError
from onecat.patching import read_members, unpack
from onecat.patching.archive import unpack_as
from tests.unit.patching.small_series import FILES, NAME, pin, write_archive


def test_it_is_unpacked_with_plain_modes_below_one_folder(tmp_path: Path) -> None:
    archive = write_archive(tmp_path / "engine-1.0.tar.gz")
    root = unpack(archive, pin(archive), tmp_path / "into")
    assert root == tmp_path / "into" / NAME
    assert {path.relative_to(root).as_posix(): path.read_bytes() for path in root.rglob("*") if path.is_file()} == FILES
    assert (root / "engine/core.py").stat().st_mode & 0o777 == 0o644
    assert [path.name for path in (tmp_path / "into").iterdir()] == [NAME]


def test_it_can_be_unpacked_as_a_folder_that_is_empty_or_new(tmp_path: Path) -> None:
    archive = write_archive(tmp_path / "engine-1.0.tar.gz")
    (tmp_path / "empty").mkdir()
    for root in (tmp_path / "empty", tmp_path / "new"):
        unpack_as(archive, pin(archive), root)
        assert (root / "engine/core.py").read_bytes() == FILES["engine/core.py"]
    (tmp_path / ".onecat-partial-0-killed").mkdir()
    unpack_as(archive, pin(archive), tmp_path / "third")
    assert not list(tmp_path.glob(".*")), "nothing is left, of a killed run neither"
    (tmp_path / "full").mkdir()
    (tmp_path / "full/mine").touch()
    with pytest.raises(OSError):
        unpack_as(archive, pin(archive), tmp_path / "full")
    assert [path.name for path in (tmp_path / "full").iterdir()] == ["mine"]


def test_members_are_read_without_unpacking(tmp_path: Path) -> None:
    archive = write_archive(tmp_path / "engine-1.0.tar.gz")
    source = read_members(archive, pin(archive), {"engine/core.py", "engine/none.py"})
    assert set(source.files) == {"engine/core.py"}
    assert source.files["engine/core.py"].content == FILES["engine/core.py"]


def test_another_hash_is_refused_with_both_and_what_it_means(tmp_path: Path) -> None:
    archive = write_archive(tmp_path / "engine-1.0.tar.gz")
    upstream = replace(pin(archive), sha256="1" * 64)
    for refused in (
        lambda: unpack(archive, upstream, tmp_path / "into"),
        lambda: read_members(archive, upstream, {"engine/core.py"}),
    ):
        with pytest.raises(OnecatError) as raised:
            refused()
        assert raised.value.code is ExitCode.NO
        assert raised.value.expected == f"sha256 {'1' * 64}"
        assert raised.value.details == (
            f"sha256 {pin(archive).sha256} was found",
            "either the file is damaged, or engine 1.0 was released anew or replaced",
        )
    assert not list((tmp_path / "into").iterdir())


def test_a_tree_that_is_there_is_not_overwritten(tmp_path: Path) -> None:
    archive = write_archive(tmp_path / "engine-1.0.tar.gz")
    root = unpack(archive, pin(archive), tmp_path)
    (root / "mine").touch()
    with pytest.raises(OnecatError, match="is there already"):
        unpack(archive, pin(archive), tmp_path)
    assert (root / "mine").exists()


def member(name: str, kind: bytes = tarfile.REGTYPE, target: str = "") -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    made.type, made.linkname = kind, target
    return made


@pytest.mark.parametrize(
    ("bad", "found"),
    [
        (member("../outside"), "leads out of the source tree"),
        (member(f"{NAME}/../../outside"), "leads out of the source tree"),
        (member("/tmp/outside"), "leads out of the source tree"),
        (member(f"{NAME}/.git/hooks/post-checkout"), "is no source file"),
        (member(f"{NAME}/.onecat-patching/journal.json"), "is no source file"),
        (member(f"{NAME}/link", tarfile.SYMTYPE, "/etc"), "is a link"),
        (member(f"{NAME}/link", tarfile.LNKTYPE, f"{NAME}/PKG-INFO"), "is a link"),
        (member(f"{NAME}/device", tarfile.CHRTYPE), "is a device or pipe"),
        (member(f"{NAME}/device", tarfile.BLKTYPE), "is a device or pipe"),
        (member(f"{NAME}/pipe", tarfile.FIFOTYPE), "is a device or pipe"),
        (member("other/file"), "lies beside"),
        (member("file"), "lies beside the folder"),
        (member(f"{NAME}/PKG-INFO"), "is in it twice"),
    ],
)
def test_a_member_that_is_no_plain_file_of_the_tree_is_refused_and_nothing_stays(
    tmp_path: Path, bad: tarfile.TarInfo, found: str
) -> None:
    archive = write_archive(tmp_path / "engine-1.0.tar.gz")
    with tarfile.open(tmp_path / "bad.tar.gz", "w:gz") as tar, tarfile.open(archive) as good:
        for each in good:
            tar.addfile(each, good.extractfile(each))
        tar.addfile(bad, io.BytesIO())
    with pytest.raises(OnecatError) as raised:
        unpack(tmp_path / "bad.tar.gz", pin(tmp_path / "bad.tar.gz"), tmp_path / "into")
    assert found in raised.value.found
    assert raised.value.code is ExitCode.NO
    assert not list((tmp_path / "into").iterdir())
    assert not (tmp_path / "outside").exists()


@pytest.mark.parametrize("spoil", [lambda data: data[: len(data) // 2], lambda data: b"no archive", lambda data: b""])
def test_a_file_that_is_no_whole_archive_is_told(tmp_path: Path, spoil: Callable[[bytes], bytes]) -> None:
    archive = write_archive(tmp_path / "engine-1.0.tar.gz", {**FILES, "noise": os.urandom(100_000)})
    archive.write_bytes(spoil(archive.read_bytes()))
    with pytest.raises(OnecatError, match="cannot be read|is empty"):
        unpack(archive, pin(archive), tmp_path / "into")
    assert not list((tmp_path / "into").iterdir())
