"""Finds the forms: every module of forms/ with a `FORM`."""

from __future__ import annotations

import functools
import importlib
import pkgutil
from types import MappingProxyType
from typing import TYPE_CHECKING

from onecat.deploy.export import forms as package
from onecat.errors import OnecatError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from onecat.deploy.export.records import Form


@functools.cache
def forms() -> Mapping[str, Form]:
    """All forms by name."""
    found = {}
    for module in sorted(pkgutil.iter_modules(package.__path__), key=lambda each: each.name):
        form: Form = importlib.import_module(f"{package.__name__}.{module.name}").FORM
        found[form.name] = form
    return MappingProxyType(found)


def find_form(name: str) -> Form:
    """The form of that name. Raises OnecatError (exit code 2) when there is none."""
    known = forms()
    if name not in known:
        raise OnecatError(
            f"there is no form {name!r} to export",
            expected="one of " + ", ".join(known),
            next_steps=[f"onecat export {each}" for each in known],
        )
    return known[name]
