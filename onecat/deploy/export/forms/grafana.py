"""grafana: a dashboard of what `onecat top` shows, over the metrics that `onecat export prometheus` has scraped."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from onecat.deploy.export.marking import marked_json
from onecat.deploy.export.records import ExportedFile, Form
from onecat.deploy.export.signals import Signals, signals_of

if TYPE_CHECKING:
    from onecat.deploy.export.records import Request

NAME = "grafana"
WINDOW = "$__rate_interval"
"""Grafana's variable for the range of a rate: at least four scrapes."""
DATA_SOURCE = {"type": "prometheus", "uid": "${datasource}"}
SCHEMA_VERSION = 39
"""Of Grafana 11's classic model, which later versions import too:
https://grafana.com/docs/grafana/latest/dashboards/build-dashboards/view-dashboard-json-model/"""
WIDTH, HEIGHT = 8, 7
"""Of a panel, in Grafana's grid of 24 columns."""


@dataclass(frozen=True)
class Panel:
    """One graph. lines: an expression and its legend each. unit: by Grafana's name. most: of the axis."""

    title: str
    lines: tuple[tuple[str, str], ...]
    unit: str = "short"
    most: float | None = None
    description: str = ""


def render(request: Request) -> tuple[ExportedFile, ...]:
    signals = signals_of(request)
    groups = [("Server", _server_panels(signals))]
    if request.profile.hardware.accelerator == "nvidia":
        groups.append(("GPUs", _gpu_panels(signals)))
    document: dict[str, Any] = {
        "id": None,
        "uid": "onecat-" + hashlib.sha256(signals.name.encode()).hexdigest()[:12],
        "title": f"onecat: {signals.name}",
        "description": f"The same live, with a reading of the bottleneck: onecat top {signals.name}",
        "tags": ["onecat", "vllm"],
        "timezone": "browser",
        "editable": True,
        "graphTooltip": 1,
        "panels": _panels(groups),
        "time": {"from": "now-1h", "to": "now"},
        "timepicker": {},
        "templating": {"list": [_data_source_choice()]},
        "annotations": {"list": []},
        "refresh": "15s",
        "schemaVersion": SCHEMA_VERSION,
        "version": 0,
        "links": [],
    }
    return (ExportedFile(f"{request.name}.dashboard.json", marked_json(NAME, document, "description")),)


FORM = Form(
    NAME, "a dashboard for Grafana", False, render, "in Grafana: Dashboards, New, Import; then choose the Prometheus"
)


def _server_panels(signals: Signals) -> tuple[Panel, ...]:
    def latency(field: str) -> tuple[tuple[str, str], ...]:
        return tuple((signals.quantile(field, share, WINDOW), f"p{share * 100:g}") for share in (0.5, 0.9, 0.99))

    hits = f"sum({signals.rate('prefix_hits', WINDOW)}) / sum({signals.rate('prefix_queries', WINDOW)})"
    return (
        Panel(
            "Requests",
            (
                (f"sum by (host) ({signals.gauge('running')})", "running {{host}}"),
                (f"sum by (host) ({signals.gauge('waiting')})", "waiting {{host}}"),
            ),
            description="Waiting with room in the KV cache: raise --max-num-seqs. Waiting without: KV cache too small.",
        ),
        Panel(
            "Tokens per second",
            (
                (f"sum({signals.rate('generation_tokens', WINDOW)})", "generated"),
                (f"sum({signals.rate('prompt_tokens', WINDOW)})", "prompts"),
            ),
        ),
        Panel(
            "KV cache",
            ((f"max by (host) ({signals.gauge('kv_cache_usage')})", "used {{host}}"), (hits, "prefix cache hits")),
            "percentunit",
            1,
        ),
        Panel("Time to first token", latency("ttft"), "s"),
        Panel("Between tokens", latency("inter_token"), "s"),
        Panel("End to end", latency("end_to_end"), "s"),
        Panel("Time in the queue", latency("queue"), "s"),
        Panel(
            "Preemptions",
            ((f"sum by (host) ({signals.increase('preemptions', WINDOW)})", "{{host}}"),),
            description="Requests that lost their place in the KV cache and are computed anew.",
        ),
        Panel("Requests answered per second", ((f"sum({signals.rate('requests', WINDOW)})", "answered"),), "reqps"),
    )


def _gpu_panels(signals: Signals) -> tuple[Panel, ...]:
    legend = "{{host}} GPU {{gpu}}"
    used, free = signals.gpu("DCGM_FI_DEV_FB_USED"), signals.gpu("DCGM_FI_DEV_FB_FREE")
    return (
        Panel("Utilisation", ((signals.gpu("DCGM_FI_DEV_GPU_UTIL"), legend),), "percent", 100),
        Panel(
            "Memory read or written",
            ((signals.gpu("DCGM_FI_DEV_MEM_COPY_UTIL"), legend),),
            "percent",
            100,
            "Part of the time. High with high utilisation: decoding waits for memory bandwidth.",
        ),
        Panel("Memory used", ((f"{used} / ({used} + {free})", legend),), "percentunit", 1),
        Panel(
            "PCIe",
            (
                (signals.gpu("DCGM_FI_PROF_PCIE_TX_BYTES"), f"sent {legend}"),
                (signals.gpu("DCGM_FI_PROF_PCIE_RX_BYTES"), f"received {legend}"),
            ),
            "Bps",
        ),
        Panel("SM clock", ((f"{signals.gpu('DCGM_FI_DEV_SM_CLOCK')} * 1e6", legend),), "hertz"),
        Panel("Temperature", ((signals.gpu("DCGM_FI_DEV_GPU_TEMP"), legend),), "celsius"),
        Panel("Power", ((signals.gpu("DCGM_FI_DEV_POWER_USAGE"), legend),), "watt"),
        Panel(
            "Slowed",
            (
                (f"rate({signals.gpu('DCGM_FI_DEV_THERMAL_VIOLATION')}[{WINDOW}]) > 0", f"heat {legend}"),
                (f"rate({signals.gpu('DCGM_FI_DEV_POWER_VIOLATION')}[{WINDOW}]) > 0", f"power limit {legend}"),
            ),
        ),
        Panel("Last Xid", ((signals.gpu("DCGM_FI_DEV_XID_ERRORS"), legend),)),
    )


def _panels(groups: list[tuple[str, tuple[Panel, ...]]]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    row = 0
    for title, panels in groups:
        found.append(
            {
                "id": len(found) + 1,
                "type": "row",
                "title": title,
                "collapsed": False,
                "panels": [],
                "gridPos": {"h": 1, "w": 24, "x": 0, "y": row},
            }
        )
        row += 1
        for number, panel in enumerate(panels):
            column = number % (24 // WIDTH)
            place = {"h": HEIGHT, "w": WIDTH, "x": column * WIDTH, "y": row + number // (24 // WIDTH) * HEIGHT}
            found.append(_graph(panel, len(found) + 1, place))
        row += -(-len(panels) // (24 // WIDTH)) * HEIGHT
    return found


def _graph(panel: Panel, number: int, place: dict[str, int]) -> dict[str, Any]:
    defaults: dict[str, Any] = {"unit": panel.unit, "min": 0}
    if panel.most is not None:
        defaults["max"] = panel.most
    return {
        "id": number,
        "type": "timeseries",
        "title": panel.title,
        "description": panel.description,
        "datasource": DATA_SOURCE,
        "gridPos": place,
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "options": {
            "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True, "calcs": []},
            "tooltip": {"mode": "multi", "sort": "desc"},
        },
        "targets": [
            {
                "refId": chr(ord("A") + index),
                "datasource": DATA_SOURCE,
                "expr": expression,
                "legendFormat": legend,
                "range": True,
            }
            for index, (expression, legend) in enumerate(panel.lines)
        ],
    }


def _data_source_choice() -> dict[str, Any]:
    return {
        "type": "datasource",
        "name": "datasource",
        "label": "Prometheus",
        "query": "prometheus",
        "refresh": 1,
        "regex": "",
        "hide": 0,
        "includeAll": False,
        "multi": False,
        "options": [],
        "current": {},
    }
