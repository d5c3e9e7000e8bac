"""Reads of a network stream: as much as has come, in as few steps as can be."""

from __future__ import annotations

from typing import Any

import httpcore

from onecat.pull.transport import READ_BYTES, LargeReads


class Stream(httpcore.NetworkStream):
    """Gives the pieces one after the other; an exception is raised."""

    def __init__(self, pieces: list[bytes | Exception], is_tls: bool) -> None:
        self.pieces, self._is_tls = pieces, is_tls
        self.asked: list[tuple[int, float | None]] = []

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        self.asked.append((max_bytes, timeout))
        piece = self.pieces.pop(0)
        if isinstance(piece, Exception):
            raise piece
        return piece

    def get_extra_info(self, info: str) -> Any:
        return object() if info == "ssl_object" and self._is_tls else None


def test_a_plain_stream_is_read_once_for_as_much_as_there_is() -> None:
    stream = Stream([b"a" * 100_000], is_tls=False)
    assert LargeReads(stream).read(65536, 3.0) == b"a" * 100_000
    assert stream.asked == [(READ_BYTES, 3.0)]


def test_records_of_tls_are_gathered_without_waiting_for_more() -> None:
    stream = Stream([b"a" * 16384, b"b" * 16384, httpcore.ReadError("would block"), b"c"], is_tls=True)
    reads = LargeReads(stream)
    assert reads.read(65536, 3.0) == b"a" * 16384 + b"b" * 16384
    assert [timeout for _, timeout in stream.asked] == [3.0, 0.0, 0.0]
    assert reads.read(65536, 3.0) == b"c"


def test_a_short_record_and_the_end_of_a_stream_end_a_read() -> None:
    assert LargeReads(Stream([b"HTTP/1.1 200 OK"], is_tls=True)).read(65536) == b"HTTP/1.1 200 OK"
    ended = LargeReads(Stream([b"a" * 16384, b"", b""], is_tls=True))
    assert (ended.read(65536), ended.read(65536)) == (b"a" * 16384, b"")
