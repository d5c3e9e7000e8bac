"""Comparing two engines' greedy texts."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "tools" / "h200_run"))

from comparing import compare  # noqa: E402


def answer(tokens: list[int], logprobs: list[float], margins: list[float]) -> dict[str, Any]:
    return {"tokens": tokens, "logprobs": logprobs, "margins": margins}


def test_equal_texts_tell_the_largest_difference() -> None:
    first = [answer([1, 2], [-1.0, -2.0], [0.5, 0.5]), answer([3, 4], [-1.0, -1.0], [0.5, 0.5])]
    second = [answer([1, 2], [-1.25, -2.0], [0.5, 0.5]), answer([3, 4], [-1.0, -1.5], [0.5, 0.5])]
    found = compare(first, second)
    assert (found.equal, found.prompts, found.tokens) == (2, 2, 2)
    assert found.difference == 0.5
    assert not found.partings


def test_a_parting_counts_up_to_its_token_with_both_margins() -> None:
    first = [answer([1, 2, 3], [-1.0, -2.0, -9.0], [0.5, 0.001, 0.5])]
    second = [answer([1, 7, 3], [-1.0, -5.0, -1.0], [0.5, 0.002, 0.5])]
    found = compare(first, second)
    assert found.equal == 0
    assert found.partings == ((0, 1, 0.001, 0.002),)
    assert found.difference == 0.0
    assert "prompt 0 at 1 (margins 0.0010 0.0020)" in str(found)


def test_what_is_no_number_is_counted_and_told() -> None:
    first = [answer([1], [math.nan], [0.5])]
    second = [answer([1], [-1.0], [math.inf])]
    found = compare(first, second)
    assert found.not_numbers == 2
    assert "NOT FINITE" in str(found)


def test_a_text_may_part_at_a_near_tie_of_the_reference_only() -> None:
    tie, other = answer([1, 2], [-1.0, -1.0], [0.5, 0.04]), answer([1, 3], [-1.0, -1.0], [0.5, 0.5])
    found = compare([other], [tie])
    assert (found.equal, found.is_wrong) == (0, False)
    found = compare([tie], [other])
    assert (found.equal, found.is_wrong) == (0, True)
    assert "0/1 of 2 tokens WRONG, " in str(found)


def test_the_worst_partings_are_told_first() -> None:
    other = answer([2], [-1.0], [0.5])
    found = compare([other] * 4, [answer([1], [-1.0], [margin]) for margin in (0.01, 0.03, 0.04, 0.02)])
    assert str(found).endswith(
        "part: "
        + ", ".join(
            f"prompt {prompt} at 0 (margins 0.5000 {margin:.4f})"
            for prompt, margin in ((2, 0.04), (1, 0.03), (3, 0.02))
        )
        + " and 1 more"
    )


def test_the_same_text_is_wrong_with_log_probabilities_too_far_apart() -> None:
    found = compare([answer([1], [-1.0], [0.5])], [answer([1], [-1.125], [0.5])])
    assert (found.equal, found.is_wrong) == (1, True)
