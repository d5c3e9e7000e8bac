"""From what the sampling agent tells to samples."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from onecat.facts import record_from_json
from onecat.observe.metrics import (
    EngineMetrics,
    GpuSample,
    HostSample,
    NotMetricsError,
    NpuSample,
    Sample,
    parse_metrics,
)


class SampleReader:
    """Reads the lines of one run of the agent on a host.

    Times become those of this machine, with the distances that the host's clock saw between them: what a network adds
    must not change rates. host: how the host is called.
    """

    def __init__(self, host: str) -> None:
        self._host = host
        self._offset: float | None = None
        self._npus: tuple[NpuSample, ...] = ()

    def read(self, document: Mapping[str, Any], now: float) -> Sample:
        """One line of the agent. now: when it came, seconds since the epoch. Raises ValueError for another form."""
        told = document.get("time")
        if not isinstance(told, (int, float)):
            raise ValueError("it has no time")
        if self._offset is None:
            self._offset = now - told
        engine, engine_error = _engine(document.get("engine"))
        if isinstance(text := document.get("npu_smi"), str):
            self._npus = _npus(text)
        gpus = document.get("gpus")
        machine = document.get("machine")
        return Sample(
            time=told + self._offset,
            host=self._host,
            gpus=None if gpus is None else tuple(record_from_json(GpuSample, each, "gpu") for each in gpus),
            npus=self._npus,
            machine=None if machine is None else record_from_json(HostSample, machine, "machine"),
            engine=engine,
            engine_error=engine_error,
            notes=tuple(sorted((str(key), str(why)) for key, why in (document.get("notes") or {}).items())),
        )


def _engine(told: Any) -> tuple[EngineMetrics | None, str | None]:
    if not isinstance(told, Mapping):
        return None, None
    if "error" in told:
        return None, str(told["error"])
    text = str(told.get("text", ""))
    if not text.strip():
        return None, "its /metrics tells nothing of vLLM (--disable-log-stats?)"
    try:
        found = parse_metrics(text)
    except NotMetricsError as error:
        return None, str(error)
    return (found, None) if found.engines else (None, "its /metrics tells nothing of vLLM (--disable-log-stats?)")


def _npus(text: str) -> tuple[NpuSample, ...]:
    from onecat.probe.importers.npu_smi import npu_smi
    from onecat.probe.importers.registry import Capture

    found = npu_smi(Capture("npu-smi info", text)).get("ascend", {}).get("npus", ())
    return tuple(
        NpuSample(
            index=each["index"],
            name=each.get("name"),
            health=each.get("health"),
            utilization_percent=each.get("utilization_percent"),
            memory_used=each.get("hbm_used"),
            memory_total=each.get("hbm_total"),
            temperature_celsius=each.get("temperature_celsius"),
            power_watts=each.get("power_draw_watts"),
        )
        for each in found
    )
