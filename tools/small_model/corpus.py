"""The text: the King James Bible as Debian's packages `bible-kjv` and `bible-kjv-text` print it, by chapters.

Source: https://packages.debian.org/source/stable/bible-kjv; its copyright file says that the copyright of the text
has expired (the translation is of 1611). In the United Kingdom the Crown's letters patent govern printing it.
"""

from __future__ import annotations

import os
import re
import subprocess
from dataclasses import dataclass

PROGRAM = "bible"
EVERYTHING = "Ge1:1-Rev22:21"
VERSES = 31_102
"""Verses in the King James Bible; another number means that the program printed something else than the whole text."""
HELD_OUT_EVERY = 20
"""One chapter of so many is held out: about 5 % of the text."""
HELD_OUT_FIRST = 10
"""Where the held-out chapters begin: Genesis 1, the best known chapter, is learnt."""

_VERSE = re.compile(r"(?P<book>[1-3]?[A-Za-z]+)(?P<chapter>\d+):(?P<verse>\d+) (?P<text>.*)")


@dataclass(frozen=True)
class Chapter:
    """A chapter: its short name as the program prints it (`Ge1`), and its verses joined by line ends."""

    name: str
    text: str


@dataclass(frozen=True)
class Corpus:
    """The text in two parts that share no chapter, each in the order of the book."""

    learnt: tuple[Chapter, ...]
    held_out: tuple[Chapter, ...]


def read_corpus() -> Corpus:
    """The whole text from the program. Raises SystemExit when the program is missing or prints something else."""
    chapters = _chapters(_printed())
    held_out = range(HELD_OUT_FIRST, len(chapters), HELD_OUT_EVERY)
    return Corpus(
        tuple(chapter for index, chapter in enumerate(chapters) if index not in held_out),
        tuple(chapters[index] for index in held_out),
    )


def _printed() -> list[str]:
    # With COLUMNS set the program could fold the verses.
    environment = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    try:
        done = subprocess.run(
            [PROGRAM, "-f", EVERYTHING], env=environment, stdin=subprocess.DEVNULL, capture_output=True, check=True
        )
    except FileNotFoundError:
        raise SystemExit(
            f"the program {PROGRAM} is missing; as root: sh scripts/apt_install.sh bible-kjv bible-kjv-text"
        ) from None
    return done.stdout.decode("ascii").splitlines()


def _chapters(lines: list[str]) -> list[Chapter]:
    verses: dict[str, list[str]] = {}
    for line in lines:
        found = _VERSE.fullmatch(line)
        if found is None:
            raise SystemExit(f"{PROGRAM} printed a line that is no verse: {line!r}")
        verses.setdefault(found["book"] + found["chapter"], []).append(found["text"].strip())
    count = sum(map(len, verses.values()))
    if count != VERSES:
        raise SystemExit(f"{PROGRAM} printed {count} verses, expected {VERSES}")
    return [Chapter(name, "\n".join(texts)) for name, texts in verses.items()]
