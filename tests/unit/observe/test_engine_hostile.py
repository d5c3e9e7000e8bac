"""No line of a log, however hostile, makes a diagnosis slow: what it costs grows with its length and no faster.

A step that is quadratic takes at a megabyte some 10^11 operations, so minutes where tenths of a second are allowed.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from onecat.observe import Diagnoser, load_signatures
from onecat.observe.choices import read_choices
from onecat.observe.lines import read_line
from onecat.observe.moments import moment
from onecat.observe.secrets import without_secrets
from onecat.observe.tracebacks import chains
from onecat.observe.words import required_words

MEGABYTE = 1 << 20
MOST_SECONDS = 1.5
"""Of CPU for a megabyte; it takes a tenth of that."""
HIT = " error: unrecognized arguments: --dry-run"
"""At the end of a line, so that it is read whole."""
UNITS = [
    *"a0 [(\"'{\\<./?|-:",
    ": ",
    "a.",
    "a: ",
    "a-b_",
    '"a" ',
    "'\"",
    '] "',
    "\x1b[",
    "\x1b]8;;",
    "\\u001b[",
    '"GET ',
    '"GET / HTTP/1.1" ',
    ' - a [29/Nov/2026:17:00:00 +0000] "',
    "referrer: ",
    "[repeated 2x across cluster] ",
    "across cluster]  ",
    '"MESSAGE":[1,',
    '{"log":"',
    "a://",
    "a://b@",
    "token ",
    "--api-key a1 ",
    "key=",
    "key'",
    "bearer ",
    "sk-",
    "-----BEGIN A-----",
    "(EngineCore pid=1) ",
    "2026-11-29T17:00:00Z ",
    "\r",
    "\x00",
    "ü",
    "[[{a}",
]


def seconds(action: Callable[[], object]) -> float:
    """CPU time of an action."""
    begin = time.process_time()
    action()
    return time.process_time() - begin


def diagnosed(*lines: str) -> float:
    """CPU time of a whole diagnosis of these lines."""

    def read() -> None:
        diagnoser = Diagnoser(threads=0)
        diagnoser.read([line.encode() + b"\n" for line in lines])
        diagnoser.finish(every=True)
        diagnoser.first_exception()

    return seconds(read)


def repeated(unit: str, size: int = MEGABYTE) -> str:
    return unit * (size // len(unit))


@pytest.fixture(autouse=True, scope="module")
def _ready() -> None:
    diagnosed("x" + HIT)


@pytest.mark.parametrize("unit", UNITS, ids=ascii)
def test_a_line_of_one_thing_over_and_over(unit: str) -> None:
    assert diagnosed(repeated(unit) + HIT) < MOST_SECONDS


@pytest.mark.parametrize("unit", UNITS, ids=ascii)
def test_every_reader_of_text_by_itself(unit: str) -> None:
    """Also those that a diagnosis gives no more than a part of a line; 32 KiB, of which the square is 10^9."""
    text = repeated(unit, MEGABYTE // 32)
    for read in (
        without_secrets,
        moment,
        read_line,
        lambda text: read_choices([text + " GPU KV cache size: x tokens"]),
    ):
        assert seconds(lambda read=read: read(text)) < MOST_SECONDS / 5, read  # type: ignore[misc]
    lines = ["Traceback (most recent call last):", text, " " + text, text + ":", 'File "' + text]
    assert seconds(lambda: chains(map(read_line, lines))) < MOST_SECONDS / 5


@pytest.mark.parametrize(
    "begin", ["across cluster]", '"GET / HTTP/1.1"', "The model `", ", input_value=", '"MESSAGE":[']
)
@pytest.mark.parametrize("filler", [" ", "a", '"', "'", "?", "["])
def test_a_word_that_an_expression_waits_for_before_a_long_run(begin: str, filler: str) -> None:
    assert diagnosed(begin + repeated(filler, MEGABYTE // 16) + HIT) < MOST_SECONDS / 5


def test_near_hits_of_every_pattern() -> None:
    """Words of all patterns in lines of 16 KiB, so that the rest of each is tried again and again."""
    words = sorted(
        word
        for row in load_signatures().signatures
        for pattern in (*row.patterns, *row.sequence, *row.preceded_by)
        for word in required_words(pattern)
    )
    for part in range(0, len(words), 100):
        unit = " ".join(words[part : part + 100]) + " "
        taken = diagnosed(repeated(unit, MEGABYTE // 64))
        assert taken < MOST_SECONDS, (part, taken)


def test_twice_the_length_takes_about_twice_as_long() -> None:
    texts = [repeated(unit) for unit in (" ", "a", '"', ": ", "NCCL ")]
    half = [text[: len(text) // 2] + HIT for text in texts]
    whole = [text + HIT for text in texts]
    least_half = min(diagnosed(*half) for _ in range(2))
    least_whole = min(diagnosed(*whole) for _ in range(2))
    assert least_whole < 3.2 * least_half + 0.05


@pytest.mark.parametrize(
    "line",
    [
        '{"log":"' + HIT + '","attrs":' + "[" * 20_000,
        '{"log":"' + HIT + '","attrs":' + "[" * 20_000 + "]" * 20_000 + "}",
        '{"log":"' + HIT + '","attrs":' + "9" * 20_000 + "}",
        '{"MESSAGE":"' + HIT + '","a":' + '{"a":' * 20_000 + "1" + "}" * 20_001,
        '{"MESSAGE":[' + "1" * 10_000 + ']} {"MESSAGE":"' + HIT,
        '{"MESSAGE":[1 2, 3]} ' + HIT,
        '{"MESSAGE":[1, 300, -1]} ' + HIT,
        '{"MESSAGE":null, "a":"' + HIT + '"}',
        '{"log":null, "a":"' + HIT + '"}',
        '{"log":{"a":1}, "a":"' + HIT + '"}',
    ],
    ids=lambda line: line[:60],
)
def test_json_that_is_too_deep_too_large_or_of_another_kind_is_read_as_text(line: str) -> None:
    diagnoser = Diagnoser()
    diagnoser.read([line.encode()])
    assert [each.signature for each in diagnoser.finish()] == ["arguments.unknown"]
