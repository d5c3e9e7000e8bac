"""Observes many hosts at once."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from onecat.errors import ExitCode, OnecatError
from onecat.facts import Facts
from onecat.hosts import CONNECT_SECONDS, DEFAULT_PARALLEL, Desk, FanOut, Outcome, Reach, SudoPasswords, Target, Task
from onecat.probe.collect import collect, for_this_machine, most_seconds_of
from onecat.probe.options import ProbeOptions


@dataclass(frozen=True)
class Observation:
    """What came of observing a host: facts, or the error that says why there are none. seconds: wall time."""

    name: str
    seconds: float
    facts: Facts | None = None
    error: OnecatError | None = None


class Observing:
    """Hosts that are being observed from the moment this is made, while the caller goes on.

    Parameters:
        targets: the hosts.
        options: what to observe on each.
        parallel: on how many at the same time.
        connect_timeout: seconds for reaching a host over SSH, and for logging in.

    It must be made in the main thread.
    """

    def __init__(
        self,
        targets: Sequence[Target],
        options: ProbeOptions,
        *,
        parallel: int = DEFAULT_PARALLEL,
        connect_timeout: float = CONNECT_SECONDS,
    ) -> None:
        desk = Desk()
        self._reach = Reach(desk, connect_timeout)
        self._sudo_passwords = SudoPasswords(desk)
        self._options = options
        tasks = [Task(target.text, functools.partial(self._observe, target)) for target in targets]
        self._fan_out = FanOut(tasks, parallel=parallel, desk=desk)

    def observations(self, tell: Callable[[int], None] | None = None) -> list[Observation]:
        """Wait for all hosts; what came of them in their order. To be called in the main thread, which may be asked.

        tell: called with how many hosts have answered. What is no host's fault (a mistake in the configuration of ssh,
        a fault of onecat) is raised when it concerns all hosts; else it is what came of the hosts that it concerns.
        """
        try:
            outcomes = self._fan_out.outcomes(tell)
        finally:
            self._reach.close()
        faults = [each.error for each in outcomes if each.error is not None and not _is_unreachable(each.error)]
        if faults and len(faults) == len(outcomes):
            raise faults[0]
        return [_observation(outcome) for outcome in outcomes]

    def _observe(self, target: Target, set_limit: Callable[[float], None]) -> Facts:
        options = for_this_machine(self._options) if target.is_local else self._options
        with contextlib.closing(self._reach.transport(target)) as transport:
            set_limit(most_seconds_of(transport, options))
            return collect(transport, options, self._sudo_passwords)


def _observation(outcome: Outcome[Facts]) -> Observation:
    error = outcome.error
    if error is not None and not isinstance(error, OnecatError):
        error = OnecatError(
            f"onecat has a fault: {type(error).__name__}: {error}",
            where=outcome.name,
            next_steps=[f"onecat --debug doctor --host {outcome.name}, and report what it prints"],
            code=ExitCode.UNREACHABLE,
        )
    return Observation(outcome.name, outcome.seconds, outcome.result, error)


def _is_unreachable(error: BaseException) -> bool:
    return isinstance(error, OnecatError) and error.code is ExitCode.UNREACHABLE
