"""How observations are found: every module of this package is loaded, every function with the decorator counts."""

from __future__ import annotations

import functools
import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from onecat.live.preflight.look import Unknown
from onecat.live.preflight.subject import Subject

Gather = Callable[[Subject], Any]
_Function = TypeVar("_Function", bound=Callable[[Subject], Any])
_MARK = "onecat_observer"


@dataclass(frozen=True)
class Observer:
    """kind: the record that it makes. place: in which order they are made on a host; the log comes last, so that it
    tells what the others have caused. gather: makes it, or says why not; raises OnecatError or OSError."""

    kind: type[Any]
    place: int
    gather: Gather

    def observe(self, subject: Subject) -> Any:
        """The record, or why there is none."""
        from onecat.errors import ExitCode, OnecatError

        try:
            return self.gather(subject)
        except OnecatError as error:
            if error.code == ExitCode.UNREACHABLE and subject.machine.is_lost:
                raise
            return Unknown(error.found, error.details)
        except OSError as error:
            return Unknown(f"{error.filename or subject.look.host}: {error.strerror or error}")
        except Exception as error:  # noqa: BLE001 - what cannot be observed must not hide what can
            return Unknown("onecat has a fault in looking at it", (f"{type(error).__name__}: {error}",))


def observer(kind: type[Any], place: int) -> Callable[[_Function], _Function]:
    """Make a function one that gathers records of this kind; see Observer."""

    def mark(function: _Function) -> _Function:
        setattr(function, _MARK, Observer(kind, place, function))
        return function

    return mark


@functools.cache
def observers() -> tuple[Observer, ...]:
    """All of them, in the order in which they are made."""
    import onecat.live.preflight.observing as package

    found: dict[type[Any], Observer] = {}
    for module in pkgutil.iter_modules(package.__path__, package.__name__ + "."):
        for value in vars(importlib.import_module(module.name)).values():
            each = getattr(value, _MARK, None)
            if isinstance(each, Observer):
                found[each.kind] = each
    return tuple(sorted(found.values(), key=lambda each: each.place))
