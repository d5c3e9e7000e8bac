"""Top: how hosts and the servers on them do, sample after sample.

In: machines and, where one is deployed there, what to watch of it. Out: `Sample` records as they come, also of a host
that does not answer for a while; for each host a `HostView`: the newest sample, the rates and the reading of the
bottleneck of the last seconds. Recordings are the same as JSON lines, and come back from there.
"""

from onecat.live.top.collecting import collect
from onecat.live.top.feeds import Feed, Feeds
from onecat.live.top.history import Histories, HostView
from onecat.live.top.recordings import TOP_SCHEMA, Recording, document_of, replayed
from onecat.live.top.watched import Watched, watched_on

__all__ = [
    "TOP_SCHEMA",
    "Feed",
    "Feeds",
    "Histories",
    "HostView",
    "Recording",
    "Watched",
    "collect",
    "document_of",
    "replayed",
    "watched_on",
]
