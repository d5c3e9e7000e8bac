"""Metrics: what an engine and its host told about themselves at one moment, and what happened between two moments.

In: the text of vLLM's /metrics, and JSON lines of the sampling agent (onecat/probe/sampling). Out: `Sample` records,
and of a row of them `EngineRates`: tokens and requests per second, latencies of just that time.
The names of the metrics, by engine version, are rows of knowledge/metrics.yaml.
"""

from onecat.observe.metrics.documents import sample_from_json, sample_to_json
from onecat.observe.metrics.parsing import NotMetricsError, parse_metrics
from onecat.observe.metrics.rates import engine_rates
from onecat.observe.metrics.records import (
    EngineMetrics,
    EngineRates,
    EngineSeries,
    GpuProcessSample,
    GpuSample,
    Histogram,
    HostSample,
    Latency,
    NpuSample,
    ProcessSample,
    Sample,
)

__all__ = [
    "EngineMetrics",
    "EngineRates",
    "EngineSeries",
    "GpuProcessSample",
    "GpuSample",
    "Histogram",
    "HostSample",
    "Latency",
    "NotMetricsError",
    "NpuSample",
    "ProcessSample",
    "Sample",
    "engine_rates",
    "parse_metrics",
    "sample_from_json",
    "sample_to_json",
]
