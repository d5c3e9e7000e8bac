"""The GPUs: that they are there, are the right ones, are free and are healthy."""

from __future__ import annotations

from collections.abc import Iterator

from onecat.doctor import requirements
from onecat.doctor.context import Context
from onecat.doctor.registry import Verdict, check
from onecat.doctor.units import GIB, counted, gibibytes
from onecat.facts import Gpu
from onecat.knowledge.hardware import gpu_model

INSTALL_GUIDE = "https://docs.nvidia.com/datacenter/tesla/driver-installation-guide/"
NVML = "https://docs.nvidia.com/deploy/nvml-api/group__nvmlDeviceQueries.html"
EVENTS = "https://docs.nvidia.com/deploy/nvml-api/group__nvmlClocksEventReasons.html"
PAGE_RETIREMENT = "https://docs.nvidia.com/deploy/dynamic-page-retirement/visibility.html"
ROW_REMAPPING = "https://docs.nvidia.com/deploy/a100-gpu-mem-error-mgmt/supported-gpus.html"
XIDS = "https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html"

HELD_SHARE = 0.05
"""Share of a GPU's memory that may be in use before a server with the default 0.92 no longer fits well."""
SOLD_TO_SEEN = 0.9
"""ECC and the firmware keep some of the memory that a card is sold with."""
RETIRED_PAGES_LIMIT = 60
"""Retired pages above which NVIDIA replaces the card."""


def subject(gpu: Gpu) -> str:
    """How a GPU is called in findings."""
    return f"GPU {gpu.index}"


def place(gpu: Gpu) -> str:
    """A GPU with its name and PCI address, as evidence."""
    return f"{gpu.name} at {gpu.pci_address}" if gpu.pci_address else gpu.name


@check(
    "gpu.present",
    title="The driver shows the NVIDIA GPUs of the host",
    why="The engine sees the GPUs that the driver shows, and no others.",
    fix=("lspci -nn -d 10de:", "nvidia-smi -L", "sudo dmesg | grep -i nvrm"),
    source=(INSTALL_GUIDE,),
)
def gpu_present(context: Context) -> Iterator[Verdict]:
    """The GPUs that NVML shows against the NVIDIA display devices on the PCI bus."""
    nvidia = context.facts.nvidia
    if nvidia is None:
        yield Verdict("skip", f"Not checked: {context.why_absent('nvml', 'no NVIDIA facts were collected')}")
        return
    shown = {gpu.pci_address for gpu in nvidia.gpus}
    hidden = [each for each in nvidia.pci_devices if each.address not in shown]
    if nvidia.gpus:
        yield Verdict(
            "pass", f"The driver shows {counted(len(nvidia.gpus), 'GPU')}", evidence=tuple(map(place, nvidia.gpus))
        )
    elif nvidia.nvml_error or (note := context.facts.note("nvml")) and note.kind != "absent":
        yield Verdict("skip", "Not checked: the driver does not work, see driver.nvml")
    elif hidden:
        yield Verdict(
            "fail",
            f"{counted(len(hidden), 'NVIDIA device')} on the PCI bus, none shown by the driver",
            evidence=tuple(f"{each.address} (10de:{each.device_id}): driver {each.driver}" for each in hidden),
            fix=("sudo dmesg | grep -i nvrm", f"install the NVIDIA driver: {INSTALL_GUIDE}"),
        )
    elif context.wants_gpus:
        yield Verdict(
            "fail",
            "No NVIDIA GPU was found",
            evidence=("no NVIDIA display device on the PCI bus", "no GPU shown by NVML"),
            fix=("lspci -nn -d 10de:", "check power cables and slots; in a virtual machine: pass the GPU through"),
        )
    elif context.profile is not None:
        yield Verdict("skip", f"Not checked: the profile {context.profile.name} uses no NVIDIA GPU")
    else:
        yield Verdict("info", "No NVIDIA GPU was found", evidence=("no NVIDIA display device on the PCI bus",))
    system = context.facts.operating_system
    # A container sees the whole PCI bus and only those GPUs it was given; a lost GPU has no address any more.
    every_address_is_known = bool(nvidia.gpus) and None not in shown
    if every_address_is_known and not (system and system.container):
        for device in hidden:
            if device.driver in (None, "nvidia"):
                yield Verdict(
                    "warn",
                    "An NVIDIA device is on the PCI bus and the driver does not show it",
                    device.address,
                    (f"{device.address} (10de:{device.device_id}): driver {device.driver or 'none'}",),
                    fix=(f"sudo dmesg | grep -i -e nvrm -e {device.address}",),
                )


@check(
    "gpu.reachable",
    title="Every GPU that the driver lists answers",
    why='A GPU that the driver lists and cannot open is lost ("fallen off the bus") or needs a reset.',
    fix=("look for Xid 79: sudo dmesg | grep -i xid", "switch the machine off and on", "check power, riser, cooling"),
    source=(XIDS,),
    requires=(requirements.nvidia_hardware,),
)
def gpu_reachable(context: Context) -> Iterator[Verdict]:
    """The error that NVML gives for a GPU, if any."""
    if not context.nvidia.gpus:
        yield Verdict("skip", f"Not checked: {requirements.gpus(context)}")
    for gpu in context.nvidia.gpus:
        if gpu.error is None:
            yield Verdict("pass", f"{gpu.name} answers", subject(gpu))
        else:
            yield Verdict(
                "fail",
                f"The GPU does not answer: {gpu.error}",
                subject(gpu),
                (f"NVML for GPU {gpu.index}: {gpu.error}",),
                fix=("look for its Xid: sudo dmesg | grep -i xid", "switch the machine off and on"),
            )


@check(
    "gpu.count",
    title="There are as many GPUs as the profile is made for",
    why="The launch defaults of a profile (tensor parallelism) are made for a number of GPUs; the server does not "
    "start with fewer.",
    fix=("nvidia-smi -L", "lspci -nn -d 10de:", "or choose another profile: onecat profile list"),
    source=("https://docs.vllm.ai/en/latest/serving/parallelism_scaling/",),
    requires=(requirements.gpu_profile, requirements.gpus),
)
def gpu_count(context: Context) -> Iterator[Verdict]:
    """The number of GPUs that answer."""
    assert context.profile is not None
    needed, found = context.profile.hardware.count, len(context.gpus)
    evidence = tuple(f"{subject(gpu)}: {place(gpu)}" for gpu in context.gpus)
    if found >= needed:
        yield Verdict("pass", f"{counted(found, 'GPU')}, {needed} needed", evidence=evidence)
    else:
        yield Verdict(
            "fail",
            f"{counted(found, 'GPU')} found, the profile {context.profile.name} needs {needed}",
            evidence=evidence,
            fix=("compare with the PCI bus: lspci -nn -d 10de:", "or choose another profile: onecat profile list"),
        )


@check(
    "gpu.model",
    title="The GPUs are of the model that the profile is made for",
    why="A profile's image and launch defaults are chosen for its GPUs.",
    fix=("choose the profile of your GPUs: onecat profile list",),
    source=(NVML,),
    requires=(requirements.gpu_profile, requirements.gpus),
)
def gpu_model_fits(context: Context) -> Iterator[Verdict]:
    """The product name that NVML reports."""
    assert context.profile is not None
    hardware = context.profile.hardware
    if not hardware.gpu_names:
        yield Verdict("skip", f"Not checked: the profile {context.profile.name} names no model")
        return
    for gpu in context.gpus:
        if gpu.name in hardware.gpu_names:
            yield Verdict("pass", gpu.name, subject(gpu))
        else:
            yield Verdict(
                "warn",
                f"{gpu.name} is not a GPU that the profile {context.profile.name} is made for",
                subject(gpu),
                (f"found: {gpu.name}", f"expected: {' or '.join(hardware.gpu_names)}"),
                fix=("choose the profile of your GPUs: onecat profile list",),
            )


@check(
    "gpu.compute-capability",
    title="The GPUs have the compute capability that the profile's image is built for",
    why='Code built for another architecture stops with "no kernel image is available for execution on the device".',
    fix=("choose the profile of your GPUs: onecat profile list",),
    source=("https://developer.nvidia.com/cuda-gpus",),
    requires=(requirements.gpu_profile, requirements.gpus),
)
def gpu_compute_capability(context: Context) -> Iterator[Verdict]:
    """The compute capability that NVML reports."""
    assert context.profile is not None
    needed = context.profile.hardware.compute_capability
    for gpu in context.gpus:
        found = gpu.compute_capability
        if needed is None or found is None:
            yield Verdict("skip", "Not checked: the compute capability is not known", subject(gpu))
        elif found == needed:
            yield Verdict("pass", f"Compute capability {found}", subject(gpu))
        else:
            yield Verdict(
                "fail",
                f"Compute capability {found}, the profile {context.profile.name} is for {needed}",
                subject(gpu),
                (f"{place(gpu)}: compute capability {found}",),
                fix=("choose the profile of your GPUs: onecat profile list",),
            )


@check(
    "gpu.homogeneous",
    title="All GPUs are alike",
    why="Tensor parallelism splits every layer evenly: the smallest and slowest GPU sets the pace and the memory.",
    fix=("serve on GPUs of one model: list them in CUDA_VISIBLE_DEVICES",),
    source=("https://docs.vllm.ai/en/latest/serving/parallelism_scaling/",),
    requires=(requirements.gpus,),
)
def gpu_homogeneous(context: Context) -> Iterator[Verdict]:
    """Name and memory size of the GPUs against each other."""
    kinds = {(gpu.name, gpu.memory_total) for gpu in context.gpus}
    if len(context.gpus) < 2:
        yield Verdict("skip", "Not checked: there is one GPU only")
    elif len(kinds) == 1:
        yield Verdict("pass", f"{len(context.gpus)} times {context.gpus[0].name}")
    else:
        yield Verdict(
            "warn",
            "The GPUs are not alike",
            evidence=tuple(
                f"{subject(gpu)}: {gpu.name}, {gibibytes(gpu.memory_total) if gpu.memory_total else 'memory unknown'}"
                for gpu in context.gpus
            ),
            fix=("serve on GPUs of one model: list them in CUDA_VISIBLE_DEVICES",),
        )


@check(
    "gpu.memory-total",
    title="The GPUs have the memory that the profile counts on",
    why="The same name is sold with different memory sizes; the launch defaults count on one.",
    fix=("choose the profile of your GPUs: onecat profile list",),
    source=(NVML,),
    requires=(requirements.gpu_profile, requirements.gpus),
)
def gpu_memory_total(context: Context) -> Iterator[Verdict]:
    """The memory size that NVML reports, less what ECC and firmware keep."""
    assert context.profile is not None
    needed = context.profile.hardware.memory_gib
    for gpu in context.gpus:
        if needed is None or gpu.memory_total is None:
            yield Verdict("skip", "Not checked: the memory size is not known", subject(gpu))
        elif gpu.memory_total >= needed * GIB * SOLD_TO_SEEN:
            yield Verdict("pass", f"{gibibytes(gpu.memory_total)} of memory", subject(gpu))
        else:
            yield Verdict(
                "fail",
                f"{gibibytes(gpu.memory_total)} of memory, the profile {context.profile.name} counts on {needed:g} GiB",
                subject(gpu),
                (f"{place(gpu)}: {gpu.memory_total} bytes",),
                fix=("choose the profile of your GPUs: onecat profile list",),
            )


@check(
    "gpu.memory-held",
    title="No other program holds GPU memory",
    why="The engine takes a fixed share of each GPU at its start (92 % by default) and refuses to start when less is "
    "free.",
    fix=("nvidia-smi", "end the programs that hold the memory, or lower gpu-memory-utilization"),
    source=("https://github.com/vllm-project/vllm/pull/38284", NVML),
    requires=(requirements.gpus,),
)
def gpu_memory_held(context: Context) -> Iterator[Verdict]:
    """Memory in use without the driver's own reserve, and the processes that NVML lists."""
    for gpu in context.gpus:
        if gpu.memory_used is None or not gpu.memory_total:
            yield Verdict("skip", "Not checked: the memory in use is not known", subject(gpu))
        elif gpu.memory_used <= gpu.memory_total * HELD_SHARE:
            yield Verdict("pass", f"{gibibytes(gpu.memory_used)} in use", subject(gpu))
        else:
            processes = ", ".join(map(str, gpu.process_ids or ()))
            yield Verdict(
                "warn",
                f"{gibibytes(gpu.memory_used)} of {gibibytes(gpu.memory_total)} are in use",
                subject(gpu),
                (
                    f"{place(gpu)}: {gibibytes(gpu.memory_used)} in use",
                    f"processes: {processes}" if processes else "NVML lists no process (perhaps in a container)",
                ),
                fix=(
                    f"ps -fp {processes.replace(' ', '')}" if processes else "nvidia-smi",
                    "end them, or lower gpu-memory-utilization",
                ),
            )


@check(
    "gpu.ecc-errors",
    title="The GPU memory has no uncorrectable errors",
    why="An uncorrectable error means wrong data: the driver stops the program that met it.",
    fix=("reset the GPU or reboot; when the count rises again, have the card replaced",),
    source=(PAGE_RETIREMENT, XIDS),
    requires=(requirements.gpus,),
)
def gpu_ecc_errors(context: Context) -> Iterator[Verdict]:
    """Uncorrectable ECC errors since the driver was loaded, and over the life of the card."""
    for gpu in context.gpus:
        now, ever = gpu.ecc_uncorrected_volatile, gpu.ecc_uncorrected_aggregate
        if now is None and ever is None:
            reason = "ECC is off" if gpu.ecc_enabled is False else "the counters are not known"
            yield Verdict("skip", f"Not checked: {reason}", subject(gpu))
        elif now:
            yield Verdict(
                "fail",
                f"{counted(now, 'uncorrectable memory error')} since the driver was loaded",
                subject(gpu),
                (f"{place(gpu)}: volatile {now}, aggregate {ever}",),
                fix=("sudo dmesg | grep -i xid", "reboot; when the count rises again, have the card replaced"),
            )
        elif ever:
            yield Verdict(
                "info",
                f"{counted(ever, 'uncorrectable memory error')} in the past, none since the driver was loaded",
                subject(gpu),
                (f"{place(gpu)}: volatile 0, aggregate {ever}",),
            )
        else:
            yield Verdict("pass", "No uncorrectable memory errors", subject(gpu))


@check(
    "gpu.retired-pages",
    title="No memory page waits to be retired",
    why="GPUs before Ampere retire bad memory pages when the driver starts next; until then they are used.",
    fix=("reboot, or with nothing using it: sudo nvidia-smi --gpu-reset -i N",),
    source=(PAGE_RETIREMENT,),
    requires=(requirements.gpus,),
)
def gpu_retired_pages(context: Context) -> Iterator[Verdict]:
    """Retired pages and whether some are pending. Ampere and newer remap rows instead and have no such count."""
    for gpu in context.gpus:
        if gpu.retired_pages_pending is None and gpu.retired_pages is None:
            yield Verdict("skip", "Not checked: this GPU does not retire pages (Ampere and newer)", subject(gpu))
            continue
        evidence = (f"{place(gpu)}: {gpu.retired_pages} retired, pending: {_yes(gpu.retired_pages_pending)}",)
        if gpu.retired_pages_pending:
            yield Verdict(
                "warn",
                "Bad memory pages wait to be retired",
                subject(gpu),
                evidence,
                fix=("sudo reboot", f"or, with nothing using it: sudo nvidia-smi --gpu-reset -i {gpu.index}"),
            )
        elif (gpu.retired_pages or 0) >= RETIRED_PAGES_LIMIT:
            yield Verdict(
                "warn",
                f"{gpu.retired_pages} memory pages are retired: the card is worn",
                subject(gpu),
                evidence,
                fix=(f"have the card replaced (the limit is {RETIRED_PAGES_LIMIT})",),
            )
        else:
            yield Verdict("pass", f"{gpu.retired_pages} pages retired, none pending", subject(gpu), evidence)


@check(
    "gpu.row-remapping",
    title="The GPU could remap every bad memory row",
    why="Ampere and newer replace bad memory rows by spare ones at the next reset; when the spares are used up the "
    "card is broken.",
    fix=("pending: reboot, or sudo nvidia-smi --gpu-reset -i N", "failed: have the card replaced"),
    source=(ROW_REMAPPING,),
    requires=(requirements.gpus,),
)
def gpu_row_remapping(context: Context) -> Iterator[Verdict]:
    """Whether a remapping has failed or is pending. GPUs before Ampere retire pages instead."""
    for gpu in context.gpus:
        if gpu.remapped_rows_failure is None and gpu.remapped_rows_pending is None:
            yield Verdict("skip", "Not checked: this GPU does not remap rows (before Ampere)", subject(gpu))
        elif gpu.remapped_rows_failure:
            yield Verdict(
                "fail",
                "A bad memory row could not be remapped",
                subject(gpu),
                (f"{place(gpu)}: row remapping failed",),
                fix=("have the card replaced",),
            )
        elif gpu.remapped_rows_pending:
            yield Verdict(
                "warn",
                "A bad memory row waits to be remapped",
                subject(gpu),
                (f"{place(gpu)}: row remapping pending",),
                fix=("sudo reboot", f"or, with nothing using it: sudo nvidia-smi --gpu-reset -i {gpu.index}"),
            )
        else:
            yield Verdict("pass", "No row remapping failed or pending", subject(gpu))


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
    """NVML's clock event reasons. Idle, set clocks and the power limit at full load are no fault."""
    for gpu in context.gpus:
        reasons = gpu.event_reasons
        if reasons is None:
            yield Verdict("skip", "Not checked: the clock event reasons are not known", subject(gpu))
            continue
        severe = [text for bit, text in _SEVERE_EVENTS.items() if reasons & bit]
        mild = [text for bit, text in _MILD_EVENTS.items() if reasons & bit]
        if not severe and not mild:
            yield Verdict("pass", "Nothing slows it down", subject(gpu), (f"event reasons: {reasons:#x}",))
            continue
        temperature = f", {gpu.temperature_celsius} °C" if gpu.temperature_celsius is not None else ""
        yield Verdict(
            "fail" if severe else "warn",
            f"The GPU is {' and '.join(severe or mild)}",
            subject(gpu),
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
        if model is None or gpu.memory_clock_max_mhz is None:
            yield Verdict("skip", f"Not checked: the rated memory clock of {gpu.name} is not known", subject(gpu))
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


def _yes(value: bool | None) -> str:
    return {True: "yes", False: "no", None: "unknown"}[value]
