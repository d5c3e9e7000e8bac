"""The checks of preflight, and in which groups a page shows them."""

from __future__ import annotations

import functools
from typing import Any

from onecat.doctor import Rule, checks_in
from onecat.live.preflight.look import Look

GROUPS = ("host", "model", "server", "answers", "load", "nginx", "log")
"""In the order of a page."""
ESSENTIAL = ("preflight.health", "preflight.answer", "preflight.concurrency", "preflight.log")
"""Checks without which nobody can say that a deployment is fit."""


@functools.cache
def all_preflight_checks() -> tuple[Rule[Look], ...]:
    """Every check, in the order of a page: by group, then by place in it. Raises ValueError for an unknown group."""
    import onecat.live.preflight.checks as package

    found: tuple[Rule[Any], ...] = checks_in(package)
    return tuple(sorted(found, key=lambda check: (GROUPS.index(check.group), check.place)))


def groups() -> dict[str, str]:
    """The group of each check, by its id, in the order of a page."""
    return {check.id: check.group for check in all_preflight_checks()}
