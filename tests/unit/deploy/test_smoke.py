"""What is a good answer."""

from __future__ import annotations

import math
from typing import Any

import pytest

from onecat.config.schema import SmokePrompt
from onecat.deploy.smoke import Answer, chat_answer, judge, judge_expected, text_answer


def chat(tokens: list[str], logprobs: list[float | None]) -> dict[str, Any]:
    content = [{"token": token, "logprob": value} for token, value in zip(tokens, logprobs, strict=True)]
    return {"choices": [{"message": {"content": "".join(tokens)}, "logprobs": {"content": content}}]}


def test_a_chat_completion_is_read() -> None:
    answer = chat_answer(chat(["one", " two"], [-0.1, -2.5]))
    assert answer == Answer("one two", ("one", " two"), (-0.1, -2.5))


def test_a_text_completion_is_read() -> None:
    document = {"choices": [{"text": "ab", "logprobs": {"tokens": ["a", "b"], "token_logprobs": [-1.0, -2.0]}}]}
    assert text_answer(document) == Answer("ab", ("a", "b"), (-1.0, -2.0))


def test_reasoning_counts_as_text() -> None:
    document = {"choices": [{"message": {"reasoning_content": "hm", "content": None}, "logprobs": None}]}
    assert chat_answer(document).text == "hm"


@pytest.mark.parametrize("value", [math.nan, -math.inf, math.inf, -9999.0])
def test_numbers_that_are_none_fail(value: float) -> None:
    problem = judge(chat_answer(chat(["one", " two"], [-0.1, value])), allow_repeated_token=True)
    assert problem is not None
    assert "' two'" in problem


@pytest.mark.parametrize(
    "document",
    [
        {"choices": [{"message": {"content": "hello"}}]},
        {"choices": [{"message": {"content": "hello"}, "logprobs": None}]},
        chat(["one"], [None]),
    ],
)
def test_absent_log_probabilities_fail(document: dict[str, Any]) -> None:
    problem = judge(chat_answer(document), allow_repeated_token=True)
    assert problem is not None
    assert "without log-probabilities" in problem


def test_one_token_repeated_fails_unless_allowed() -> None:
    answer = chat_answer(chat(["!"] * 8, [-0.1] * 8))
    assert judge(answer, allow_repeated_token=False) == "the answer is one token 8 times: '!'"
    assert judge(answer, allow_repeated_token=True) is None


def test_a_very_short_answer_says_nothing_about_repetition() -> None:
    assert judge(chat_answer(chat(["no"] * 3, [-0.1] * 3)), allow_repeated_token=False) is None


def test_words_are_fine() -> None:
    assert judge(chat_answer(chat(["one", ",", " one", ","], [-0.1] * 4)), allow_repeated_token=False) is None


def test_one_of_the_expected_substrings_is_enough() -> None:
    prompt = SmokePrompt(prompt="Capital of France?", expect=("Paris", "paris"))
    assert judge_expected(Answer("It is Paris.", (), ()), prompt) is None
    assert judge_expected(Answer("It is Lyon.", (), ()), prompt) is not None
    assert judge_expected(Answer("anything", (), ()), SmokePrompt(prompt="x")) is None
