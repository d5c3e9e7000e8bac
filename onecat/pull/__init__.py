"""Pull: fetches a model from an address or a hub into a directory, whole and verified, and goes on after a break.

In: a `PullRequest` and where to tell what happens. Out: `Pulled`, with every file, its size and checksum. The only room
that fetches models; how far a directory is stands in its .onecat-pull/state.json.
"""

from onecat.pull.pulling import Teller, pull
from onecat.pull.records import Progress, Pulled, PulledFile, PullRequest, Skipped

__all__ = ["Progress", "Pulled", "PulledFile", "PullRequest", "Skipped", "Teller", "pull"]
