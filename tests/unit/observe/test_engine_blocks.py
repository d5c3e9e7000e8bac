"""A log is read the same whatever its encoding, its ends of lines, and the pieces in which it comes."""

from __future__ import annotations

import codecs
import random
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onecat.observe import Diagnoser, Diagnosis
from onecat.observe.blocks import BLOCK_BYTES, LONGEST_LINE, OVERLAP, blocks_of_bytes

HIT = "vllm: error: unrecognized arguments: --dry-run"
LOG = "".join(f"INFO line {number} of a log\n" for number in range(60)) + HIT + "\nINFO the end ü\n"
ENCODINGS = {
    "utf-8": b"",
    "utf-8-sig": b"",
    "utf-16-le": b"",
    "utf-16-be": b"",
    "utf-16-le with a mark": codecs.BOM_UTF16_LE,
    "utf-16-be with a mark": codecs.BOM_UTF16_BE,
    "utf-32-le": b"",
    "utf-32-be": b"",
    "utf-32-le with a mark": codecs.BOM_UTF32_LE,
    "utf-32-be with a mark": codecs.BOM_UTF32_BE,
}


def told(*chunks: bytes) -> tuple[Diagnosis, ...]:
    diagnoser = Diagnoser(threads=0)
    diagnoser.read(chunks)
    return diagnoser.finish(every=True)


def pieces(log: bytes, cuts: list[int]) -> Iterator[bytes]:
    begin = 0
    for cut in [*sorted(cuts), len(log)]:
        yield log[begin:cut]
        begin = cut


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_an_encoding_is_recognised(encoding: str, end: str) -> None:
    log = ENCODINGS[encoding] + LOG.replace("\n", end).encode(encoding.split()[0])
    (found,) = told(log)
    assert (found.signature, found.evidence[0].line) == ("arguments.unknown", 61)
    assert found.cause.endswith("--dry-run")


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_a_short_log_of_one_line_without_an_end(encoding: str) -> None:
    (found,) = told(ENCODINGS[encoding] + HIT.encode(encoding.split()[0]))
    assert found.evidence[0].text == HIT


@pytest.mark.parametrize(
    ("log", "line"),
    [
        (b"\xfd\xff\xfe in no encoding \x80\x81\n" + HIT.encode(), 2),
        (b"a\x00b\x00\x00\n\x00" + HIT.encode() + b"\n", 2),
        (b"loading: 1%\rloading: 50%\rloading: 100%\r" + HIT.encode() + b"\r\n", 1),
        (b"\n\n\n" + HIT.encode(), 4),
        (b"\x00" * 5000 + b"\n" + HIT.encode(), 2),
        ("ü\n".encode("latin-1") + HIT.encode(), 2),
    ],
)
def test_bytes_that_are_no_text_hide_nothing(log: bytes, line: int) -> None:
    (found,) = told(log)
    assert (found.signature, found.evidence[0].line) == ("arguments.unknown", line)
    assert "loading" not in found.evidence[0].text


@pytest.mark.parametrize("log", [[], [b""], [b"", b""], [b"\n"], [b"\xef\xbb\xbf"], [b"\xff\xfe"], [b"\x00"]])
def test_an_empty_log_tells_nothing(log: list[bytes]) -> None:
    assert told(*log) == ()


@settings(max_examples=25, deadline=None, derandomize=True, database=None)
@given(st.sampled_from(sorted(ENCODINGS)), st.lists(st.integers(0, len(LOG)), max_size=12))
def test_the_pieces_in_which_a_log_comes_do_not_matter(encoding: str, cuts: list[int]) -> None:
    log = ENCODINGS[encoding] + LOG.replace("\n", "\r\n").encode(encoding.split()[0])
    assert told(*pieces(log, cuts)) == told(log)


def test_one_byte_at_a_time() -> None:
    log = LOG.encode("utf-16")
    assert told(*(log[index : index + 1] for index in range(len(log)))) == told(log) != ()


@pytest.mark.parametrize("before", [BLOCK_BYTES, LONGEST_LINE, LONGEST_LINE + OVERLAP, 2 * LONGEST_LINE])
@pytest.mark.parametrize("shift", [-len(HIT), -10, -1, 0, 1])
def test_a_hit_across_a_cut_of_blocks_or_of_a_long_line_is_seen_once(before: int, shift: int) -> None:
    chunk = 1 << 20
    for filler in (b"x", b"INFO a line\n"):
        text = (filler * (before // len(filler) + 1))[: before + shift] + b" " + HIT.encode() + b"\nINFO end\n"
        (found,) = told(*(text[begin : begin + chunk] for begin in range(0, len(text), chunk)))
        assert found.evidence[0].line == text.count(b"\n") - 1
        assert len(found.evidence) == 1
        assert "--dry-run" in found.cause


def test_what_follows_a_line_that_is_cut_keeps_its_number() -> None:
    log = b"one\n" + b"x" * (3 * LONGEST_LINE) + b"\n" + HIT.encode() + b"\n"
    (found,) = told(*(log[begin : begin + 65536] for begin in range(0, len(log), 65536)))
    assert found.evidence[0].line == 3


@pytest.mark.parametrize("seed", range(3))
def test_blocks_are_the_log_whatever_its_chunks(seed: int) -> None:
    source = random.Random(seed)
    lines = [b"y" * source.choice((0, 1, 80, 3000, 40_000, 300_000)) for _ in range(60)]
    log = b"\n".join(lines)
    cuts = [source.randrange(len(log)) for _ in range(30)]
    blocks = list(blocks_of_bytes(pieces(log, cuts)))
    assert b"".join(block.text for block in blocks) == log
    number = 1
    for block in blocks:
        assert block.first_line == number
        number += block.text.count(b"\n")
    assert not any(block.begun or block.unfinished for block in blocks)


def test_a_line_that_is_fed_and_a_log_that_is_read_tell_the_same() -> None:
    lines = [
        "INFO vLLM API server version 0.27.1",
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
        "RuntimeError: Engine core initialization failed. See root cause above.",
        "vLLM API server version 0.27.1",
        "Traceback (most recent call last):",
        '  File "a.py", line 1, in main',
        "OSError: [Errno 98] Address already in use",
        "vllm: error: unrecognized arguments: --dry-run",
    ]
    live = Diagnoser()
    new = [each for line in lines for each in live.feed(line)]
    assert live.finish(every=True) == told("\n".join(lines).encode())
    assert {each.signature for each in new} >= {each.signature for each in live.finish()}
