"""Samples of a host while something else happens."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING

from onecat.errors import OnecatError
from onecat.live.preflight.subject import Subject
from onecat.observe.metrics import Sample

if TYPE_CHECKING:
    from onecat.hosts import Conversation

INTERVAL_SECONDS = 1.0


class Watching:
    """Samples that are taken in a thread. Afterwards `samples` has them; `why_not` says why there are none."""

    def __init__(self) -> None:
        self.samples: list[Sample] = []
        self.why_not = ""

    def read(self, talk: Conversation, host: str) -> None:
        """Read until the conversation is closed."""
        from onecat.live.top.collecting import read_samples

        try:
            for sample in read_samples(talk, host, INTERVAL_SECONDS):
                self.samples.append(sample)
        except (OnecatError, OSError, ValueError) as error:  # ValueError: it was closed while it was read
            self.why_not = error.found if isinstance(error, OnecatError) else str(error)


@contextlib.contextmanager
def watching(subject: Subject) -> Iterator[Watching]:
    """Let `onecat top`'s agent take samples on the host while the block runs."""
    from onecat.live.top.collecting import sampling
    from onecat.live.top.watched import watched_on

    watching = Watching()
    try:
        watched = watched_on(subject.machine, subject.store.name)
        talk = sampling(subject.machine, watched, interval=INTERVAL_SECONDS)
    except OnecatError as error:
        watching.why_not = error.found
        yield watching
        return
    reader = threading.Thread(target=watching.read, args=(talk, subject.machine.name), daemon=True)
    reader.start()
    try:
        yield watching
    finally:
        talk.close()
        reader.join(timeout=5.0)
