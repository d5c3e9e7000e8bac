"""Patterns by which a person names modules."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Iterable, Sequence

from onecat.errors import OnecatError

_SPECIAL = re.compile(r"[*?\[]")


def matcher(pattern: str) -> Callable[[str], bool]:
    """Whether a module's name is meant.

    `re:...` is a regular expression from the start of the name, as compressed-tensors has it; one with `*`, `?` or
    `[` a glob for the whole name; else it is a module's name, or the name of what modules are in.

    Raises OnecatError for a regular expression that is none.
    """
    if pattern.startswith("re:"):
        try:
            expression = re.compile(pattern.removeprefix("re:"))
        except re.error as error:
            raise OnecatError(
                f"{pattern} is no regular expression: {error}", expected="a name, a glob, or re: and an expression"
            ) from error
        return lambda module: expression.match(module) is not None
    if _SPECIAL.search(pattern):
        whole = re.compile(fnmatch.translate(pattern))
        return lambda module: whole.match(module) is not None
    plain = pattern.removesuffix(".weight")
    return lambda module: module == plain or module.startswith(f"{plain}.")


def meant(patterns: Sequence[str], modules: Iterable[str], option: str) -> frozenset[str]:
    """The modules that any of the patterns covers.

    Raises OnecatError for a pattern that covers none: it would be found out after hours.
    """
    names = tuple(modules)
    found: set[str] = set()
    for pattern in patterns:
        covers = matcher(pattern)
        those = [name for name in names if covers(name)]
        if not those:
            raise _nothing(pattern, names, option)
        found.update(those)
    return frozenset(found)


def _nothing(pattern: str, names: Sequence[str], option: str) -> OnecatError:
    inside = any(f".{pattern}." in f".{name}." for name in names)
    steps = [
        f"{option} '*.{pattern}'" if any(n.endswith(f".{pattern}") for n in names) else f"{option} '*.{pattern}.*'"
    ]
    return OnecatError(
        f"{option} {pattern} covers no matrix of this checkpoint",
        expected="a module's full name, a glob for all of it, or re: and an expression",
        next_steps=[*(steps if inside else []), "see the names: onecat model convert SRC DST --dry-run --json"],
    )
