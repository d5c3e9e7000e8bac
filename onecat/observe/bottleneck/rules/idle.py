"""Nothing to do."""

from __future__ import annotations

from onecat.observe.bottleneck.records import Reading
from onecat.observe.bottleneck.window import Window
from onecat.observe.bottleneck.wording import load_evidence

RANK = 0
IDLE_PERCENT = 10
"""Below this a GPU that serves nobody stays: monitoring and drivers' own work make a few percent."""
IDLE_REQUESTS = 0.05
"""Requests in flight on average; less than that in a window is nobody."""


def rule(window: Window) -> Reading | None:
    if (window.utilization or 0) >= IDLE_PERCENT:
        return None
    known = [each.engine for each in window.samples if each.engine is not None and each.engine.running is not None]
    if known:
        in_flight = sum((each.running or 0) + (each.waiting or 0) for each in known) / len(known)
        done = window.rates.requests if window.rates else None
        if in_flight > IDLE_REQUESTS or (done or 0) > 0 or (window.rates and window.rates.generation_tokens):
            return None
        return Reading("idle", "high", "idle: no requests", load_evidence(window))
    if window.utilization is None:
        return None
    return Reading("idle", "medium", "idle: the GPUs do nothing", load_evidence(window))
