"""What perplexities say, and which tokens count; the measuring itself is tested with a real engine."""

from __future__ import annotations

from dataclasses import replace

import pytest

from onecat.nvfp4.comparison import Perplexity
from onecat.nvfp4.comparison.perplexity_program import windows

FOUND = Perplexity(
    text="text.txt", ours=10.4, original=10.0, compared=True, tokens=5001, scored=5000, window=256, stride=128,
    bos=False, same_tokens=True, dtype="float32", tool="transformers 5", seconds=1.0,
)  # fmt: skip


def faults(found: Perplexity) -> list[tuple[str, str]]:
    return [(fault.severity, fault.code) for fault in found.faults()]


@pytest.mark.parametrize(
    ("tokens", "window"), [(2, 2), (3, 2), (9, 4), (10, 4), (11, 4), (100, 256), (1001, 7), (513, 256)]
)
def test_each_token_but_the_first_counts_once_with_half_a_window_before_it(tokens: int, window: int) -> None:
    scored: list[int] = []
    for begin, end, first in windows(tokens, window):
        assert end - begin <= window
        assert begin < first
        if begin:
            assert first - begin >= window // 2
        scored += range(first, end)
    assert scored == list(range(1, tokens))


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, []),
        ({"ours": 9.0}, []),
        ({"ours": 10.6}, [("warn", "perplexity")]),
        ({"ours": 15.1}, [("fail", "perplexity")]),
        ({"limit": 3.9}, [("fail", "perplexity")]),
        ({"limit": 4.1}, []),
        ({"limit": 8.0, "ours": 10.7}, []),
        ({"ours": None}, [("fail", "no-perplexity")]),
        ({"original": None}, [("fail", "no-perplexity")]),
        ({"original": None, "compared": False}, []),
        ({"same_tokens": False}, [("fail", "tokens-differ")]),
        ({"scored": 200}, [("info", "few-tokens")]),
    ],
)
def test_the_verdict(change: dict[str, object], expected: list[tuple[str, str]]) -> None:
    assert faults(replace(FOUND, **change)) == expected  # type: ignore[arg-type]


def test_the_percent_is_that_of_the_original() -> None:
    assert FOUND.percent == pytest.approx(4.0)
    assert replace(FOUND, ours=8.0).percent == pytest.approx(-20.0)
    assert replace(FOUND, original=None).percent is None
