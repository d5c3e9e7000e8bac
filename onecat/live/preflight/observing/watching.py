"""Samples of a host while something else happens."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

from onecat.live.preflight.subject import Subject
from onecat.observe.metrics import Sample


@dataclass
class Watched:
    """samples: filled when the block has ended. why_not: why there are none."""

    samples: tuple[Sample, ...] = ()
    why_not: str = ""


@contextlib.contextmanager
def watching(subject: Subject) -> Iterator[Watched]:
    """Take samples while the block runs."""
    watched = Watched(why_not="samples are not taken yet")
    yield watched
