"""Logs as commands read them."""

from __future__ import annotations

import bz2
import errno
import gzip
import io
import lzma
from collections.abc import Callable
from pathlib import Path

import pytest

from onecat.cli.log_files import chunks_of, open_log
from onecat.errors import OnecatError

TEXT = b"RuntimeError: No CUDA GPUs are available\n" * 100
KINDS = [(gzip.compress, "zcat"), (lzma.compress, "xzcat"), (bz2.compress, "bzcat")]


@pytest.mark.parametrize(("compress", "program"), KINDS)
def test_a_compressed_log_is_read_and_one_that_is_cut_off_told_with_what_prints_it(
    compress: Callable[[bytes], bytes], program: str, tmp_path: Path
) -> None:
    path = tmp_path / "server.log"
    path.write_bytes(compress(TEXT))
    with open_log(str(path)) as stream:
        assert b"".join(chunks_of(stream, str(path))) == TEXT
    path.write_bytes(path.read_bytes()[:-5])
    with open_log(str(path)) as stream, pytest.raises(OnecatError) as refused:
        list(chunks_of(stream, str(path)))
    assert refused.value.next_steps == (f"read what there is of it: {program} {path} | onecat diagnose -",)


class FailingDisk(io.RawIOBase):
    """Gives nothing but errors."""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: object) -> int:
        raise OSError(errno.EIO, "Input/output error")


def test_a_log_whose_disk_fails_is_not_told_to_be_compressed() -> None:
    with io.BufferedReader(FailingDisk()) as stream, pytest.raises(OnecatError, match="to its end") as refused:
        list(chunks_of(stream, "server.log"))
    assert refused.value.expected is None and not refused.value.next_steps
