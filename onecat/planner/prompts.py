"""The lengths of the requests to come, as a person states them: a distribution, or a file of lengths. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass

from onecat.errors import OnecatError

DEFAULT_OUTPUT = 256
"""Tokens of an answer where nobody states them."""

EXPECTED = (
    "shares with lengths in tokens, as 30%:128,50%:512,20%:2048, with answers as 30%:128:64, or a file of lengths"
)
LENGTH_FIELDS = ("prompt_tokens", "input_tokens", "input_len", "prompt_len", "length")
OUTPUT_FIELDS = ("completion_tokens", "output_tokens", "output_len")
MOST_TOKENS = 1 << 24


@dataclass(frozen=True)
class Kind:
    """Requests alike. share: of all, up to 1. prompt, output: tokens."""

    share: float
    prompt: int
    output: int


@dataclass(frozen=True)
class Prompts:
    """kinds: the shares come to 1. stated: as the person wrote them."""

    kinds: tuple[Kind, ...]
    stated: str

    @property
    def mean(self) -> float:
        """Tokens of prompt and answer together."""
        return sum(each.share * (each.prompt + each.output) for each in self.kinds)

    @property
    def longest(self) -> int:
        """Tokens of the longest request with its answer."""
        return max(each.prompt + each.output for each in self.kinds)

    def prompt_at(self, share: float) -> int:
        """The prompt length that `share` of all requests do not exceed."""
        total = 0.0
        for each in sorted(self.kinds, key=lambda kind: kind.prompt):
            total += each.share
            if total >= share - 1e-9:
                return each.prompt
        return max(each.prompt for each in self.kinds)


def parse_distribution(text: str) -> Prompts:
    """`30%:128,50%:512,20%:2048`, each share with the prompt's tokens and, after another colon, the answer's.

    Shares that do not come to 100 % are an error. Raises OnecatError (exit code 2).
    """
    kinds = []
    for part in text.split(","):
        found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*%\s*:\s*(\d{1,8})\s*(?::\s*(\d{1,8}))?\s*", part)
        if found is None:
            raise OnecatError(f"--prompts {text}: `{part.strip()}` is no share with a length", expected=EXPECTED)
        kinds.append(Kind(float(found[1]) / 100, int(found[2]), int(found[3] or DEFAULT_OUTPUT)))
    total = sum(each.share for each in kinds)
    if abs(total - 1) > 0.005:
        raise OnecatError(f"--prompts {text}: the shares come to {total:.0%}", expected="shares that come to 100 %")
    if any(not 0 < each.prompt <= MOST_TOKENS for each in kinds):
        raise OnecatError(f"--prompts {text}: a prompt has at least one token", expected=EXPECTED)
    return Prompts(tuple(kinds), text)


def parse_lines(lines: Iterable[str], name: str) -> Prompts:
    """A file with one request per line: a number of tokens, or an object with `prompt_tokens` and `completion_tokens`.

    Parameters:
        name: of the file, for messages.

    Raises OnecatError (exit code 2).
    """
    found: dict[tuple[int, int], int] = {}
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        lengths = _lengths(line)
        if lengths is None:
            raise OnecatError(
                "a line without a prompt's length",
                expected=f"a number of tokens, or JSON with one of: {', '.join(LENGTH_FIELDS)}",
                where=f"{name}:{number}",
            )
        found[lengths] = found.get(lengths, 0) + 1
    total = sum(found.values())
    if not total:
        raise OnecatError("the file holds no request", expected=EXPECTED, where=name)
    kinds = tuple(Kind(count / total, prompt, output) for (prompt, output), count in sorted(found.items()))
    return Prompts(kinds, f"{total} requests of {name}")


def _lengths(line: str) -> tuple[int, int] | None:
    try:
        document = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if isinstance(document, dict):
        prompt = _first(document, LENGTH_FIELDS)
        output = _first(document, OUTPUT_FIELDS)
    else:
        prompt, output = _number(document), None
    return None if prompt is None else (prompt, DEFAULT_OUTPUT if output is None else output)


def _first(document: dict[str, object], names: Iterable[str]) -> int | None:
    return next((number for name in names if (number := _number(document.get(name))) is not None), None)


def _number(value: object) -> int | None:
    is_count = isinstance(value, int) and not isinstance(value, bool) and 0 < value <= MOST_TOKENS
    return value if is_count and isinstance(value, int) else None
