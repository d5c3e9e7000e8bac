"""Importers and how they are found: every module of the package is loaded, every function with the decorator counts."""

from __future__ import annotations

import functools
import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Part = dict[str, Any]
"""A part of a document in the form of onecat.facts: nested dictionaries and lists, ready for onecat.probe.merging."""


@dataclass(frozen=True)
class Capture:
    """What a program printed on one host. name: of the file or program, for messages and evidence."""

    name: str
    text: str


@dataclass(frozen=True)
class Importer:
    """Reads one form of output.

    name: of the form, as people call it. recognises: whether a text is of this form, or holds it.
    read: gives its parts; never raises, whatever the text.
    """

    name: str
    recognises: Callable[[str], bool]
    read: Callable[[Capture], Part]


_MARK = "onecat_importer"


def importer(name: str, *, recognises: Callable[[str], bool]) -> Callable[[Callable[[Capture], Part]], Any]:
    """Make a function an importer; see Importer for the parameters."""

    def mark(read: Callable[[Capture], Part]) -> Callable[[Capture], Part]:
        setattr(read, _MARK, Importer(name, recognises, read))
        return read

    return mark


@functools.cache
def all_importers() -> tuple[Importer, ...]:
    """Every importer, sorted by name."""
    import onecat.probe.importers as package

    found = []
    for module in pkgutil.iter_modules(package.__path__, package.__name__ + "."):
        for value in vars(importlib.import_module(module.name)).values():
            one = getattr(value, _MARK, None)
            if isinstance(one, Importer) and one.read.__module__ == module.name:
                found.append(one)
    return tuple(sorted(found, key=lambda each: each.name))


def parse_capture(capture: Capture) -> tuple[tuple[str, Part], ...]:
    """What every importer that recognises a capture reads from it: the importer's name and its part."""
    return tuple((each.name, each.read(capture)) for each in all_importers() if each.recognises(capture.text))
