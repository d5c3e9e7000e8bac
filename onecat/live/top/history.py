"""The last minutes of each host, and what they say."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import pairwise

from onecat.observe.bottleneck import Reading, read_bottleneck
from onecat.observe.metrics import EngineRates, Sample, engine_rates

READ_SECONDS = 8.0
"""The stretch that the reading and the rates are about: several samples at the usual interval, and short
enough to follow a load that changes: a minute's burst is over before a longer stretch has told of it."""
FEWEST = 3
"""Samples that are read, however far apart they are."""
KEPT = 240
"""Samples for sparklines."""


@dataclass(frozen=True)
class HostView:
    """A host now.

    samples: the kept ones, the newest last. rates: of the last seconds; None where the server told nothing twice.
    """

    host: str
    samples: tuple[Sample, ...]
    rates: EngineRates | None
    reading: Reading

    @property
    def latest(self) -> Sample:
        return self.samples[-1]

    @property
    def last_answer(self) -> Sample | None:
        """The newest sample in which the host answered."""
        return next((each for each in reversed(self.samples) if each.error is None), None)

    def series(self, of: Callable[[Sample], float | None], count: int) -> tuple[float | None, ...]:
        """A value of the newest samples, at most `count`."""
        return tuple(of(each) for each in self.samples[-count:])

    def rate_series(self, of: Callable[[EngineRates], float | None], count: int) -> tuple[float | None, ...]:
        """A rate between each two of the newest samples, at most `count`."""
        found: list[float | None] = []
        for before, after in pairwise(self.samples[-count - 1 :]):
            rates = _rates([before, after])
            found.append(None if rates is None else of(rates))
        return tuple(found)


class Histories:
    """All hosts, in the order in which they were named."""

    def __init__(self, hosts: Iterable[str] = ()) -> None:
        self._samples: dict[str, deque[Sample]] = {host: deque(maxlen=KEPT) for host in hosts}

    def add(self, sample: Sample) -> HostView:
        """Take a sample; returns how its host is now."""
        self._samples.setdefault(sample.host, deque(maxlen=KEPT)).append(sample)
        return self._view(sample.host)

    def views(self) -> tuple[HostView, ...]:
        """The hosts of which something is known."""
        return tuple(self._view(host) for host, samples in self._samples.items() if samples)

    def missing(self) -> tuple[str, ...]:
        """The hosts that have told nothing yet."""
        return tuple(host for host, samples in self._samples.items() if not samples)

    def _view(self, host: str) -> HostView:
        samples = tuple(self._samples[host])
        begin = samples[-1].time - READ_SECONDS
        recent = [each for each in samples[:-FEWEST] if each.time >= begin] + list(samples[-FEWEST:])
        if samples[-1].error is not None:
            recent = [samples[-1]]
        return HostView(host, samples, _rates(recent), read_bottleneck(recent))


def _rates(samples: Iterable[Sample]) -> EngineRates | None:
    return engine_rates([(each.time, each.engine) for each in samples if each.engine is not None])
