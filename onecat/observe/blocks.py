"""A log in blocks of whole lines, whatever its encoding and however long its lines, in little memory.

In: the bytes of a log as they are read. Out: blocks in UTF-8, each with the number of its first line.
"""

from __future__ import annotations

import codecs
import itertools
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from onecat.observe.lines import COLOUR_BYTES, COLOUR_JSON

BLOCK_BYTES = 1 << 20
"""Least size of a block of a long log."""
LONGEST_LINE = 2 << 20
"""Bytes; a longer line comes in pieces of this size."""
OVERLAP = 64 << 10
"""Bytes that two pieces of a line have in common. A match up to so long is seen wherever the cut is; only one that is
longer, in a line of more than LONGEST_LINE, can be missed."""
_LINES_PER_BLOCK = 2000
_LOOKED_AT = 512
_LOOKED_AT_FOR_JSON = 8 << 10
_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
# Which bytes of four are 0 where all characters are ASCII.
_ZEROS = (
    ((False, True, True, True), "utf-32-le"),
    ((True, True, True, False), "utf-32-be"),
    ((False, True, False, True), "utf-16-le"),
    ((True, False, True, False), "utf-16-be"),
)
# An entry of journalctl -o json whose message is not plain text, as where it has colours.
_BYTES_MESSAGE = re.compile(rb'"MESSAGE"\s?:\s?\[([\d, ]*)\]')


@dataclass(frozen=True)
class Block:
    """Lines of a log, divided by \\n.

    first_line: number of the first line. begun: whether that line began in the block before. unfinished: whether the
    last line goes on in the next block.
    """

    text: bytes
    first_line: int
    begun: bool = False
    unfinished: bool = False


def blocks_of_bytes(chunks: Iterable[bytes]) -> Iterator[Block]:
    """The blocks of a log from its bytes; UTF-16 and UTF-32 are recognised, all else is taken as it is."""
    rest = b""
    number, begun = 1, False
    for chunk in _in_utf8(iter(chunks)):
        rest = rest + chunk if rest else chunk
        if len(rest) < BLOCK_BYTES:
            continue
        end = rest.rfind(b"\n") + 1
        while end == 0 and len(rest) >= LONGEST_LINE + OVERLAP:
            yield Block(_cleaned(rest[:LONGEST_LINE]), number, begun, unfinished=True)
            rest, begun = rest[LONGEST_LINE - OVERLAP :], True
        if end > 0:
            yield Block(_cleaned(rest[:end]), number, begun)
            number += rest.count(b"\n", 0, end)
            rest, begun = rest[end:], False
    if rest:
        yield Block(_cleaned(rest), number, begun)


def blocks_of_lines(lines: Iterable[str]) -> Iterator[Block]:
    """The blocks of a log from its lines, which are read as they come."""
    iterator = iter(lines)
    number = 1
    while some := list(itertools.islice(iterator, _LINES_PER_BLOCK)):
        yield block_of_lines(some, number)
        number += len(some)


def block_of_lines(lines: Iterable[str], number: int) -> Block:
    """One block of a few lines, the first of which has this number."""
    text = "\n".join(line.rstrip("\r\n").replace("\n", " ") for line in lines)
    return Block(_cleaned(text.encode("utf-8", "replace") + b"\n"), number)


def _cleaned(text: bytes) -> bytes:
    """Without colours, which would tear words apart, and with journald's arrays of bytes as text."""
    is_json = b'{"' in text[:_LOOKED_AT_FOR_JSON] or b'{"' in text[-_LOOKED_AT_FOR_JSON:]
    if is_json and b'"MESSAGE"' in text:
        text = _BYTES_MESSAGE.sub(_message, text)
    if is_json and b"\\u001" in text:
        text = COLOUR_JSON.sub(b"", text)
    if b"\x1b" in text:
        text = COLOUR_BYTES.sub(b"", text)
    return text


def _message(found: re.Match[bytes]) -> bytes:
    try:
        message = bytes(int(number) for number in found[1].split(b",") if number.strip())
    except ValueError:
        return found[0]
    return b'"MESSAGE":' + json.dumps(message.decode("utf-8", "replace"), ensure_ascii=False).encode()


def _in_utf8(chunks: Iterator[bytes]) -> Iterator[bytes]:
    first = b""
    for chunk in chunks:
        first += chunk
        if len(first) >= _LOOKED_AT:
            break
    encoding, mark = _encoding(first)
    stream = itertools.chain([first[mark:]], chunks)
    if encoding == "utf-8":
        yield from stream
        return
    decoder = codecs.getincrementaldecoder(encoding)("replace")
    for chunk in stream:
        yield decoder.decode(chunk).encode("utf-8", "replace")
    yield decoder.decode(b"", final=True).encode("utf-8", "replace")


def _encoding(first: bytes) -> tuple[str, int]:
    """The encoding of a text by its first bytes, and how many of them only say so."""
    for mark, name in _MARKS:
        if first.startswith(mark):
            return name, len(mark)
    # Most characters of a log are ASCII, so most other bytes of UTF-16 and UTF-32 are 0 even where no mark says so.
    looked_at = first[: min(len(first), _LOOKED_AT) // 4 * 4]
    quarter = len(looked_at) // 4
    if quarter >= 2:
        zeros = [looked_at[place::4].count(0) / quarter for place in range(4)]
        for form, name in _ZEROS:
            if all(share > 0.7 if is_zero else share < 0.1 for share, is_zero in zip(zeros, form, strict=True)):
                return name, 0
    return "utf-8", 0
