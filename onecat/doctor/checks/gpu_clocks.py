"""The clocks of the GPUs, and what lowers them."""

from __future__ import annotations

from collections.abc import Iterator

from onecat.doctor import requirements
from onecat.doctor.context import Context
from onecat.doctor.hardware import place, subject
from onecat.doctor.registry import Verdict, check
from onecat.facts import Gpu
from onecat.knowledge.hardware import gpu_model

EVENTS = "https://docs.nvidia.com/deploy/nvml-api/group__nvmlClocksEventReasons.html"
NVML = "https://docs.nvidia.com/deploy/nvml-api/group__nvmlDeviceQueries.html"

_SEVERE_EVENTS = {0x40: "slowed down by heat (hardware)", 0x80: "slowed down by the power brake"}
_MILD_EVENTS = {0x20: "slowed down by heat (software)", 0x8: "slowed down by the hardware"}


@check(
    "gpu.slowdown",
    title="Nothing slows the GPU down",
    why="Heat and a power brake halve the clock and more; tokens per second fall with it.",
    fix=("improve the cooling: passive cards need the airflow of a server", "check the power cables"),
    source=(EVENTS,),
    requires=(requirements.gpus,),
)
def gpu_slowdown(context: Context) -> Iterator[Verdict]:
    """NVML's clock event reasons, now and while the link was measured (--load).

    Idle, set clocks and the power limit at full load are no fault.
    """
    for gpu in context.gpus:
        yield _slowdown(gpu, gpu.event_reasons, "")
        for load in context.nvidia.loads:
            if load.gpu == gpu.index and load.event_reasons is not None:
                yield _slowdown(gpu, load.event_reasons, " under load")


def _slowdown(gpu: Gpu, reasons: int | None, when: str) -> Verdict:
    name = f"{subject(gpu)}{when}"
    if reasons is None:
        return Verdict("skip", "Not checked: the clock event reasons are not known", name)
    severe = [text for bit, text in _SEVERE_EVENTS.items() if reasons & bit]
    mild = [text for bit, text in _MILD_EVENTS.items() if reasons & bit]
    if not severe and not mild:
        return Verdict("pass", "Nothing slows it down", name, (f"event reasons: {reasons:#x}",))
    temperature = f", {gpu.temperature_celsius} °C" if gpu.temperature_celsius is not None else ""
    return Verdict(
        "fail" if severe else "warn",
        f"The GPU is {' and '.join(severe or mild)}",
        name,
        (f"{place(gpu)}: event reasons {reasons:#x}{temperature}",),
        fix=("check fans and airflow", "check the power cables", f"nvidia-smi -q -d PERFORMANCE -i {gpu.index}"),
    )


@check(
    "gpu.memory-clock",
    title="The memory clock of the card is the rated one",
    why="Reading the weights from memory sets the speed of decoding.",
    fix=("nvidia-smi -q -d CLOCK",),
    source=("https://images.nvidia.com/content/technologies/volta/pdf/volta-v100-datasheet-update-us-1165301-r5.pdf",),
    requires=(requirements.gpus,),
)
def gpu_memory_clock(context: Context) -> Iterator[Verdict]:
    """The highest memory clock that NVML allows against the rated one. The clock of an idle GPU says nothing."""
    for gpu in context.gpus:
        model = gpu_model(gpu.name)
        if model is None or model.memory_clock_mhz is None or gpu.memory_clock_max_mhz is None:
            what = "highest" if gpu.memory_clock_max_mhz is None else "rated"
            yield Verdict("skip", f"Not checked: the {what} memory clock of {gpu.name} is not known", subject(gpu))
            continue
        evidence = (f"highest: {gpu.memory_clock_max_mhz} MHz", f"rated: {model.memory_clock_mhz} MHz")
        if gpu.memory_clock_max_mhz == model.memory_clock_mhz:
            yield Verdict("pass", f"{model.memory_clock_mhz} MHz", subject(gpu), evidence)
        else:
            yield Verdict(
                "info",
                f"The memory clock goes to {gpu.memory_clock_max_mhz} MHz, rated are {model.memory_clock_mhz} MHz",
                subject(gpu),
                evidence,
                source=model.source,
            )


@check(
    "gpu.application-clocks",
    title="No clock was set lower than the card's default",
    why="Application clocks that someone lowered stay until they are reset or the driver lets go of the GPU, and every "
    "program runs slower for it. The clock of an idle GPU says nothing.",
    fix=("sudo nvidia-smi -i N -rac", "nvidia-smi -q -d CLOCK"),
    source=(NVML,),
    requires=(requirements.gpus,),
)
def gpu_application_clocks(context: Context) -> Iterator[Verdict]:
    """The application clocks of graphics and memory against the default and the highest. Newer cards have none."""
    for gpu in context.gpus:
        pairs = (
            ("graphics", gpu.graphics_clock_application_mhz, gpu.graphics_clock_application_default_mhz, "default"),
            ("memory", gpu.memory_clock_application_mhz, gpu.memory_clock_max_mhz, "highest"),
        )
        known = [(name, now, usual, word) for name, now, usual, word in pairs if now is not None and usual is not None]
        low = [row for row in known if row[1] < row[2]]
        evidence = tuple(f"{name} clock: {now} MHz, {word} {usual} MHz" for name, now, usual, word in known)
        if not known:
            yield Verdict(
                "skip", "Not checked: this GPU has no application clocks, or they are not known", subject(gpu)
            )
        elif low:
            yield Verdict(
                "warn",
                "Set lower: " + ", ".join(f"the {name} clock, {now} of {usual} MHz" for name, now, usual, _ in low),
                subject(gpu),
                evidence,
                fix=(f"sudo nvidia-smi -i {gpu.index} -rac", f"nvidia-smi -q -d CLOCK -i {gpu.index}"),
            )
        else:
            yield Verdict("pass", "The application clocks are those of the card", subject(gpu), evidence)
