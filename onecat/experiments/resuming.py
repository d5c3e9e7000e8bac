"""Whether an experiment that was cut off may go on: under the conditions it was begun under, or not at all. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace

from onecat.errors import ExitCode, OnecatError
from onecat.experiments.comparability import Difference, difference_lines, differences
from onecat.experiments.records import Environment, Experiment

_NAMES = ("begun", "now")
_TOLD = ("hardware", "onecat")


def changes(begun: Experiment, now: Environment, unsure: Collection[str] = ()) -> tuple[Difference, ...]:
    """In what the conditions differ from those at the begin; arms that one of them has not are left out.

    Parameters:
        unsure: what is not known of the arms now, by its name in `Environment.arms`, so that nothing is said of it.
    """
    known = begun.environment
    both = [name for name in known.arms if name in now.arms]
    pair = [
        replace(begun, environment=replace(each, arms={name: _without(each.arms[name], unsure) for name in both}))
        for each in (known, now)
    ]
    return differences(pair)


def check_same_conditions(begun: Experiment, now: Environment, again: str, unsure: Collection[str] = ()) -> list[str]:
    """Lines for a person of what has changed without making other figures of the servers, as onecat's version.

    Parameters:
        again: the command that goes on. unsure: see `changes`.

    Raises OnecatError (exit code 1) where what is measured has changed: engine, checkpoint, arguments, GPUs, or what
    sends the load.
    """
    found = changes(begun, now, unsure)
    mattering = [each for each in found if each.role != "told"]
    if mattering:
        raise OnecatError(
            f"it cannot go on: since it was begun, {', '.join(each.what for each in mattering)} changed",
            expected="what it was begun with, for one verdict over all blocks",
            next_steps=[f"make it as it was, then: {again}", "or begin anew: leave --resume FILE out"],
            details=list(difference_lines(mattering, _NAMES)),
            code=ExitCode.NO,
        )
    return list(_told(each for each in found if each.what.split()[0] in _TOLD))


def _told(found: Iterator[Difference]) -> Iterator[str]:
    for each in found:
        before, now = each.values
        yield f"since it was begun, {each.what} changed: {before}, now {now}"


def _without(arm: dict[str, object], names: Collection[str]) -> dict[str, object]:
    return {name: value for name, value in arm.items() if name not in names}
