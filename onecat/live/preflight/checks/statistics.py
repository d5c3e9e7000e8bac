"""The engine's statistics."""

from __future__ import annotations

from collections.abc import Iterator

from onecat.doctor import Verdict, check
from onecat.live.preflight.look import Look, needs
from onecat.live.preflight.observing.health import Health

_OFF = "--disable-log-stats"


@check(
    "preflight.statistics",
    title="The engine keeps its statistics",
    why="Without them nobody sees the queue, the KV cache or latencies: top, canary releases and alerts are blind.",
    fix=("take disable-log-stats out of serve in onecat.yaml", "onecat up"),
    source=("https://docs.vllm.ai/en/latest/usage/metrics.html",),
    requires=needs(Health),
    group="server",
    place=3,
)
def statistics(look: Look) -> Iterator[Verdict]:
    """The flag in the server's arguments, and how many of vLLM's series /metrics has."""
    seen = look.of(Health)
    fix = ("take disable-log-stats out of serve in onecat.yaml", "onecat up")
    if _OFF in look.plan.server_args:
        yield Verdict("warn", "They are switched off", evidence=(f"{_OFF} is among its arguments",), fix=fix)
    elif seen.health_status is None:
        yield Verdict("skip", "Not checked: the server does not answer")
    elif not seen.metrics:
        told = "/metrics does not answer" if seen.metrics is None else "/metrics has none of vLLM's series"
        yield Verdict("warn", told, evidence=(f"{seen.url}/metrics",), fix=fix)
    else:
        yield Verdict("pass", f"/metrics has {seen.metrics} of vLLM's series")
