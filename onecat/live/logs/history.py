"""What the logs hold already."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from onecat.hosts import Desk, FanOut, Machine, Task
from onecat.live.logs.merging import merged
from onecat.live.logs.records import Entry, Event, Loss, Wanted
from onecat.live.logs.selecting import Selection
from onecat.live.logs.sources import MOST_LINES, lost_error, open_logs


def read_logs(machines: Sequence[Machine], desk: Desk, wanted: Wanted) -> list[Event]:
    """The last lines of all logs together in the order of time, and before them the hosts that did not answer."""
    tasks = [Task(machine.name, _reading(machine, wanted)) for machine in machines]
    losses: list[Event] = []
    logs: list[list[Entry]] = []
    for index, outcome in FanOut(tasks, desk=desk).ended():
        if outcome.result is not None:
            logs += outcome.result
        elif isinstance(outcome.error, Exception):
            losses.append(Loss(outcome.name, lost_error(machines[index], outcome.error) or outcome.error))
        elif outcome.error is not None:
            raise outcome.error
    return [*losses, *Selection(wanted).past(merged(logs))]


def count_of(wanted: Wanted) -> int:
    """How many lines of each log have to be read for what is wanted."""
    whole = wanted.lines is None or wanted.pattern is not None
    return MOST_LINES if whole or wanted.lines is None else wanted.lines


def _reading(machine: Machine, wanted: Wanted) -> Callable[[Callable[[float], None]], list[list[Entry]]]:
    def read(set_limit: Callable[[float], None]) -> list[list[Entry]]:
        count = count_of(wanted)
        return [[log.reader.entry(line) for line in log.lines.last_lines(count)] for log in open_logs(machine, wanted)]

    return read
