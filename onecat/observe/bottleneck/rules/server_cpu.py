"""One thread of the server that has a core to itself while the GPUs wait for it."""

from __future__ import annotations

from onecat.observe.bottleneck.records import Reading
from onecat.observe.bottleneck.window import Window, median
from onecat.observe.bottleneck.wording import count, load_evidence
from onecat.observe.metrics import ProcessSample

RANK = 4
SOURCE = ("https://docs.vllm.ai/en/stable/configuration/optimization/#cpu-resources-for-gpu-deployments",)
FULL_CORE = 90
"""Percent of one core from which on a thread counts as busy all the time: sampling takes some ticks away."""
UNBUSY_GPU = 80
"""GPUs above this utilisation are not waiting for anybody."""
STARVED = 60
"""Below this they wait a good part of the time."""
SWAMPED = 95
"""Percent of all cores from which on the whole host has no more to give."""


def rule(window: Window) -> Reading | None:
    if not window.gpus or not window.running or window.utilization is None or window.utilization >= UNBUSY_GPU:
        return None
    busiest = _busiest(window)
    evidence = load_evidence(window)
    if busiest is not None and (busiest.busiest_thread_percent or 0) >= FULL_CORE:
        thread = f"a thread of {busiest.name} (pid {busiest.pid}) uses {busiest.busiest_thread_percent:.0f} % of a core"
        return Reading(
            "server-cpu",
            "high" if window.utilization < STARVED else "medium",
            f"CPU of the server: {thread}, the GPUs wait for it",
            (thread, *evidence),
            (
                "a core with a higher clock, and the governor: cpupower frequency-set -g performance",
                "fewer, larger steps: CUDA graphs (no --enforce-eager), --async-scheduling; --api-server-count for"
                " tokenising",
            ),
            SOURCE,
        )
    machine_percent = median(each.machine.cpu_percent for each in window.samples if each.machine)
    if machine_percent is not None and machine_percent >= SWAMPED:
        cores = next((each.machine.cores for each in window.samples if each.machine and each.machine.cores), None)
        told = f"all {count(cores, 'core')}" if cores else "all cores"
        return Reading(
            "server-cpu",
            "high" if window.utilization < STARVED else "medium",
            f"CPU of the host: {told} are busy ({machine_percent:.0f} %), the GPUs wait",
            (f"CPU {machine_percent:.0f} %", *evidence),
            ("what else runs there? top -o %CPU; give the server cores of its own",),
            SOURCE,
        )
    return None


def _busiest(window: Window) -> ProcessSample | None:
    """The server's process whose busiest thread had most to do, by the middle of the samples."""
    by_pid: dict[int, list[ProcessSample]] = {}
    for sample in window.samples:
        for process in (sample.machine.processes if sample.machine else None) or ():
            if process.busiest_thread_percent is not None:
                by_pid.setdefault(process.pid, []).append(process)
    middles = [
        sorted(each, key=lambda one: one.busiest_thread_percent or 0)[len(each) // 2] for each in by_pid.values()
    ]
    return max(middles, key=lambda each: each.busiest_thread_percent or 0, default=None)
