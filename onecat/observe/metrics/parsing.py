"""Reads what a server's /metrics answers, in Prometheus' text format."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from onecat.observe.metrics.names import MetricName, metric_names
from onecat.observe.metrics.records import EngineMetrics, EngineSeries, Histogram

_Key = tuple[str, str]
"""Model and engine."""


class NotMetricsError(ValueError):
    """The text is not in Prometheus' text format."""


@dataclass
class _Found:
    """The values of one metric for one engine, as they are read."""

    value: float | None = None
    buckets: dict[float, float] = field(default_factory=dict)
    count: float | None = None
    total: float = 0.0


def parse_metrics(text: str) -> EngineMetrics:
    """The engines of a server from the text of its /metrics.

    Of a metric that has had several names, the newest one that is there counts. Values that several processes of a
    server tell for the same engine (label pid) are one value: the largest of a gauge, the sum of a counter. NaN is
    not known.

    Raises NotMetricsError when the text has another form.
    """
    table = metric_names()
    read: dict[str, dict[_Key, _Found]] = {}
    infos: dict[_Key, Mapping[str, str]] = {}
    started: float | None = None
    for name, labels, value in _samples(text):
        if name == table.process_started:
            started = value
        elif name == table.cache_information:
            infos[_key(labels)] = labels
        elif name in table.by_sample:
            metric, part = table.by_sample[name]
            if not math.isnan(value):
                _take(read.setdefault(metric.name, {}).setdefault(_key(labels), _Found()), metric, part, labels, value)
    chosen: dict[str, dict[_Key, _Found]] = {}
    for metric in table.names:  # the newest first
        if metric.name in read:
            chosen.setdefault(metric.field, read[metric.name])
    keys = sorted({key for found in chosen.values() for key in found})
    engines = tuple(_engine(key, chosen, infos) for key in keys)
    return EngineMetrics(engines, started)


def _samples(text: str) -> Iterable[tuple[str, Mapping[str, str], float]]:
    # Imported here: it brings an HTTP server and more, which most commands never need.
    from prometheus_client.parser import text_string_to_metric_families

    if not text.strip():
        raise NotMetricsError("the answer is empty")
    try:
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                yield sample.name, sample.labels, float(sample.value)
    except (ValueError, KeyError, IndexError, TypeError, AttributeError) as error:  # by what the parser stumbles over
        first = text.strip().splitlines()[0][:80]
        raise NotMetricsError(f"not in Prometheus' text format ({error}): {first!r}") from error


def _key(labels: Mapping[str, str]) -> _Key:
    return labels.get("model_name", ""), labels.get("engine", "")


def _take(found: _Found, metric: MetricName, part: str, labels: Mapping[str, str], value: float) -> None:
    if metric.kind == "gauge":
        found.value = value if found.value is None else max(found.value, value)
    elif metric.kind == "counter":
        found.value = (found.value or 0.0) + value
    elif part == "bucket":
        bound = float(labels.get("le", "inf"))
        found.buckets[bound] = found.buckets.get(bound, 0.0) + value
    elif part == "count":
        found.count = (found.count or 0.0) + value
    else:
        found.total += value


def _engine(
    key: _Key, chosen: Mapping[str, Mapping[_Key, _Found]], infos: Mapping[_Key, Mapping[str, str]]
) -> EngineSeries:
    values: dict[str, Any] = {}
    for name, by_engine in chosen.items():
        found = by_engine.get(key)
        if found is None:
            continue
        values[name] = found.value if found.count is None and not found.buckets else _histogram(found)
    # vLLM's cache_config_info carries the engine and no model.
    information = infos.get(key) or infos.get(("", key[1])) or {}
    return EngineSeries(
        model=key[0],
        engine=key[1],
        kv_blocks=_whole(information.get("num_gpu_blocks")),
        block_size=_whole(information.get("block_size")),
        **values,
    )


def _histogram(found: _Found) -> Histogram:
    bounds = tuple(sorted(bound for bound in found.buckets if not math.isinf(bound)))
    counts = tuple(found.buckets[bound] for bound in bounds)
    count = found.count if found.count is not None else found.buckets.get(math.inf, counts[-1] if counts else 0.0)
    return Histogram(bounds, counts, count, found.total)


def _whole(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdecimal() else None
