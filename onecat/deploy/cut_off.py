"""What is left, and what to do, when the connection to a host was lost in the middle of a change."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

from onecat.errors import ExitCode, OnecatError
from onecat.hosts.transport import ConnectionLostError

if TYPE_CHECKING:
    from onecat.deploy.releases import Release
    from onecat.deploy.request import Run


@contextlib.contextmanager
def told_when_lost(run: Run) -> Iterator[None]:
    """Around what is done before a change begins, and after it: a lost connection is told with what to do."""
    try:
        yield
    except ConnectionLostError as lost:
        raise OnecatError(
            lost.found,
            expected="a connection that lasts until the end",
            where=lost.where,
            details=["what served before serves on", *lost.details],
            next_steps=["onecat up, which cleans up what was left", f"onecat status {run.deployment.name}"],
            code=ExitCode.UNREACHABLE,
        ) from lost


def is_cut_off(run: Run) -> bool:
    """Whether a host of the run cannot be asked anything any more, so that nothing there can be taken back."""
    return any(machine.is_lost for machine in run.machines)


def cut_off(run: Run, release: Release, previous: Release | None, beside: bool, failure: Exception) -> OnecatError:
    """What to tell.

    Parameters:
        previous: the release that ran before. beside: whether it still does. failure: by which it was noticed.
    """
    lost = next(machine.name for machine in run.machines if machine.is_lost)
    return OnecatError(
        f"the connection to {lost} was lost while release {release.number} was being started",
        expected="a connection that lasts until the release is accepted",
        where=lost,
        details=[state_left(release.number, previous.number if previous else None, beside), f"noticed by: {failure}"],
        next_steps=[
            "onecat up, which goes on or cleans up what was left",
            f"onecat status {release.deployment}",
        ],
        code=ExitCode.UNREACHABLE,
    )


def state_left(release: int, previous: int | None, beside: bool) -> str:
    """The state that a change leaves which is cut off before its end, in words."""
    if previous is None:
        return f"release {release} may run on the host; nothing served before it"
    if beside:
        return f"clients are served by release {previous}, or by release {release} where nginx was told so already"
    return f"release {previous} was stopped to make place: clients get 503 until the next `onecat up`"
