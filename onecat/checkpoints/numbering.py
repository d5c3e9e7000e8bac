"""Numbers in names of weight files (model-00001-of-00003.safetensors) and of things in sentences."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

MOST_SHARDS = 10_000
_SHARD = re.compile(r"^(?P<stem>.+)-(?P<number>\d+)-of-(?P<count>\d+)\.safetensors$")


def counted(number: int, noun: str) -> str:
    """`1 weight file`, `2 weight files`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def first_of(names: Sequence[str], most: int = 3, noun: str = "") -> str:
    """`a, b, c and 2 more`: the first names, and how many there are beside them; `noun` says of what."""
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more{f' {noun}' if noun else ''}" if more > 0 else "")


def numbered(names: Iterable[str]) -> list[str]:
    """The shards of `model-*-of-*` where there are some: a single file beside them is another copy."""
    return [name for name in names if (found := _SHARD.match(name)) and found["stem"] == "model"]


def is_numbered(name: str) -> bool:
    """Whether a name is one of a series (`model-00001-of-00003.safetensors`), with any number of digits."""
    return _SHARD.match(name) is not None


def missing_of_series(names: Iterable[str]) -> list[str]:
    """Names of a numbered series that are not there."""
    there = set(names)
    series = {}
    for name in there:
        found = _SHARD.match(name)
        if found:
            series[found["stem"], found["count"]] = len(found["number"])
    expected = {
        f"{stem}-{number:0{digits}}-of-{count}.safetensors"
        for (stem, count), digits in series.items()
        if len(count) <= len(str(MOST_SHARDS)) + 1 and int(count) <= MOST_SHARDS
        for number in range(1, int(count) + 1)
    }
    return sorted(expected - there)
