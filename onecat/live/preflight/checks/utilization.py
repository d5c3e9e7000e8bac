"""What the GPUs do under load."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence

from onecat.doctor import Verdict, check
from onecat.doctor.units import GIB
from onecat.live.preflight.checks.concurrency import LEAST_SAMPLES, under_load
from onecat.live.preflight.look import Look, needs
from onecat.live.preflight.observing.load import LoadSeen
from onecat.observe.bottleneck import Reading, read_bottleneck
from onecat.observe.metrics import GpuSample


@check(
    "preflight.utilization",
    title="The GPUs are busy under load, and nothing slows them down",
    why="A GPU that idles while requests wait is held back by something else; one that throttles serves slower with "
    "each minute.",
    fix=("onecat top shows it live, with what holds the server back",),
    source=("https://docs.nvidia.com/deploy/nvml-api/group__nvmlDeviceQueries.html",),
    requires=needs(LoadSeen),
    group="load",
    place=2,
)
def utilization(look: Look) -> Iterator[Verdict]:
    """Samples of each GPU while the load of preflight.concurrency ran: the share of time in which it worked, its
    memory, its clocks, and what the driver says why they are low. Limit: preflight.least_utilization."""
    seen = look.of(LoadSeen)
    if look.profile.hardware.accelerator == "none":
        yield Verdict("skip", f"Not checked: the profile {look.profile.name} uses no GPU", evidence=under_load(seen))
        return
    if len(seen.samples) < LEAST_SAMPLES:
        why = seen.no_samples or f"the load was over after {seen.block.seconds:.1f} s: too short to watch"
        yield Verdict("skip", f"Not checked: {why}")
        return
    by_gpu: dict[int, list[GpuSample]] = {}
    for sample in seen.samples:
        for gpu in sample.gpus or ():
            by_gpu.setdefault(gpu.index, []).append(gpu)
    if not by_gpu:
        yield Verdict("skip", "Not checked: no GPU was seen while the load ran", evidence=under_load(seen))
        return
    for index, samples in sorted(by_gpu.items()):
        yield _of_gpu(look, index, samples)
    reading = read_bottleneck(seen.samples)
    if (throttled := _throttled(reading)) is not None:
        fix = reading.advice or ("under load:", f"onecat top {look.name}{look.host_option}")
        yield Verdict("warn", throttled, evidence=reading.evidence, fix=fix, source=reading.source)


def _of_gpu(look: Look, index: int, samples: Sequence[GpuSample]) -> Verdict:
    subject, limit = f"GPU {index}", look.limits.least_utilization
    used = [each.utilization_percent for each in samples if each.utilization_percent is not None]
    if not used:
        return Verdict("skip", "Not checked: the driver does not tell how busy it is", subject)
    busy = statistics.median(used)
    last = samples[-1]
    memory = None if last.memory_used is None else f"{last.memory_used / GIB:.1f} GiB in use"
    clocks = [each.sm_clock_mhz for each in samples if each.sm_clock_mhz is not None]
    clock = f"{min(clocks)} to {max(clocks)} MHz of {last.sm_clock_max_mhz}" if clocks else None
    evidence = tuple(each for each in (memory, clock) if each)
    told = f"{busy:.0f} % busy under load ({len(used)} samples); limit {limit} %"
    if busy >= limit:
        return Verdict("pass", told, subject, evidence)
    fix = ("under load, to see what holds it back:", f"onecat top {look.name}{look.host_option}")
    return Verdict("warn", told, subject, evidence or (told,), fix=fix)


def _throttled(reading: Reading) -> str | None:
    """What is said of clocks that are held down, where they are."""
    if reading.bottleneck == "throttling":
        return reading.sentence
    return next((sentence for kind, sentence in reading.also if kind == "throttling"), None)
