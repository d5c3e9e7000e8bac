"""How many requests a server works on, by its own metrics."""

from __future__ import annotations

import re

# https://docs.vllm.ai/en/latest/usage/metrics.html
_GAUGES = re.compile(r"^vllm:num_requests_(?:running|waiting)(?:\{[^}]*\})? ([0-9.e+]+)$", re.MULTILINE)


def requests_in_flight(url: str) -> float | None:
    """Running and waiting requests of the server at `url`; None when it does not tell."""
    import httpx

    try:
        answer = httpx.get(f"{url}/metrics", timeout=2.0, trust_env=False)
    except httpx.HTTPError:
        return None
    return counted(answer.text) if answer.status_code == 200 else None


def counted(metrics: str) -> float | None:
    """The sum of vLLM's gauges in a text of metrics; None when it has none of them."""
    values = [float(value) for value in _GAUGES.findall(metrics)]
    return sum(values) if values else None
