"""What a configuration says of quantisation, read with types."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

MOST_BITS = 32
"""Of one element: quantised weights are packed into words of so many bits, and hold at least one."""


@dataclass(frozen=True)
class Claim:
    """The part of a configuration that describes quantisation. where: the file that it stands in."""

    stated: Mapping[str, Any] = field(default_factory=dict)
    where: str = "config.json"

    def word(self, *names: str) -> str | None:
        """The first of these fields that is a word."""
        return next((self.stated[name] for name in names if isinstance(self.stated.get(name), str)), None)

    def integer(self, *names: str) -> int | None:
        """The first of these fields that is a whole number."""
        return next((self.stated[name] for name in names if type(self.stated.get(name)) is int), None)

    def group_size(self, *names: str) -> int | None:
        """The first of these fields that is a whole number; None for one group, which tools write as -1 or 0."""
        size = self.integer(*names)
        return None if size is None or size <= 0 else size

    def bits(self, *names: str) -> int | None:
        """The first of these fields that is a whole number of bits of one element, from 1 to 32."""
        return next((bits for name in names if _is_bits(bits := self.stated.get(name), int)), None)

    def average_bits(self, *names: str) -> float | None:
        """The same where elements may have a fraction of a bit on average."""
        return next((bits for name in names if _is_bits(bits := self.stated.get(name), int, float)), None)

    def block(self, name: str) -> tuple[int, int] | None:
        """Rows and columns that share a scale: a list of two whole numbers above 0."""
        value = self.stated.get(name)
        if not isinstance(value, (list, tuple)) or len(value) != 2:
            return None
        rows, columns = value
        return (rows, columns) if type(rows) is type(columns) is int and rows > 0 and columns > 0 else None

    def flag(self, name: str, default: bool = False) -> bool:
        value = self.stated.get(name)
        return value if isinstance(value, bool) else default

    def words(self, *names: str) -> tuple[str, ...]:
        """The words of the first of these fields that is a list with some, or a word with commas."""
        for name in names:
            value = self.stated.get(name)
            if isinstance(value, str) and value:
                return tuple(part.strip() for part in value.split(","))
            if isinstance(value, (list, tuple)) and value:
                return tuple(_words(value))
        return ()

    def part(self, name: str) -> Claim | None:
        """A part that is an object."""
        value = self.stated.get(name)
        return Claim(value, self.where) if isinstance(value, Mapping) else None

    def parts(self, name: str) -> tuple[tuple[str, Claim], ...]:
        """The members of a part that are objects, by name."""
        value = self.stated.get(name)
        if not isinstance(value, Mapping):
            return ()
        return tuple((key, Claim(each, self.where)) for key, each in value.items() if isinstance(each, Mapping))

    def has(self, *names: str) -> bool:
        return any(self.stated.get(name) is not None for name in names)


def _is_bits(value: Any, *types: type) -> bool:
    return type(value) in types and 0 < value <= MOST_BITS


def _words(value: list[Any] | tuple[Any, ...]) -> Iterator[str]:
    """Words of a list, and of lists in it: AutoRound writes blocks as lists of lists."""
    for each in value:
        if isinstance(each, str):
            yield each
        elif isinstance(each, (list, tuple)):
            yield from _words(each)
