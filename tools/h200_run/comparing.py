"""Compares the greedy texts of two engines, prompt by prompt."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

MODES = ("alone", "together")


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

    def __str__(self) -> str:
        parts = ", ".join(f"prompt {p} at {t} (margins {a:.4f} {b:.4f})" for p, t, a, b in self.partings[:3])
        more = f" and {len(self.partings) - 3} more" if len(self.partings) > 3 else ""
        bad = f"; {self.not_numbers} NOT FINITE" if self.not_numbers else ""
        where = f"; part: {parts}{more}" if parts else ""
        return f"{self.equal}/{self.prompts} of {self.tokens} tokens, dlogprob {self.difference:.4f}{bad}{where}"


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
