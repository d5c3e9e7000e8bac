"""A PCIe link that carries as much as it can."""

from __future__ import annotations

from onecat.knowledge.pcie import pcie_generation
from onecat.observe.bottleneck.records import Reading
from onecat.observe.bottleneck.window import GpuWindow, Window
from onecat.observe.bottleneck.wording import load_evidence, percent
from onecat.observe.metrics import GpuSample

RANK = 3
SOURCE = (
    "https://docs.nvidia.com/deploy/nvml-api/group__nvmlDeviceQueries.html",  # nvmlDeviceGetPcieThroughput: over 20 ms
    "https://forums.developer.nvidia.com/t/prevent-pcie-from-reducing-gen/72537",  # at rest the link is slower
)
REACHABLE = 0.8
"""Of a link's bytes per second, what large copies reach: 12 to 13 of 15.75 GB/s on 3.0 x16 (packets have headers)."""
MUCH, MOST = 0.4, 0.6
"""Parts of the reachable rate. Between computing and communicating a 20 ms mean cannot be at the full rate: who is at
40 % spends about that part of the time on the link, at 60 % most of it."""


def rule(window: Window) -> Reading | None:
    loaded = [(share, gpu) for gpu in window.gpus if (share := _share(gpu)) is not None and share >= MUCH]
    if not loaded:
        return None
    share, gpu = max(loaded, key=lambda each: each[0])
    rate = max(gpu.median("pcie_tx") or 0, gpu.median("pcie_rx") or 0) / 1e9
    link = f"{gpu.last.pcie_generation}.0 x{gpu.last.pcie_width}"
    sentence = f"PCIe: GPU {gpu.index} moves {rate:.1f} GB/s over {link}, {percent(share)} of what it can carry"
    advice = []
    narrow = _narrow(gpu.last)
    if narrow:
        advice.append(f"the link is slower than it could be ({narrow}): onecat doctor")
    if len(window.gpus) > 1:
        advice.append("tensor parallel sends activations twice a layer: --pipeline-parallel-size or replicas send less")
        advice.append("NCCL_DEBUG=INFO tells whether GPUs reach each other (P2P) or go through the host's memory (SHM)")
    else:
        advice.append("is something moved to and from the host's memory: --cpu-offload-gb, a KV connector?")
    evidence = (
        *(_evidence(each) for _, each in loaded),
        *load_evidence(window),
    )
    return Reading("pcie", "high" if share >= MOST else "medium", sentence, evidence, tuple(advice), SOURCE)


def _share(gpu: GpuWindow) -> float | None:
    """The median of the busier direction, of what the link can carry as it is now."""
    rates = [each for name in ("pcie_tx", "pcie_rx") if (each := gpu.median(name)) is not None]
    generation, width = pcie_generation(gpu.last.pcie_generation), gpu.last.pcie_width
    if not rates or generation is None or not width:
        return None
    return max(rates) / (generation.lane_bytes_per_second * width * REACHABLE)


def _narrow(gpu: GpuSample) -> str | None:
    now = (gpu.pcie_generation, gpu.pcie_width)
    most = (gpu.pcie_generation_max, gpu.pcie_width_max)
    if None in now or None in most or now == most:
        return None
    return f"{now[0]}.0 x{now[1]}, the most is {most[0]}.0 x{most[1]}"


def _evidence(gpu: GpuWindow) -> str:
    sent, received = (gpu.median("pcie_tx") or 0) / 1e9, (gpu.median("pcie_rx") or 0) / 1e9
    return f"GPU {gpu.index}: sends {sent:.1f}, receives {received:.1f} GB/s over PCIe"
