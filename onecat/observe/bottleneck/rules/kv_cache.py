"""A KV cache that is too small for the requests: they are put off, or begun anew."""

from __future__ import annotations

from onecat.observe.bottleneck.records import Reading
from onecat.observe.bottleneck.window import Window
from onecat.observe.bottleneck.wording import count, load_evidence, percent

RANK = 2
SOURCE = ("https://docs.vllm.ai/en/stable/configuration/optimization/#preemption",)
FULL = 0.95
"""Used share from which on a waiting request hardly finds room: a block for each running request must stay free."""
ADVICE = (
    "give the cache more memory: raise --gpu-memory-utilization, or share the weights by --tensor-parallel-size",
    "or need less of it: lower --max-num-seqs or --max-model-len, or --kv-cache-dtype fp8 where the GPU can",
    "onecat plan shows what the cache holds",
)


def rule(window: Window) -> Reading | None:
    preemptions = window.rates.preemptions if window.rates else None
    usage = window.kv_cache_usage
    evidence = load_evidence(window)
    if preemptions:
        seconds = window.rates.seconds if window.rates else 0.0
        sentence = f"KV cache: {count(preemptions, 'preemption')} in {seconds:.0f} s, requests are computed anew"
        confidence = "high" if usage is None or usage >= FULL - 0.15 or preemptions > 1 else "medium"
        return Reading("kv-cache", confidence, sentence, evidence, ADVICE, SOURCE)  # type: ignore[arg-type]
    if usage is not None and usage >= FULL and (window.waiting or 0) >= 1:
        sentence = f"KV cache: {percent(usage)} used, {count(window.waiting or 0, 'request')} wait for room"
        return Reading("kv-cache", "high", sentence, evidence, ADVICE, SOURCE)
    return None
