"""Rules and how they are found: every module in rules/ is loaded, every function with the decorator counts."""

from __future__ import annotations

import functools
import importlib
import pkgutil
from collections.abc import Callable, Iterator

from onecat.checkpoints.integrity.contents import Contents
from onecat.checkpoints.integrity.records import Fault

Rule = Callable[[Contents], Iterator[Fault]]

_MARK = "onecat_integrity_rule"


def rule(body: Rule) -> Rule:
    """Make a function a rule: it is given what a model directory holds and says what is wrong with it."""
    setattr(body, _MARK, True)
    return body


@functools.cache
def rules() -> tuple[Rule, ...]:
    """Every rule, in the order of the modules' names."""
    import onecat.checkpoints.integrity.rules as package

    found: list[Rule] = []
    for module in pkgutil.iter_modules(package.__path__, package.__name__ + "."):
        members = vars(importlib.import_module(module.name)).values()
        found += [
            each for each in members if getattr(each, _MARK, False) and getattr(each, "__module__", None) == module.name
        ]
    return tuple(found)
