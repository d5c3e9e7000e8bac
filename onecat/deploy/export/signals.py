"""What Prometheus is asked about a deployment: expressions for alerts and dashboards, by what `onecat top` shows too.

Servers tell the metrics of knowledge/metrics.yaml. GPUs are told of by NVIDIA's dcgm-exporter, with the counters that
DCGM_COUNTERS lists.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from onecat.knowledge.xids import xids
from onecat.observe.metrics.names import metric_names

if TYPE_CHECKING:
    from onecat.deploy.export.records import Request

DCGM_PORT = 9400
"""Where dcgm-exporter answers: https://docs.nvidia.com/datacenter/dcgm/latest/gpu-telemetry/dcgm-exporter.html"""

DCGM_COUNTERS: tuple[tuple[str, str, str], ...] = (
    ("DCGM_FI_DEV_GPU_UTIL", "gauge", "Time in which a kernel ran (in %)."),
    ("DCGM_FI_DEV_MEM_COPY_UTIL", "gauge", "Time in which memory was read or written (in %)."),
    ("DCGM_FI_DEV_FB_USED", "gauge", "Memory used (in MiB)."),
    ("DCGM_FI_DEV_FB_FREE", "gauge", "Memory free (in MiB)."),
    ("DCGM_FI_DEV_GPU_TEMP", "gauge", "Temperature (in C)."),
    ("DCGM_FI_DEV_POWER_USAGE", "gauge", "Power draw (in W)."),
    ("DCGM_FI_DEV_SM_CLOCK", "gauge", "SM clock (in MHz)."),
    ("DCGM_FI_DEV_MEM_CLOCK", "gauge", "Memory clock (in MHz)."),
    ("DCGM_FI_DEV_THERMAL_VIOLATION", "counter", "Time slowed by heat."),
    ("DCGM_FI_DEV_POWER_VIOLATION", "counter", "Time slowed by the power limit."),
    ("DCGM_FI_DEV_PCIE_REPLAY_COUNTER", "counter", "Repeated PCIe packets."),
    ("DCGM_FI_DEV_XID_ERRORS", "gauge", "The last Xid."),
    ("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", "counter", "Memory errors that ECC could not correct."),
    ("DCGM_FI_DEV_ROW_REMAP_FAILURE", "gauge", "Whether remapping rows has failed."),
    ("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", "gauge", "Part of the time in which matrix units worked."),
    ("DCGM_FI_PROF_DRAM_ACTIVE", "gauge", "Part of the time in which memory sent or received data."),
    ("DCGM_FI_PROF_PCIE_TX_BYTES", "gauge", "Bytes per second sent over PCIe."),
    ("DCGM_FI_PROF_PCIE_RX_BYTES", "gauge", "Bytes per second received over PCIe."),
)
"""Field, Prometheus type, help. Names: https://github.com/NVIDIA/dcgm-exporter/blob/main/etc/default-counters.csv and
https://docs.nvidia.com/datacenter/dcgm/latest/dcgm-api/dcgm-api-field-ids.html; the PROF ones from Volta on."""


@dataclass(frozen=True)
class Alert:
    """An alert rule.

    name, expression: Prometheus'. lasting: how long it has to hold. severity: warning or critical. summary: one line,
    with Prometheus' {{ $labels.x }} and {{ $value }}. command: what to type to see why.
    """

    name: str
    expression: str
    lasting: str
    severity: str
    summary: str
    command: str


@dataclass(frozen=True)
class Signals:
    """The expressions of one deployment. job, gpu_job: of its servers and of its hosts' dcgm-exporter."""

    name: str
    job: str
    gpu_job: str

    def gauge(self, field: str) -> str:
        """A gauge by its field of EngineSeries, under whichever name the engine has it."""
        return self._named(field, lambda name: f"{name}{self._of(self.job)}")

    def rate(self, field: str, window: str) -> str:
        """A counter's rate per second."""
        return self._named(field, lambda name: f"rate({name}_total{self._of(self.job)}[{window}])")

    def increase(self, field: str, window: str) -> str:
        """By how much a counter has grown."""
        return self._named(field, lambda name: f"increase({name}_total{self._of(self.job)}[{window}])")

    def quantile(self, field: str, share: float, window: str) -> str:
        """A quantile of a histogram, over all engines."""
        inner = self._named(field, lambda name: f"rate({name}_bucket{self._of(self.job)}[{window}])")
        return f"histogram_quantile({share:g}, sum by (le) ({inner}))"

    def gpu(self, metric: str) -> str:
        """A metric of dcgm-exporter."""
        return f"{metric}{self._of(self.gpu_job)}"

    @staticmethod
    def _of(job: str) -> str:
        return f'{{job="{job}"}}'

    @staticmethod
    def _named(field: str, form: Callable[[str], str]) -> str:
        told = [form(each.name) for each in metric_names().of(field)]
        return told[0] if len(told) == 1 else f"({' or '.join(told)})"


def signals_of(request: Request) -> Signals:
    """The expressions of the deployment that is exported."""
    return Signals(request.deployment.name, request.name, f"{request.name}-gpus")


SLOW_FIRST_TOKEN_SECONDS = 10
"""After this a person who waits for an answer to begin is gone; onecat.yaml knows no such limit, so it stands in the
rules as a number to be changed."""
HOT_CELSIUS = 83
"""Where data-centre cards slow themselves: V100's slowdown temperatures are 83 to 87 degrees."""


def alerts(signals: Signals, *, has_gpus: bool) -> tuple[Alert, ...]:
    """All alert rules of a deployment."""
    name = signals.name
    found = [
        Alert(
            "OnecatServerDown",
            f'up{{job="{signals.job}"}} == 0',
            "2m",
            "critical",
            "The server on {{ $labels.host }} does not answer",
            f"onecat status {name}; onecat logs {name}",
        ),
        Alert(
            "OnecatNothingGenerated",
            # Through the labels of a rate and of a gauge alike: one engine each.
            f"({signals.gauge('running')} > 0) and ({signals.rate('generation_tokens', '5m')} == 0)"
            f" and ({signals.rate('prompt_tokens', '5m')} == 0)",
            "5m",
            "critical",
            "{{ $value }} requests run on {{ $labels.host }} and no token comes: the engine hangs",
            f"onecat logs {name}; onecat diagnose FILE; onecat restart {name}",
        ),
        Alert(
            "OnecatRequestsWait",
            f"min_over_time({_bare(signals.gauge('waiting'))}[5m]) > 0",
            "10m",
            "warning",
            "At least {{ $value }} requests have waited on {{ $labels.host }} for 15 minutes",
            f"onecat top {name}",
        ),
        Alert(
            "OnecatKvCacheFull",
            f"{signals.gauge('kv_cache_usage')} > 0.95",
            "10m",
            "warning",
            "The KV cache on {{ $labels.host }} is {{ $value | humanizePercentage }} full",
            f"onecat top {name}; onecat plan",
        ),
        Alert(
            "OnecatPreemptions",
            f"{signals.increase('preemptions', '10m')} > 0",
            "10m",
            "warning",
            "Requests on {{ $labels.host }} lost their place in the KV cache and are computed anew",
            f"onecat top {name}; onecat plan",
        ),
        Alert(
            "OnecatSlowFirstToken",
            f"{signals.quantile('ttft', 0.99, '5m')} > {SLOW_FIRST_TOKEN_SECONDS}",
            "10m",
            "warning",
            "One request in a hundred waits {{ $value | humanizeDuration }} for its first token",
            f"onecat top {name}; onecat bench run {name}",
        ),
    ]
    return (*found, *_gpu_alerts(signals)) if has_gpus else tuple(found)


def _gpu_alerts(signals: Signals) -> tuple[Alert, ...]:
    name = signals.name
    where = "GPU {{ $labels.gpu }} of {{ $labels.host }}"
    slowed = f"rate({signals.gpu('DCGM_FI_DEV_THERMAL_VIOLATION')}[5m]) > 0"
    return (
        Alert(
            "OnecatGpuTelemetryDown",
            f'up{{job="{signals.gpu_job}"}} == 0',
            "10m",
            "warning",
            "dcgm-exporter on {{ $labels.host }} does not answer",
            "onecat doctor",
        ),
        Alert(
            "OnecatGpuHot",
            f"({signals.gpu('DCGM_FI_DEV_GPU_TEMP')} > {HOT_CELSIUS}) or ({slowed})",
            "5m",
            "warning",
            f"{where} is slowed by heat or about to be",
            f"onecat top {name}; onecat doctor",
        ),
        Alert(
            "OnecatGpuXid",
            _new_xid(signals, any_of=fatal_xids()),
            "0m",
            "critical",
            f"{where} reported Xid {{{{ $value }}}}: it works no more, or its data is at risk",
            "onecat doctor; onecat explain gpu.xid",
        ),
        Alert(
            "OnecatGpuXidOther",
            _new_xid(signals, none_of=fatal_xids()),
            "0m",
            "warning",
            f"{where} reported Xid {{{{ $value }}}}: mostly a fault of the program that used it",
            "onecat doctor; onecat explain gpu.xid",
        ),
        Alert(
            "OnecatGpuMemoryErrors",
            f"(increase({signals.gpu('DCGM_FI_DEV_ECC_DBE_VOL_TOTAL')}[1h]) > 0)"
            f" or ({signals.gpu('DCGM_FI_DEV_ROW_REMAP_FAILURE')} > 0)",
            "0m",
            "critical",
            f"{where} has memory errors that ECC cannot correct",
            "onecat doctor",
        ),
        Alert(
            "OnecatPcieReplays",
            f"increase({signals.gpu('DCGM_FI_DEV_PCIE_REPLAY_COUNTER')}[15m]) > 10",
            "15m",
            "warning",
            f"{where} repeats PCIe packets: the slot, the riser or the card's seat",
            "onecat doctor --load",
        ),
    )


def fatal_xids() -> tuple[int, ...]:
    """The Xids that knowledge/xids.yaml calls `fail` whatever the rest of their line says, which the exporter does not
    tell."""
    severities: dict[int, set[str]] = {}
    for row in xids():
        severities.setdefault(row.xid, set()).add(row.severity)
    return tuple(sorted(number for number, found in severities.items() if found == {"fail"}))


def _new_xid(signals: Signals, *, any_of: Sequence[int] = (), none_of: Sequence[int] = ()) -> str:
    """The last Xid, where it is one of these, or none of those, and has come in the last quarter of an hour.

    The value stays until the driver is loaded anew: what counts is that it changed.
    """
    metric = signals.gpu("DCGM_FI_DEV_XID_ERRORS")
    chosen = f"({' or '.join(f'{metric} == {number}' for number in any_of)})" if any_of else f"({metric} > 0)"
    but = "".join(f" and ({metric} != {number})" for number in none_of)
    return f"{chosen}{but} and (changes({metric}[15m]) > 0)"


def _bare(expression: str) -> str:
    """A selector for a range; the field must have one name."""
    assert not expression.startswith("("), expression
    return expression
