"""Reads knowledge/metrics.yaml: under which names engines tell what, by version."""

from __future__ import annotations

import functools
from dataclasses import dataclass

from onecat.knowledge.tables import table

PARTS = {"histogram": ("bucket", "sum", "count"), "counter": ("total",), "gauge": ("",)}
"""What Prometheus puts behind the name of a metric of each kind in its text format."""


@dataclass(frozen=True)
class MetricName:
    """One name of one value.

    field: of EngineSeries. name: without `_total`, `_bucket`, `_sum`, `_count`. engines: the versions of vLLM that have
    it, as a PEP 440 specifier. kind: gauge, counter or histogram.
    """

    field: str
    kind: str
    name: str
    engines: str
    source: tuple[str, ...]

    @property
    def sample_name(self) -> str:
        """As the text has it, of a gauge or counter; of a histogram the beginning."""
        return f"{self.name}_total" if self.kind == "counter" else self.name


@dataclass(frozen=True)
class MetricNames:
    """The table. names: of one field the newest first. by_sample: which metric a sample's name belongs to, and what of
    it: `bucket`, `sum`, `count`, `total` or "".
    """

    names: tuple[MetricName, ...]
    by_sample: dict[str, tuple[MetricName, str]]
    process_started: str
    cache_information: str

    def of(self, name_of_field: str) -> tuple[MetricName, ...]:
        """All names of one field, the newest first."""
        return tuple(each for each in self.names if each.field == name_of_field)


@functools.cache
def metric_names() -> MetricNames:
    """What is known of vLLM's metrics."""
    document = table("metrics.yaml")
    names = tuple(
        MetricName(row["field"], row["kind"], name["name"], name["engines"], tuple(name["source"]))
        for row in document["metrics"]
        for name in row["names"]
    )
    by_sample = {
        f"{each.name}_{part}" if part else each.name: (each, part) for each in names for part in PARTS[each.kind]
    }
    return MetricNames(names, by_sample, document["process_started"], document["cache_information"])
