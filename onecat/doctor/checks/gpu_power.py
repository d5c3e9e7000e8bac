"""Heat and power of the GPUs."""

from __future__ import annotations

from collections.abc import Iterator

from onecat.doctor import requirements
from onecat.doctor.context import Context
from onecat.doctor.hardware import place, subject
from onecat.doctor.registry import Verdict, check

NVML = "https://docs.nvidia.com/deploy/nvml-api/group__nvmlDeviceQueries.html"

SLOWDOWN_MARGIN_CELSIUS = 5
"""How near to the slowdown temperature a GPU may be before onecat warns: onecat's own choice."""


@check(
    "gpu.temperature",
    title="The GPUs are cool enough",
    why="At its slowdown temperature a GPU halves its clock and more. Passive cards need the airflow of a server.",
    fix=("check fans, filters and airflow", "nvidia-smi -q -d TEMPERATURE"),
    source=(NVML,),
    requires=(requirements.gpus,),
)
def gpu_temperature(context: Context) -> Iterator[Verdict]:
    """The temperature now against the one at which the card begins to slow itself, both as NVML reports them."""
    for gpu in context.gpus:
        now, limit = gpu.temperature_celsius, gpu.temperature_slowdown_celsius
        if now is None or limit is None:
            missing = "temperature" if now is None else "slowdown temperature"
            yield Verdict("skip", f"Not checked: the {missing} is not known", subject(gpu))
            continue
        evidence = (f"{place(gpu)}: {now} °C, slows down at {limit} °C",)
        fix = ("check fans, filters and airflow", f"watch it: nvidia-smi -q -d TEMPERATURE -i {gpu.index}")
        if now >= limit:
            yield Verdict("fail", f"{now} °C: the GPU slows itself down", subject(gpu), evidence, fix=fix)
        elif now >= limit - SLOWDOWN_MARGIN_CELSIUS:
            yield Verdict("warn", f"{now} °C: {limit - now} °C below its slowdown", subject(gpu), evidence, fix=fix)
        else:
            yield Verdict("pass", f"{now} °C", subject(gpu), evidence)


@check(
    "gpu.power-limit",
    title="The GPUs may use the power they are made for",
    why="A lower limit costs speed where the GPU computes at full load (long prompts, many requests); decoding for few "
    "users it hardly touches.",
    fix=("nvidia-smi -q -d POWER", "sudo nvidia-smi -i N -pl WATTS"),
    source=(NVML,),
    requires=(requirements.gpus,),
)
def gpu_power_limit(context: Context) -> Iterator[Verdict]:
    """The power limit that is set against the default of the card."""
    for gpu in context.gpus:
        now, default = gpu.power_limit_watts, gpu.power_limit_default_watts
        if now is None or default is None:
            yield Verdict("skip", "Not checked: the power limit or its default is not known", subject(gpu))
        elif now < default:
            yield Verdict(
                "info",
                f"The power limit is {now:.0f} W, the default {default:.0f} W",
                subject(gpu),
                (f"{place(gpu)}: power limit {now:.0f} W, default {default:.0f} W",),
                fix=(f"if it is not meant: sudo nvidia-smi -i {gpu.index} -pl {default:.0f}",),
            )
        else:
            yield Verdict("pass", f"{now:.0f} W", subject(gpu))
