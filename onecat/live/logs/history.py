"""What the logs hold already."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from onecat.hosts import Desk, FanOut, Machine, Task
from onecat.live.logs.merging import merged
from onecat.live.logs.records import Entry, Event, Finding, LeftOut, Loss, Wanted
from onecat.live.logs.selecting import kept_of, last_of
from onecat.live.logs.sources import Log, lost_error, open_logs


def read_logs(machines: Sequence[Machine], desk: Desk, wanted: Wanted) -> list[Event]:
    """The last lines of all logs together in the order of time, and before them the hosts that did not answer and what
    was left out."""
    tasks = [Task(machine.name, _reading(machine, wanted)) for machine in machines]
    losses: list[Event] = []
    logs: list[list[Entry | Finding | LeftOut]] = []
    for index, outcome in FanOut(tasks, desk=desk).ended():
        if outcome.result is not None:
            logs += outcome.result
        elif isinstance(outcome.error, Exception):
            losses.append(Loss(outcome.name, lost_error(machines[index], outcome.error) or outcome.error))
        elif outcome.error is not None:
            raise outcome.error
    left_out = [event for log in logs for event in log if isinstance(event, LeftOut)]
    told = merged([event for event in log if not isinstance(event, LeftOut)] for log in logs)
    return [*losses, *left_out, *last_of(told, wanted.lines)]


def _reading(
    machine: Machine, wanted: Wanted
) -> Callable[[Callable[[float], None]], list[list[Entry | Finding | LeftOut]]]:
    def read(set_limit: Callable[[float], None]) -> list[list[Entry | Finding | LeftOut]]:
        return [list(kept_of(map(log.reader.entry, _lines(log, wanted)), wanted)) for log in open_logs(machine, wanted)]

    return read


def _lines(log: Log, wanted: Wanted) -> Iterable[str]:
    return log.lines.lines(wanted.since) if wanted.count is None else log.lines.last_lines(wanted.count)
