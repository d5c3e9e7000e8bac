"""Regular expressions in time linear in the text: RE2, without look-around and back-references.

In: the text of a pattern. Out: a compiled `Pattern`. No log, however long or hostile its lines, makes one slow.
Syntax: https://github.com/google/re2/wiki/Syntax
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any, Protocol, cast

import re2


class Match(Protocol):
    """A hit of a pattern, as `re.Match` has it."""

    @property
    def re(self) -> Pattern: ...
    def group(self, *groups: int | str) -> Any: ...
    def groupdict(self, default: Any = None) -> dict[str, Any]: ...
    def start(self, group: int | str = 0) -> int: ...
    def end(self, group: int | str = 0) -> int: ...
    def span(self, group: int | str = 0) -> tuple[int, int]: ...


class Pattern(Protocol):
    """A compiled pattern, as `re.Pattern` has it. It searches text as well as bytes in UTF-8."""

    def __hash__(self) -> int: ...

    @property
    def pattern(self) -> str: ...
    @property
    def groupindex(self) -> dict[str, int]: ...
    def search(self, text: str | bytes) -> Match | None: ...
    def finditer(self, text: str | bytes) -> Iterator[Match]: ...


@functools.cache
def compile_pattern(text: str, ignore_case: bool = False) -> Pattern:
    """A pattern by its text. Raises ValueError with RE2's own words when it refuses it."""
    options = re2.Options()
    options.log_errors = False
    options.case_sensitive = not ignore_case
    try:
        return cast(Pattern, re2.compile(text, options))
    except re2.error as error:
        told = error.args[0] if error.args else error
        raise ValueError(told.decode(errors="replace") if isinstance(told, bytes) else str(told)) from error
