"""Why a file is no JSON, in words that tell what to do."""

from __future__ import annotations

import json
import math

import pytest

from onecat.checkpoints.json_text import DOWNLOAD_AGAIN, SAVE_AS_UTF8, NotJson, parse_json

WHOLE = b'{"a": [1, 2.5, "x"]}'


@pytest.mark.parametrize(
    ("raw", "reason", "fix"),
    [
        (b"", "it is empty", DOWNLOAD_AGAIN),
        (bytes(4096), "it has nothing but blanks and zeros", DOWNLOAD_AGAIN),
        (WHOLE.decode().encode("utf-16"), "it is UTF-16, and engines read UTF-8", SAVE_AS_UTF8),
        (b"\xef\xbb\xbf" + WHOLE, "it begins with a byte order mark, which engines refuse", SAVE_AS_UTF8),
        (b'{"a": "\xe9"}', "byte 7 is not UTF-8", SAVE_AS_UTF8),
        (b"// all\n" + WHOLE, "a comment in line 1", "remove the comments: JSON has none"),
        (b'{\r\n"a": 1,\r\n  /* b */ "b": 2}', "a comment in line 3", "remove the comments: JSON has none"),
        (b"[1 2]", "line 1, column 4: Expecting ',' delimiter", DOWNLOAD_AGAIN),
        (b'{\n"a" 1}', "line 2, column 5: Expecting ':' delimiter", DOWNLOAD_AGAIN),
        (b"[" * 100_000, "it is nested too deep", DOWNLOAD_AGAIN),
        (b"1" * 5000, "Exceeds the limit (4300 digits) for integer string conversion: value has 5000 digits",
         DOWNLOAD_AGAIN),
    ],
)  # fmt: skip
def test_a_reason_names_the_place_and_the_way_out(raw: bytes, reason: str, fix: str) -> None:
    with pytest.raises(NotJson) as caught:
        parse_json(raw)
    assert (str(caught.value), caught.value.fix) == (reason, fix)


@pytest.mark.parametrize("raw", [WHOLE, WHOLE.replace(b" ", b"\r\n"), b"[]", b"null", b'"// no comment"'])
def test_json_is_read_whatever_its_ends_of_lines(raw: bytes) -> None:
    assert parse_json(raw) == json.loads(raw)


def test_nan_and_infinity_are_read_as_transformers_does() -> None:
    found = parse_json(b"[NaN, -Infinity]")
    assert math.isnan(found[0]) and found[1] == -math.inf
