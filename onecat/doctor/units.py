"""Sizes and versions as people write them."""

from __future__ import annotations

import re

GIB = 1 << 30
MIB = 1 << 20


def gibibytes(size: int) -> str:
    """A number of bytes as GiB: 34359738368 -> "32 GiB"."""
    value = size / GIB
    return f"{value:.0f} GiB" if value >= 10 or value == int(value) else f"{value:.1f} GiB"


def version_key(version: str) -> tuple[int, ...]:
    """The dotted number at the start of a version, to compare: "580.65.06-1" -> (580, 65, 6); empty without one."""
    number = re.match(r"[0-9]+(\.[0-9]+)*", version)
    return tuple(map(int, number.group().split("."))) if number else ()


def told(value: object) -> str:
    """A value for people; an absent fact is "not known"."""
    return "not known" if value is None else str(value)


def counted(number: int, noun: str) -> str:
    """A number of things: (1, "GPU") -> "1 GPU", (2, "GPU") -> "2 GPUs"."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
