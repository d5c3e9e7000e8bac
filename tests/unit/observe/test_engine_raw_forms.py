"""The search ahead of the patterns misses nothing: raw forms and words match at least what they do."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from onecat.observe import diagnose, load_signatures
from onecat.observe.lines import read_line
from onecat.observe.patterns import Pattern, compile_pattern
from onecat.observe.raw_forms import raw_pattern
from onecat.observe.words import required_words

TABLE = load_signatures()
PATTERNS = list(
    dict.fromkeys(
        [
            *(pattern for row in TABLE.signatures for pattern in (*row.patterns, *row.sequence, *row.preceded_by)),
            *TABLE.benign,
            *(pattern for passage in TABLE.passages for pattern in (passage.begins, passage.ends)),
        ]
    )
)
BENIGN = set(TABLE.benign)


def in_docker(message: str) -> str:
    """A line of Docker's json-file driver: Go's encoding/json escapes also < > & and two ends of lines."""
    text = json.dumps({"log": message + "\n", "stream": "stderr", "time": "2026-11-29T17:00:00Z"}, ensure_ascii=False)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text.replace("\\b", "\\u0008").replace("\\f", "\\u000c")


def in_journal(message: str) -> str:
    return json.dumps({"_PID": "7", "MESSAGE": message, "_HOSTNAME": "a"}, ensure_ascii=False)


RAW = {
    "as it is": lambda message: message,
    "with a head": lambda message: "2026-11-29T17:00:00Z ERROR 11-29 17:00:00 [core.py:10] " + message,
    "in Docker's JSON": in_docker,
    "in journald's JSON": in_journal,
}


def missed(pattern: Pattern, message: str) -> list[str]:
    """The forms of a line in which a pattern would not be looked for although it matches the message."""
    return [
        form
        for form, written in RAW.items()
        if raw_pattern(pattern).search(written(message).encode("utf-8", "replace")) is None
    ]


@pytest.mark.parametrize("row", TABLE.signatures, ids=lambda row: row.id)
def test_a_raw_form_matches_every_example_of_its_row(row: object) -> None:
    seen = 0
    for text in row.matches:  # type: ignore[attr-defined]
        for line in map(read_line, text.splitlines()):
            for pattern in (*row.patterns, *row.sequence, *row.preceded_by):  # type: ignore[attr-defined]
                if pattern.search(line.text) is not None:
                    seen += 1
                    assert missed(pattern, line.text) == [], (pattern.pattern, line.text)
                    assert any(word in line.text for word in required_words(pattern)), pattern.pattern
    assert seen > 0


@pytest.mark.parametrize("piece", range(4))
def test_a_raw_form_matches_whatever_its_pattern_does(piece: int) -> None:
    checked = 0

    @settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True, database=None)
    @given(
        st.sampled_from(PATTERNS[piece::4]).flatmap(
            lambda pattern: st.tuples(st.just(pattern), st.from_regex(re.compile(pattern.pattern)))
        )
    )
    def check(drawn: tuple[Pattern, str]) -> None:
        nonlocal checked
        pattern, text = drawn
        message = text.split("\n")[0]
        if pattern.search(message) is None:
            return
        checked += 1
        assert missed(pattern, message) == []
        if pattern not in BENIGN:
            assert any(word in message for word in required_words(pattern))

    check()
    assert checked >= 20


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("bad key (.) here", 'bad key " here'),
        ("bad key (.) here", "bad key ü here"),
        ("bad key ([^a]) here", "bad key \\ here"),
        ("bad key ([\"']) here", 'bad key " here'),
        ("bad key ([<>]) here", "bad key < here"),
        (r"bad key [\s,] here", "bad key \t here"),
        (r"bad key ([\\/]) here", "bad key \\ here"),
        (r"\bbad key here", "\tbad key here"),
        ("bad key.{0,4}here", "bad key\t\t\t\there"),
        (r"bad key (\S{1,3}) here", "bad key ü█ü here"),
        (r"bad key (\W) here", "bad key & here"),
        (r"bad key \D here", "bad key > here"),
        ("bad key █? here", "bad key  here"),
        ("bad key [█#]{2} here", "bad key █# here"),
        ("^bad key here$", "bad key here"),
        ('(?i)bad key (?P<name>"?) here', 'BAD KEY " here'),
        (r"bad key \x22 here", 'bad key " here'),
        (r"bad key [\x22'] here", 'bad key " here'),
    ],
)
def test_characters_that_json_or_utf8_write_in_another_way(pattern: str, message: str) -> None:
    compiled = compile_pattern(pattern)
    assert compiled.search(message) is not None
    assert missed(compiled, message) == []


@pytest.mark.parametrize("colour", ["\x1b[31m", "\x1b[0;1;31m", "\x1b]8;;http://a\x07", "\x1b(B"])
@pytest.mark.parametrize("form", RAW)
def test_colours_within_a_word_do_not_hide_it(form: str, colour: str) -> None:
    line = f"vllm: error: unrecog{colour}nized argu{colour}ments: --dry-run"
    (found,) = diagnose([RAW[form](line)])
    assert found.signature == "arguments.unknown"
    assert "\x1b" not in found.cause + found.evidence[0].text
