"""Observes many hosts at once."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from onecat.errors import ExitCode, OnecatError
from onecat.facts import Facts
from onecat.hosts import CONNECT_SECONDS, DEFAULT_PARALLEL, Desk, FanOut, Outcome, Reach, SudoPasswords, Target, Task
from onecat.probe.collect import collect, for_this_machine, most_seconds_of
from onecat.probe.options import ProbeOptions
from onecat.probe.program import program

Result = TypeVar("Result")


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
        parallel: on how many of those that answer at the same time.
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
        self._reach = Reach(desk, connect_timeout, parallel)
        if not all(target.is_local for target in targets):
            self._reach.load()
        # Packed here and not in a thread: what the caller loads next would hold the interpreter, and the hosts, up.
        program()
        self._sudo_passwords = SudoPasswords(desk)
        self._options = options
        tasks = [Task(target.text, functools.partial(self._observe, target)) for target in targets]
        self._fan_out = FanOut(tasks, desk=desk)

    def observations(self, tell: Callable[[int], None] | None = None) -> list[Observation]:
        """Wait for all hosts; what came of them in their order. See results."""
        return self.results(lambda observation: observation, tell)

    def results(self, use: Callable[[Observation], Result], tell: Callable[[int], None] | None = None) -> list[Result]:
        """Use what comes of each host as soon as it has answered; the results in the order of the hosts.

        To be called in the main thread, where the person may be asked. What is no host's fault (a mistake in the
        configuration of ssh, a fault of onecat) is raised when it concerns all hosts; else it is what came of the hosts
        that it concerns.

        Parameters:
            use: called in the main thread while other hosts are still being observed.
            tell: called with how many hosts have answered.
        """
        load_importers()
        results: dict[int, Result] = {}
        faults: dict[int, Outcome[Facts]] = {}
        try:
            for index, outcome in self._fan_out.ended():
                if outcome.error is None or _is_unreachable(outcome.error):
                    results[index] = use(_observation(outcome))
                else:
                    faults[index] = outcome
                if tell is not None:
                    tell(len(results) + len(faults))
        finally:
            self._reach.close()
        if faults and not results:
            raise next(each.error for each in faults.values() if each.error is not None)
        results |= {index: use(_observation(outcome)) for index, outcome in faults.items()}
        return [results[index] for index in sorted(results)]

    def _observe(self, target: Target, set_limit: Callable[[float], None]) -> Facts:
        options = for_this_machine(self._options) if target.is_local else self._options
        with contextlib.closing(self._reach.transport(target)) as transport:
            set_limit(most_seconds_of(transport, options))
            return collect(transport, options, self._sudo_passwords)


def load_importers() -> None:
    """Load what reads the answers of hosts, which is best done while they are awaited."""
    from onecat.probe.importers import all_importers

    all_importers()


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
