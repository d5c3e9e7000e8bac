"""Numbers as evidence for a person."""

from __future__ import annotations

from onecat.observe.bottleneck.window import Window


def percent(share: float) -> str:
    """0.873 -> 87 %; 0.002 -> 0.2 %."""
    return f"{share * 100:.1f} %" if 0 < share < 0.01 else f"{share * 100:.0f} %"


def count(number: float, what: str) -> str:
    """(1, "request") -> 1 request; (3, "request") -> 3 requests."""
    return f"{number:.0f} {what}" + ("" if round(number) == 1 else "s")


def plural(names: list[str]) -> str:
    """GPU 0, 1 and 2 from their numbers."""
    if len(names) == 1:
        return names[0]
    return f"{', '.join(names[:-1])} and {names[-1]}"


def load_evidence(window: Window) -> tuple[str, ...]:
    """What every reading of a load tells: utilisation, memory, power, requests, tokens."""
    told = []
    if window.utilization is not None:
        told.append(f"GPU busy {window.utilization:.0f} %")
    if window.memory_utilization is not None:
        told.append(f"memory busy {window.memory_utilization:.0f} %")
    if window.power_share is not None:
        told.append(f"power {percent(window.power_share)} of its limit")
    if window.running is not None:
        told.append(f"{window.running:.0f} running, {window.waiting or 0:.0f} waiting")
    if window.kv_cache_usage is not None:
        told.append(f"KV cache {percent(window.kv_cache_usage)}")
    rates = window.rates
    if rates and rates.prompt_tokens is not None and rates.generation_tokens is not None:
        told.append(f"{rates.prompt_tokens:.0f} prompt + {rates.generation_tokens:.0f} generated tokens/s")
    return tuple(told)
