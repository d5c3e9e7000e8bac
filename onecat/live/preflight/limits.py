"""What a run of preflight is asked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from onecat.errors import OnecatError

if TYPE_CHECKING:
    from onecat.config.schema import Deployment, Preflight


@dataclass(frozen=True)
class Options:
    """How a run is to be made.

    limits: the `preflight` section with what the command line changes of it, by name. deployment: the onecat.yaml that
    counts in place of what the release was made from; None: that. only, skip: ids or patterns of checks.
    quick: no load, no hashing, no start of another program of the engine.
    """

    limits: Mapping[str, Any]
    deployment: Deployment | None = None
    only: tuple[str, ...] = ()
    skip: tuple[str, ...] = ()
    quick: bool = False


def limits_of(deployment: Deployment, changes: Mapping[str, Any]) -> Preflight:
    """The limits of a deployment with these changed. Raises OnecatError for what is out of range."""
    from pydantic import ValidationError

    from onecat.config.schema import Preflight

    try:
        limits = Preflight.model_validate({**deployment.preflight.model_dump(), **changes})
    except ValidationError as error:
        first = error.errors()[0]
        found = f"preflight.{'.'.join(map(str, first['loc']))} is {first['input']}"
        expected = str(first["msg"]).removeprefix("Input should be ")
        raise OnecatError(found, expected=expected, next_steps=["onecat preflight --help"]) from error
    if limits.requests < limits.concurrent:
        raise OnecatError(
            f"{limits.requests} requests cannot be {limits.concurrent} at once",
            expected="requests of at least concurrent",
            next_steps=[f"onecat preflight --concurrent {limits.concurrent} --requests {6 * limits.concurrent}"],
        )
    return limits
