"""Requests that wait although there is room for them: the scheduler may not run more at once."""

from __future__ import annotations

from onecat.observe.bottleneck.records import Reading
from onecat.observe.bottleneck.window import Window
from onecat.observe.bottleneck.wording import count, load_evidence, percent

RANK = 6
SOURCE = ("https://docs.vllm.ai/en/stable/configuration/optimization/",)
ROOM = 0.85
"""Used share of the KV cache up to which a waiting request would find room."""
MOSTLY = 0.8
"""In this part of the samples somebody has to wait: a burst that is gone at once is no bottleneck."""
HELD = 0.6
"""In this part of the samples as many run as ever (or one less, between two) when a limit holds them."""


def rule(window: Window) -> Reading | None:
    engines = [each.engine for each in window.samples if each.engine and each.engine.waiting is not None]
    if not engines or sum((each.waiting or 0) >= 1 for each in engines) / len(engines) < MOSTLY:
        return None
    usage = window.kv_cache_usage
    if usage is not None and usage >= ROOM:
        return None
    running = [each.running or 0 for each in engines]
    held = max(running) > 0 and sum(each >= max(running) - 1 for each in running) / len(running) >= HELD
    waiting = window.waiting or 0
    room = f", KV cache only {percent(usage)} used" if usage is not None else ""
    sentence = f"queue: {count(waiting, 'request')} waiting, {window.running or 0:.0f} running{room}"
    evidence = [f"{min(running):.0f} to {max(running):.0f} running", *load_evidence(window)]
    queue = window.rates.queue if window.rates else None
    if queue is not None:
        evidence.append(f"queue time {queue.p50:.1f} s (p50), {queue.p99:.1f} s (p99)")
    advice = (
        f"raise --max-num-seqs above {max(running):.0f} while the KV cache has room and latency allows"
        if held
        else "raise --max-num-batched-tokens: prompts wait for their turn in a step",
        "or send less: a limit in front, more replicas",
    )
    return Reading("queue", "high" if held else "medium", sentence, tuple(evidence), advice, SOURCE)
