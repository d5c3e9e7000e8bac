"""Which function describes which architecture. A new family is a new file in families/ with a decorated function."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from onecat.checkpoints.architectures.configuration import Configuration
from onecat.checkpoints.architectures.records import Architecture

Family = Callable[[Configuration], Architecture]
"""Takes the configuration, returns its architecture. Raises IncompleteConfiguration."""

_FAMILIES: dict[str, Family] = {}


def family(*names: str) -> Callable[[Family], Family]:
    """Register a function for the classes that `architectures` in config.json names.

    Raises ValueError when one of them has a function already.
    """

    def register(function: Family) -> Family:
        for name in names:
            if name in _FAMILIES:
                raise ValueError(f"architecture {name} is described twice")
            _FAMILIES[name] = function
        return function

    return register


@cache
def families() -> dict[str, Family]:
    """All described architectures by name; the modules of families/ are loaded when this is first asked."""
    import pkgutil
    from importlib import import_module

    from onecat.checkpoints.architectures import families as package

    for module in sorted(each.name for each in pkgutil.iter_modules(package.__path__)):
        import_module(f"{package.__name__}.{module}")
    return dict(sorted(_FAMILIES.items()))
