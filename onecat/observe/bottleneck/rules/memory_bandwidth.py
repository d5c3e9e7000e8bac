"""GPUs that wait for their own memory: decoding reads all weights and caches for one token of each request."""

from __future__ import annotations

from onecat.observe.bottleneck.records import Reading
from onecat.observe.bottleneck.window import Window
from onecat.observe.bottleneck.wording import load_evidence

RANK = 7
SOURCE = (
    "https://docs.nvidia.com/deploy/nvml-api/structnvmlUtilization__t.html",
    "https://docs.nvidia.com/deeplearning/performance/dl-performance-gpu-background/index.html",
)
BUSY_GPU = 85
"""Percent of the time in which some kernel has to run for the GPU itself to be what holds the server back."""
MUCH_MEMORY = 50
"""Percent of the time with memory traffic that computing does not reach, but decoding does."""
MOST_MEMORY = 65
"""From here on it is near what any kernel reaches."""
ADVICE = (
    "more requests at once cost little: raise --max-num-seqs where latency allows, each step reads the weights once",
    "fewer bytes: weights in FP8 or NVFP4, --kv-cache-dtype fp8 where the GPU can; speculative decoding",
)


def rule(window: Window) -> Reading | None:
    if window.utilization is None or window.utilization < BUSY_GPU or window.serves_nobody:
        return None
    memory = window.memory_utilization
    if memory is None or memory < MUCH_MEMORY:
        return None
    sentence = f"memory bandwidth: GPUs {window.utilization:.0f} % busy, their memory {memory:.0f} %"
    return Reading(
        "memory-bandwidth",
        "high" if memory >= MOST_MEMORY else "medium",
        sentence,
        load_evidence(window),
        ADVICE,
        SOURCE,
    )
