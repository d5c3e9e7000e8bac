"""GPUs that run below their clocks because of heat, the power supply, or their power limit."""

from __future__ import annotations

from onecat.observe.bottleneck.records import Reading
from onecat.observe.bottleneck.window import GpuWindow, Window
from onecat.observe.bottleneck.wording import percent, plural
from onecat.observe.metrics import GpuSample

RANK = 1
SOURCE = ("https://docs.nvidia.com/deploy/nvml-api/group__nvmlClocksEventReasons.html",)
SLOWDOWN, POWER_CAP, SOFTWARE_HEAT, HARDWARE_HEAT, POWER_BRAKE = 0x8, 0x4, 0x20, 0x40, 0x80
OFTEN = 0.3
"""In this part of the samples a reason has to stand: bits of one sample come with every change of state."""
LOW_CLOCK = 0.85
"""A card that its power limit holds below this part of its highest clock loses speed that a person notices; dense
computing near the limit, a little below the highest clock, is how cards are built to run."""
LOWERED = 0.95
"""Of the default power limit: below this it was lowered on purpose."""

_HEAT_ADVICE = (
    "look at fans, dust and air flow, and at the room: cards without fans (Tesla) need a server's",
    "nvidia-smi -q -d TEMPERATURE,PERFORMANCE",
)
_CAUSES: tuple[tuple[int, str, tuple[str, ...]], ...] = (
    (POWER_BRAKE, "the power supply asks for less (power brake)", ("check power cables and the supply's capacity",)),
    (HARDWARE_HEAT, "heat (hardware slowdown)", _HEAT_ADVICE),
    (SOFTWARE_HEAT, "heat", _HEAT_ADVICE),
    (SLOWDOWN, "the hardware's slowdown (heat or power)", ("nvidia-smi -q -d PERFORMANCE,POWER,TEMPERATURE",)),
)


def rule(window: Window) -> Reading | None:
    for bit, words, advice in _CAUSES:
        slowed = [gpu for gpu in window.gpus if gpu.share(lambda each, bit=bit: _stands(each, bit)) >= OFTEN]  # type: ignore[misc]
        if slowed:
            where = plural([str(gpu.index) for gpu in slowed])
            evidence = tuple(each for gpu in slowed for each in _evidence(gpu, bit))
            return Reading("throttling", "high", f"throttling: GPU {where} slowed by {words}", evidence, advice, SOURCE)
    return _power_limit(window)


def _power_limit(window: Window) -> Reading | None:
    held = [
        gpu
        for gpu in window.gpus
        if gpu.is_busy and gpu.share(lambda each: _stands(each, POWER_CAP)) >= OFTEN and (_clock(gpu) or 1) < LOW_CLOCK
    ]
    if not held:
        return None
    where = plural([str(gpu.index) for gpu in held])
    clock = min(_clock(gpu) or 1 for gpu in held)
    lowered = [gpu for gpu in held if _is_lowered(gpu)]
    advice = "nvidia-smi -pl WATTS raises the limit to the default again: nvidia-smi -q -d POWER"
    if not lowered:
        advice = "the limit is the card's default: dense computing may need all of it"
    return Reading(
        "throttling",
        "high" if lowered else "low",
        f"throttling: power limit holds GPU {where} at {percent(clock)} of the highest clock",
        tuple(each for gpu in held for each in _evidence(gpu, POWER_CAP)),
        (advice,),
        SOURCE,
    )


def _is_lowered(gpu: GpuWindow) -> bool:
    """Whether somebody has set the power limit below the card's default."""
    limit, usual = gpu.last.power_limit_watts, gpu.last.power_limit_default_watts
    return limit is not None and usual is not None and limit < LOWERED * usual


def _stands(gpu: GpuSample, bit: int) -> bool:
    return bool((gpu.event_reasons or 0) & bit)


def _clock(gpu: GpuWindow) -> float | None:
    now, most = gpu.median("sm_clock_mhz"), gpu.median("sm_clock_max_mhz")
    return now / most if now is not None and most else None


def _evidence(gpu: GpuWindow, bit: int) -> list[str]:
    told = [
        f"GPU {gpu.index}: reason 0x{bit:x} in {percent(gpu.share(lambda each: _stands(each, bit)))} of the samples"
    ]
    now, most = gpu.median("sm_clock_mhz"), gpu.median("sm_clock_max_mhz")
    if now is not None and most is not None:
        told.append(f"SM clock {now:.0f} of {most:.0f} MHz")
    if (celsius := gpu.median("temperature_celsius")) is not None:
        told.append(f"{celsius:.0f} °C")
    if (power := gpu.median("power_watts")) is not None and (limit := gpu.median("power_limit_watts")) is not None:
        told.append(f"{power:.0f} of {limit:.0f} W")
    return told
