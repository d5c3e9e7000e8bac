"""What samples of a server tell over time. A reading is a row of READINGS."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

_GIB = 1 << 30


@dataclass(frozen=True)
class Reading:
    """name: of the line. chart: title of the chart it is drawn in, with the unit. read: None where a sample lacks it.

    Samples are documents of `onecat.observe.metrics.Sample`, or of what an experiment looked at itself.
    """

    chart: str
    name: str
    read: Callable[[Mapping[str, Any]], float | None]


def _engines(key: str, fold: Callable[[list[float]], float]) -> Callable[[Mapping[str, Any]], float | None]:
    """Of all engines of a server, or what an experiment has summed up itself."""

    def read(sample: Mapping[str, Any]) -> float | None:
        folded = _fold(_each(_inside(sample, "engine", "engines"), key), fold)
        return _number(sample.get(key)) if folded is None else folded

    return read


def _gpus(key: str, fold: Callable[[list[float]], float]) -> Callable[[Mapping[str, Any]], float | None]:
    return lambda sample: _fold(_each(_inside(sample, "gpus"), key), fold)


def _gpu_memory(sample: Mapping[str, Any]) -> float | None:
    told = sample.get("gpu_memory_bytes")
    known = [each for value in told if (each := _number(value)) is not None] if isinstance(told, list) else []
    total = _fold(known or _each(_inside(sample, "gpus"), "memory_used"), sum)
    return None if total is None else total / _GIB


def _resident(sample: Mapping[str, Any]) -> float | None:
    total = _fold(_each(_inside(sample, "machine", "processes"), "resident"), sum)
    total = _number(sample.get("rss_bytes")) if total is None else total
    return None if total is None else total / _GIB


def _private(sample: Mapping[str, Any]) -> float | None:
    private = _number(sample.get("private_bytes"))
    return None if private is None else private / _GIB


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)


_MEMORY = "Memory of the server's processes, GiB"
READINGS: tuple[Reading, ...] = (
    Reading("Requests in the engine", "running", _engines("running", sum)),
    Reading("Requests in the engine", "waiting", _engines("waiting", sum)),
    Reading("KV cache used, %", "fullest engine", lambda sample: _percent(_engines("kv_cache_usage", max)(sample))),
    Reading(_MEMORY, "resident", _resident),
    Reading(_MEMORY, "its own", _private),
    Reading("GPU memory used, GiB", "all GPUs", _gpu_memory),
    Reading("GPU utilisation, %", "mean", _gpus("utilization_percent", _mean)),
    Reading("GPU utilisation, %", "lowest", _gpus("utilization_percent", min)),
    Reading("GPU power, W", "all GPUs", _gpus("power_watts", sum)),
    Reading("GPU temperature, °C", "hottest", _gpus("temperature_celsius", max)),
    Reading("Processors, % of all cores", "busy", lambda sample: _number(_inside(sample, "machine", "cpu_percent"))),
    Reading("Restarts", "so far", lambda sample: _number(sample.get("restarts"))),
)


def _percent(share: float | None) -> float | None:
    return None if share is None else share * 100


def _inside(value: Any, *path: str) -> Any:
    for name in path:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def _each(values: Any, key: str) -> list[float]:
    found = (_number(_inside(each, key)) for each in values) if isinstance(values, list | tuple) else ()
    return [each for each in found if each is not None]


def _fold(values: list[float], fold: Callable[[list[float]], float]) -> float | None:
    return float(fold(values)) if values else None


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
