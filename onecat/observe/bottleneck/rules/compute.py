"""Arithmetic: GPUs that work all the time without waiting much for their memory, or a server without GPUs."""

from __future__ import annotations

from onecat.observe.bottleneck.records import Reading
from onecat.observe.bottleneck.rules.memory_bandwidth import BUSY_GPU, MUCH_MEMORY
from onecat.observe.bottleneck.window import Window, median
from onecat.observe.bottleneck.wording import count, load_evidence, percent

RANK = 5
SOURCE = (
    "https://docs.nvidia.com/deploy/nvml-api/structnvmlUtilization__t.html",
    "https://docs.nvidia.com/deeplearning/performance/dl-performance-gpu-background/index.html",
)
MUCH_POWER = 0.7
"""Of the power limit: matrix units at work draw more than anything else a card does."""
PROMPTS_PER_TOKEN = 8
"""Prompt tokens for each generated one from which on most of the time goes into prompts, which are computed many at
once: a step of decoding reads all weights for one token of each request, a prefill reads them once for thousands."""
BUSY_CORES = 85
"""Percent of its cores that a server without GPUs uses when it computes all the time."""
ADVICE = (
    "fewer tokens to compute: --enable-prefix-caching, shorter prompts",
    "more arithmetic: another GPU, or a weight format that this GPU multiplies faster",
)


def rule(window: Window) -> Reading | None:
    return _on_gpus(window) if window.gpus else _on_cores(window)


def _on_gpus(window: Window) -> Reading | None:
    if window.utilization is None or window.utilization < BUSY_GPU or window.memory_utilization is None:
        return None
    if window.memory_utilization >= MUCH_MEMORY or window.serves_nobody:
        return None
    power, prompts = window.power_share, _prompts_per_token(window)
    hot = power is not None and power >= MUCH_POWER
    prefill = prompts is not None and prompts >= PROMPTS_PER_TOKEN
    if not hot and not prefill:
        return None
    because = "prompts are being computed" if prefill else "the matrix units draw much power"
    sentence = (
        f"compute: GPUs {window.utilization:.0f} % busy, their memory {window.memory_utilization:.0f} %, {because}"
    )
    return Reading("compute", "high" if hot and prefill else "medium", sentence, load_evidence(window), ADVICE, SOURCE)


def _on_cores(window: Window) -> Reading | None:
    """A server that computes on the CPU; its memory's bandwidth cannot be told from its arithmetic from outside."""
    if not window.running:
        return None
    used = median(
        sum(process.cpu_percent or 0 for process in each.machine.processes) / each.machine.cores
        for each in window.samples
        if each.machine and each.machine.processes and each.machine.cores
    )
    if used is None:
        used = median(each.machine.cpu_percent for each in window.samples if each.machine)
    if used is None or used < BUSY_CORES:
        return None
    cores = next((each.machine.cores for each in window.samples if each.machine and each.machine.cores), 0)
    return Reading(
        "compute",
        "medium",
        f"compute: the server uses {percent(used / 100)} of {count(cores, 'core')} (perhaps waiting for memory)",
        (f"CPU {used:.0f} % of {count(cores, 'core')}", *load_evidence(window)),
        ("more cores or a machine with more memory channels; VLLM_CPU_OMP_THREADS_BIND chooses the cores",),
        ("https://docs.vllm.ai/en/stable/getting_started/installation/cpu/",),
    )


def _prompts_per_token(window: Window) -> float | None:
    rates = window.rates
    if rates is None or not rates.prompt_tokens or rates.generation_tokens is None:
        return None
    return rates.prompt_tokens / max(rates.generation_tokens, 1e-9)
