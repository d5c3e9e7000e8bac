"""What happened between scrapes of a server's metrics: counters become rates, histograms latencies of that time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

from onecat.observe.metrics.records import (
    EngineMetrics,
    EngineRates,
    EngineSeries,
    Histogram,
    Latency,
    sum_of_known,
)

_COUNTERS = (
    "prompt_tokens",
    "generation_tokens",
    "requests",
    "preemptions",
    "prefix_queries",
    "prefix_hits",
    "drafts",
    "draft_tokens",
    "accepted_tokens",
)
_HISTOGRAMS = ("ttft", "inter_token", "end_to_end", "queue")


def engine_rates(scrapes: Sequence[tuple[float, EngineMetrics]]) -> EngineRates | None:
    """What a server did from the first scrape to the last.

    A counter that has become smaller began anew: all it says now counts as new, as Prometheus' increase() takes it; so
    does every counter of a server whose process started at another time. What several engines tell is added up.

    Parameters:
        scrapes: time in seconds and what was told then, in order of time.

    Returns None when there are fewer than two scrapes or no time lies between them.
    """
    if len(scrapes) < 2 or scrapes[-1][0] <= scrapes[0][0]:
        return None
    seconds = scrapes[-1][0] - scrapes[0][0]
    increases: dict[str, float] = {}
    histograms: dict[str, list[Histogram]] = {}
    restarts = 0
    for (_, before), (_, after) in pairwise(scrapes):
        restarted = is_another_process(before, after)
        old = {(each.model, each.engine): each for each in before.engines}
        for series in after.engines:
            earlier = None if restarted else old.get((series.model, series.engine))
            if earlier is None and not restarted and not _is_new(before):
                earlier = series  # an engine that was not told of before: since when it counts is not known
            restarted = _add(series, earlier, increases, histograms) or restarted
        restarts += restarted
    latencies = {name: _latency(histograms.get(name, ())) for name in _HISTOGRAMS}
    last = scrapes[-1][1]
    hits, drafts = (
        _ratio(increases, "prefix_hits", "prefix_queries"),
        _ratio(increases, "accepted_tokens", "draft_tokens"),
    )
    return EngineRates(
        seconds=seconds,
        restarts=restarts,
        prompt_tokens=_per(increases.get("prompt_tokens"), seconds),
        generation_tokens=_per(increases.get("generation_tokens"), seconds),
        requests=_per(increases.get("requests"), seconds),
        preemptions=increases.get("preemptions"),
        prefix_hit_rate=hits if hits is not None else _told(each.prefix_hit_rate for each in last.engines),
        draft_acceptance=drafts if drafts is not None else _told(each.draft_acceptance for each in last.engines),
        acceptance_length=_plus_one(_ratio(increases, "accepted_tokens", "drafts")),
        **latencies,
    )


def is_another_process(before: EngineMetrics, after: EngineMetrics) -> bool:
    """Whether the server's process is not the one that it was."""
    return None not in (before.process_started, after.process_started) and (
        before.process_started != after.process_started
    )


def _is_new(before: EngineMetrics) -> bool:
    """Whether a server told of no engine at all: its engines were still being started."""
    return not before.engines


def _add(
    series: EngineSeries,
    earlier: EngineSeries | None,
    increases: dict[str, float],
    histograms: dict[str, list[Histogram]],
) -> bool:
    """Add what one engine did since; returns whether a counter of it began anew."""
    began_anew = False
    for name in _COUNTERS:
        now, then = getattr(series, name), getattr(earlier, name, None)
        if now is None:
            continue
        if then is not None and now < then:
            began_anew, then = True, None
        increases[name] = increases.get(name, 0.0) + now - (then or 0.0)
    for name in _HISTOGRAMS:
        now, then = getattr(series, name), getattr(earlier, name, None)
        if now is not None:
            histograms.setdefault(name, []).append(_difference(now, then))
    return began_anew


def _difference(now: Histogram, then: Histogram | None) -> Histogram:
    if then is None or now.count < then.count or now.bounds != then.bounds:
        return now
    counts = tuple(new - old for new, old in zip(now.counts, then.counts, strict=True))
    return Histogram(now.bounds, counts, now.count - then.count, now.total - then.total)


def _latency(histograms: Sequence[Histogram]) -> Latency | None:
    """Of several engines' histograms together; those with other bounds than the first are left out of quantiles."""
    filled = [each for each in histograms if each.count > 0]
    if not filled:
        return None
    count = sum(each.count for each in filled)
    alike = [each for each in filled if each.bounds == filled[0].bounds]
    counts = tuple(sum(column) for column in zip(*(each.counts for each in alike), strict=True))
    merged = Histogram(filled[0].bounds, counts, sum(each.count for each in alike), 0.0)
    p50, p90, p99 = (quantile(merged, share) for share in (0.5, 0.9, 0.99))
    return Latency(count, sum(each.total for each in filled) / count, p50, p90, p99)


def quantile(histogram: Histogram, share: float) -> float:
    """A quantile of a histogram with observations, interpolated in its bucket from the bound below it.

    Beyond the last bound nothing is known: then it is that bound, as Prometheus' histogram_quantile takes it.
    """
    rank = share * histogram.count
    lower, below = 0.0, 0.0
    for bound, upto in zip(histogram.bounds, histogram.counts, strict=True):
        if upto >= rank and upto > below:
            return lower + (bound - lower) * (rank - below) / (upto - below)
        lower, below = bound, max(below, upto)
    return lower


def _per(increase: float | None, seconds: float) -> float | None:
    return None if increase is None else increase / seconds


def _ratio(increases: dict[str, float], part: str, whole: str) -> float | None:
    return increases.get(part, 0.0) / increases[whole] if increases.get(whole) else None


def _plus_one(value: float | None) -> float | None:
    return None if value is None else value + 1.0


def _told(values: Iterable[float | None]) -> float | None:
    """The mean of what engines say; None where none says anything. vLLM V0 says -1 for "not yet"."""
    known = [value for value in values if value is not None and value >= 0]
    total = sum_of_known(known)
    return None if total is None else total / len(known)
