"""Checks and how they are found: every module of a package is loaded, every function with the decorator counts.

Doctor's checks see a `Context`, what is known of a host; those of other lists (`onecat.live.preflight`) see other
things. A `Rule` is a check of any list.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import pkgutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Generic, TypeVar

from onecat.doctor.context import Context
from onecat.doctor.findings import Status
from onecat.errors import OnecatError

Seen = TypeVar("Seen")
"""What the checks of a list look at."""


@dataclass(frozen=True)
class Verdict:
    """What a check says about one subject; check id, reason and sources come from the check where left empty."""

    status: Status
    title: str
    subject: str = ""
    evidence: tuple[str, ...] = ()
    fix: tuple[str, ...] = ()
    why: str = ""
    source: tuple[str, ...] = ()


Needed = Callable[[Seen], str | None]
"""Tells why a check cannot be made here, or None when it can."""

Looking = Callable[[Seen], Iterator[Verdict]]


@dataclass(frozen=True)
class Rule(Generic[Seen]):
    """One check of some list.

    id: `area.name`, stable. title: what is right when it passes. looks_at: what it reads. why: why it matters.
    fix: how to put it right in general. requires: when one of them gives a reason, the check is skipped with it.
    to_pass: when one of them gives a reason, nothing wrong was seen but could have been: it is skipped, not passed.
    group, place: where a page shows it, in lists that show all of their checks.
    """

    id: str
    title: str
    looks_at: str
    why: str
    fix: tuple[str, ...]
    source: tuple[str, ...]
    requires: tuple[Needed[Seen], ...]
    to_pass: tuple[Needed[Seen], ...]
    body: Looking[Seen]
    group: str = ""
    place: int = 0


Check = Rule[Context]
Requirement = Needed[Context]
_MARK = "onecat_check"


def check(
    id: str,
    *,
    title: str,
    why: str,
    fix: tuple[str, ...],
    source: tuple[str, ...],
    requires: tuple[Needed[Seen], ...] = (),
    to_pass: tuple[Needed[Seen], ...] = (),
    group: str = "",
    place: int = 0,
) -> Callable[[Looking[Seen]], Looking[Seen]]:
    """Make a function a check; its docstring says what it looks at. See Rule for the parameters."""

    def mark(body: Looking[Seen]) -> Looking[Seen]:
        looks_at = " ".join((inspect.getdoc(body) or "").split())
        setattr(body, _MARK, Rule(id, title, looks_at, why, fix, source, requires, to_pass, body, group, place))
        return body

    return mark


@functools.cache
def all_checks() -> tuple[Check, ...]:
    """Every check of doctor, sorted by id. Raises ValueError when an id stands twice."""
    import onecat.doctor.checks as package

    return checks_in(package)


def checks_in(package: ModuleType) -> tuple[Rule[Any], ...]:
    """Every check of the modules of a package, sorted by id. Raises ValueError when an id stands twice."""
    checks: dict[str, Rule[Any]] = {}
    for module in pkgutil.iter_modules(package.__path__, package.__name__ + "."):
        for value in vars(importlib.import_module(module.name)).values():
            found = getattr(value, _MARK, None)
            if isinstance(found, Rule) and found.body.__module__ == module.name:
                if found.id in checks:
                    raise ValueError(f"two checks have the id {found.id}")
                checks[found.id] = found
    return tuple(checks[id] for id in sorted(checks))


def find_check(id: str) -> Check:
    """A check by its id. Raises OnecatError with the nearest id when there is none."""
    import difflib

    checks = {each.id: each for each in all_checks()}
    if id in checks:
        return checks[id]
    near = difflib.get_close_matches(id, checks, n=3, cutoff=0.4)
    raise OnecatError(
        f"no check has the id {id!r}",
        expected=f"perhaps {' or '.join(near)}" if near else None,
        next_steps=["list all checks: onecat explain"],
    )
