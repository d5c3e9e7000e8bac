"""Logs of a deployment's parts on one host or several, in the order of time, with what they mean.

In: the hosts' machines and what is wanted. Out: `Event` records, as they come.
"""

from onecat.live.logs.history import read_logs
from onecat.live.logs.live import follow_logs
from onecat.live.logs.moments import parse_since
from onecat.live.logs.records import Entry, Event, Finding, LeftOut, Loss, Notice, Opened, Source, Wanted

__all__ = [
    "Entry",
    "Event",
    "Finding",
    "LeftOut",
    "Loss",
    "Notice",
    "Opened",
    "Source",
    "Wanted",
    "follow_logs",
    "parse_since",
    "read_logs",
]
