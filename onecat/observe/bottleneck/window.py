"""A row of samples of one host, as the rules look at it."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from onecat.observe.metrics import EngineRates, GpuSample, Sample, engine_rates

BUSY_PERCENT = 50
"""From this utilisation on a GPU counts as working: below, its clocks and its link tell nothing (they rest)."""


@dataclass(frozen=True)
class GpuWindow:
    """The samples of one GPU, those in which it answered."""

    index: int
    samples: tuple[GpuSample, ...]

    def median(self, name: str) -> float | None:
        """The middle value of a field; None where no sample knows it."""
        return median(getattr(each, name) for each in self.samples)

    def share(self, holds: Callable[[GpuSample], bool]) -> float:
        """In which part of the samples something holds, 0 to 1."""
        return sum(map(holds, self.samples)) / len(self.samples)

    @property
    def last(self) -> GpuSample:
        return self.samples[-1]

    @property
    def is_busy(self) -> bool:
        """Whether it worked most of the time."""
        return (self.median("utilization_percent") or 0) >= BUSY_PERCENT


@dataclass(frozen=True)
class Window:
    """All samples of a host in which it answered, and what its server did meanwhile."""

    samples: tuple[Sample, ...]
    gpus: tuple[GpuWindow, ...]
    rates: EngineRates | None

    @property
    def seconds(self) -> float:
        return self.samples[-1].time - self.samples[0].time if self.samples else 0.0

    @property
    def running(self) -> float | None:
        """Requests being computed, the middle value."""
        return median(each.engine.running for each in self.samples if each.engine)

    @property
    def waiting(self) -> float | None:
        """Requests waiting for their turn, the middle value."""
        return median(each.engine.waiting for each in self.samples if each.engine)

    @property
    def kv_cache_usage(self) -> float | None:
        """The used share of the fullest KV cache, the middle value."""
        return median(each.engine.fullest_kv_cache for each in self.samples if each.engine)

    @property
    def has_engine(self) -> bool:
        return any(each.engine and each.engine.engines for each in self.samples)

    @property
    def serves_nobody(self) -> bool:
        """Whether there is a server and it has no requests: then whatever its GPUs do, they do for somebody else."""
        return (
            self.has_engine
            and not self.running
            and not self.waiting
            and not (self.rates and (self.rates.generation_tokens or self.rates.prompt_tokens))
        )

    @property
    def utilization(self) -> float | None:
        """Of all GPUs together, in percent, the middle value."""
        return median(mean(gpu.utilization_percent for gpu in each.gpus or ()) for each in self.samples)

    @property
    def memory_utilization(self) -> float | None:
        """The part of time in which memory was read or written, of all GPUs, in percent, the middle value."""
        return median(mean(gpu.memory_utilization_percent for gpu in each.gpus or ()) for each in self.samples)

    @property
    def power_share(self) -> float | None:
        """Power of its limit, of all GPUs, 0 to 1, the middle value."""
        return median(
            mean(
                gpu.power_watts / gpu.power_limit_watts
                for gpu in each.gpus or ()
                if gpu.power_watts is not None and gpu.power_limit_watts
            )
            for each in self.samples
        )


def window_of(samples: Sequence[Sample]) -> Window:
    """The samples in which the host answered."""
    answered = tuple(each for each in samples if each.error is None)
    by_index: dict[int, list[GpuSample]] = {}
    for sample in answered:
        for gpu in sample.gpus or ():
            if gpu.error is None:
                by_index.setdefault(gpu.index, []).append(gpu)
    gpus = tuple(GpuWindow(index, tuple(each)) for index, each in sorted(by_index.items()))
    return Window(answered, gpus, engine_rates([(each.time, each.engine) for each in answered if each.engine]))


def median(values: Iterable[float | None]) -> float | None:
    """The middle of what is known."""
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


def mean(values: Iterable[float | None]) -> float | None:
    """The mean of what is known."""
    known = [value for value in values if value is not None]
    return statistics.fmean(known) if known else None
