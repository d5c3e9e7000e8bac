"""Compares the greedy texts of two engines, prompt by prompt."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

MODES = ("alone", "together", "again")
NEAR = 0.05
"""Log probabilities: where the reference's best token is less ahead of its second best, another engine may take either.
Logits of 16 and more are numbers of FP16 0.0156 apart, and random models have such near-ties in most texts."""
LARGEST_DIFFERENCE = 0.1
"""Log probabilities: the order of sums alone moved them by up to 0.022 in the models here, on an H200."""


@dataclass(frozen=True)
class Comparison:
    """equal, prompts: how many texts are the same, of how many. tokens: of each text.

    difference: the largest difference of a token's log probability before the texts part. partings: for each text that
    parts, (prompt, token, margin of the first engine there, margin of the second): log probabilities by which the best
    token was ahead of the second best. not_numbers: log probabilities that are not finite, in both.
    """

    equal: int
    prompts: int
    tokens: int
    difference: float
    partings: tuple[tuple[int, int, float, float], ...]
    not_numbers: int

    @property
    def is_wrong(self) -> bool:
        """Whether a text parts where the second engine (the reference) has no near-tie, log probabilities are further
        apart than rounding explains, or one is no number."""
        is_near = all(margin < NEAR for *_, margin in self.partings) and self.difference < LARGEST_DIFFERENCE
        return not is_near or self.not_numbers > 0

    def __str__(self) -> str:
        worst = sorted(self.partings, key=lambda parting: -parting[-1])[:3]
        parts = ", ".join(f"prompt {p} at {t} (margins {a:.4f} {b:.4f})" for p, t, a, b in worst)
        more = f" and {len(self.partings) - 3} more" if len(self.partings) > 3 else ""
        bad = f"; {self.not_numbers} NOT FINITE" if self.not_numbers else ""
        where = f"; part: {parts}{more}" if parts else ""
        wrong = " WRONG" if self.is_wrong else ""
        return f"{self.equal}/{self.prompts} of {self.tokens} tokens{wrong}, dlogprob {self.difference:.4f}{bad}{where}"


def compare(first: list[dict[str, Any]], second: list[dict[str, Any]]) -> Comparison:
    """Compare two lists of `generate.answer`, of the same prompts."""
    partings = []
    difference = 0.0
    numbers = [value for answer in (*first, *second) for value in answer["logprobs"] + answer["margins"]]
    for prompt, (left, right) in enumerate(zip(first, second, strict=True)):
        pairs = list(zip(left["tokens"], right["tokens"], strict=True))
        common = next((index for index, (a, b) in enumerate(pairs) if a != b), len(pairs))
        if common < len(pairs):
            partings.append((prompt, common, left["margins"][common], right["margins"][common]))
        gaps = [abs(a - b) for a, b in zip(left["logprobs"][:common], right["logprobs"][:common], strict=True)]
        difference = max([difference, *gaps])
    return Comparison(
        len(first) - len(partings),
        len(first),
        len(first[0]["tokens"]),
        difference,
        tuple(partings),
        sum(not math.isfinite(value) for value in numbers),
    )
