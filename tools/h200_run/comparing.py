"""Compares the greedy texts of two engines, prompt by prompt."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

MODES = ("alone", "together", "again")
CLEAR = 0.05
"""Log probabilities: a text in which the reference's best token is nowhere less ahead of its second best is clear, and
has to be the same in another engine. Near-ties, as random models have many, may go either way."""


@dataclass(frozen=True)
class Comparison:
    """equal, prompts: how many texts are the same, of how many. tokens: of each text.

    difference: the largest difference of a token's log probability before the texts part. partings: for each text that
    parts, (prompt, token, margin of the first engine there, margin of the second): log probabilities by which the best
    token was ahead of the second best. not_numbers: log probabilities that are not finite, in both. clear, clear_equal:
    how many texts of the second engine (the reference) are clear, and how many of these are the same.
    """

    equal: int
    prompts: int
    tokens: int
    difference: float
    partings: tuple[tuple[int, int, float, float], ...]
    not_numbers: int
    clear: int
    clear_equal: int

    @property
    def is_wrong(self) -> bool:
        """Whether a clear text is another, or a log probability is no number."""
        return self.clear_equal < self.clear or self.not_numbers > 0

    def __str__(self) -> str:
        parts = ", ".join(f"prompt {p} at {t} (margins {a:.4f} {b:.4f})" for p, t, a, b in self.partings[:3])
        more = f" and {len(self.partings) - 3} more" if len(self.partings) > 3 else ""
        bad = f"; {self.not_numbers} NOT FINITE" if self.not_numbers else ""
        where = f"; part: {parts}{more}" if parts else ""
        clear = f"{self.clear_equal}/{self.clear} clear" + (" WRONG" if self.is_wrong else "")
        of = f"{self.equal}/{self.prompts} of {self.tokens} tokens"
        return f"{of}, {clear}, dlogprob {self.difference:.4f}{bad}{where}"


def compare(first: list[dict[str, Any]], second: list[dict[str, Any]]) -> Comparison:
    """Compare two lists of `generate.answer`, of the same prompts."""
    partings = []
    difference = 0.0
    clear = [bool(each["margins"]) and min(each["margins"]) >= CLEAR for each in second]
    parted = set()
    numbers = [value for answer in (*first, *second) for value in answer["logprobs"] + answer["margins"]]
    for prompt, (left, right) in enumerate(zip(first, second, strict=True)):
        pairs = list(zip(left["tokens"], right["tokens"], strict=True))
        common = next((index for index, (a, b) in enumerate(pairs) if a != b), len(pairs))
        if common < len(pairs):
            parted.add(prompt)
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
        sum(clear),
        sum(is_clear and prompt not in parted for prompt, is_clear in enumerate(clear)),
    )
