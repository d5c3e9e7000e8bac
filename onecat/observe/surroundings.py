"""What stands around a line of a log, kept for a closer look when the whole log is read."""

from __future__ import annotations

from dataclasses import dataclass, field

BEFORE_BYTES = 12 << 10
AFTER_BYTES = 24 << 10
"""A traceback of vLLM with the chain of those before it, and other processes' lines between, has about 20 KiB."""


@dataclass
class Passage:
    """A line with the text before and after it. number: of the line. wanted: bytes after it still to come."""

    number: int
    before: bytes
    line: bytes
    after: bytearray = field(default_factory=bytearray)
    wanted: int = AFTER_BYTES

    def lines(self) -> list[tuple[int, str]]:
        """Its lines with their numbers; the first and the last one may be cut off."""
        before, after = bytes(self.before), bytes(self.after)
        first = self.number - before.count(b"\n")
        text = (before + self.line + after).decode("utf-8", "replace")
        return [(first + index, line) for index, line in enumerate(text.split("\n"))]


class Surroundings:
    """Cuts passages out of blocks that come one after the other."""

    def __init__(self) -> None:
        self._tail = b""
        self._waiting: list[Passage] = []

    def around(self, text: bytes, begin: int, end: int, number: int) -> Passage:
        """The passage around a line of the present block, before `advance` is called for that block."""
        before = text[max(0, begin - BEFORE_BYTES) : begin]
        if len(before) < BEFORE_BYTES:
            before = self._tail[len(before) - BEFORE_BYTES :] + before
        # A long line is known by its begin.
        line, after = text[begin : min(end, begin + AFTER_BYTES)], text[end : end + AFTER_BYTES]
        passage = Passage(number, before, line, bytearray(after), AFTER_BYTES - len(after))
        if passage.wanted > 0:
            self._waiting.append(passage)
        return passage

    def begin(self, text: bytes) -> None:
        """A new block has come: give passages of the blocks before what they still want."""
        for passage in self._waiting:
            more = text[: passage.wanted]
            passage.after += more
            passage.wanted -= len(more)
        self._waiting = [passage for passage in self._waiting if passage.wanted > 0]

    def end(self, text: bytes) -> None:
        """The present block is done."""
        self._tail = text[-BEFORE_BYTES:] if len(text) >= BEFORE_BYTES else (self._tail + text)[-BEFORE_BYTES:]
