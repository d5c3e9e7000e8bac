"""Whether a text is language of the kind that the small model learnt, judged by text that ships with it unlearnt."""

from __future__ import annotations

import re
from collections.abc import Set
from dataclasses import dataclass
from pathlib import Path

_WORD = re.compile(r"[A-Za-z]+")
LEAST_PAIRS = 8
LEAST_WORDS_SHARE = 0.75
LEAST_PAIRS_SHARE = 0.25
"""Measured: greedy answers of the small model to seven prompts 0.80 to 1 of the words and 0.30 to 0.66 of the pairs,
shuffled words of the held-out text 0.09 of the pairs, random weights 0.4 of the words and none of the pairs."""


@dataclass(frozen=True)
class Recognition:
    """What of a text's different words, and different pairs of neighbours, stands in the held-out text (0 to 1).

    pairs: how many different ones the text has.
    """

    words_share: float
    pairs_share: float
    pairs: int

    @property
    def is_language(self) -> bool:
        """Known words alone are no sign: most tokens are words, in any order. A loop has few different pairs."""
        enough = self.words_share >= LEAST_WORDS_SHARE and self.pairs_share >= LEAST_PAIRS_SHARE
        return enough and self.pairs >= LEAST_PAIRS


def recognise(text: str, model: Path) -> Recognition:
    """Compare `text` with held_out.txt of the small model's directory `model`, upper and lower case alike.

    The last word is left out: an answer of a limited number of tokens may end within it.
    """
    held_out = _words((model / "held_out.txt").read_text(encoding="ascii"))
    words = _words(text)[:-1]
    pairs = set(zip(words, words[1:], strict=False))
    return Recognition(
        _share(set(words), set(held_out)), _share(pairs, set(zip(held_out, held_out[1:], strict=False))), len(pairs)
    )


def _words(text: str) -> list[str]:
    return [word.lower() for word in _WORD.findall(text)]


def _share(found: Set[object], known: Set[object]) -> float:
    return len(found & known) / len(found) if found else 0.0
