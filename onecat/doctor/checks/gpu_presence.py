"""The GPUs: that they are there, answer, and are the right ones."""

from __future__ import annotations

from collections.abc import Iterator

from onecat.doctor import requirements
from onecat.doctor.context import Context
from onecat.doctor.hardware import function, gpu_at, is_given_away, is_wsl, meant, place, subject
from onecat.doctor.kernel_log import event_subject, events, quoted
from onecat.doctor.registry import Verdict, check
from onecat.doctor.units import counted, gibibytes

INSTALL_GUIDE = "https://docs.nvidia.com/datacenter/tesla/driver-installation-guide/"
NVML = "https://docs.nvidia.com/deploy/nvml-api/group__nvmlDeviceQueries.html"
XIDS = "https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html"


@check(
    "gpu.present",
    title="The driver shows the NVIDIA GPUs of the host",
    why="The engine sees the GPUs that the driver shows, and no others.",
    fix=("lspci -nn -d 10de:", "nvidia-smi -L", "sudo dmesg | grep -i nvrm"),
    source=(INSTALL_GUIDE,),
    requires=(requirements.gpus_matter,),
)
def gpu_present(context: Context) -> Iterator[Verdict]:
    """The GPUs that NVML shows against the NVIDIA display devices on the PCI bus."""
    nvidia = context.facts.nvidia
    if nvidia is None:
        yield Verdict("skip", f"Not checked: {context.why_absent('nvml', 'no NVIDIA facts were collected')}")
        return
    shown = {gpu.pci_address for gpu in nvidia.gpus}
    hidden = [each for each in nvidia.pci_devices if each.address not in shown]
    evidence = tuple(f"{each.address} (10de:{each.device_id}): driver {each.driver or 'none'}" for each in hidden)
    if nvidia.gpus:
        yield Verdict(
            "pass", f"The driver shows {counted(len(nvidia.gpus), 'GPU')}", evidence=tuple(map(place, nvidia.gpus))
        )
    elif nvidia.nvml_error or (note := context.facts.note("nvml")) and note.kind != "absent":
        yield Verdict("skip", "Not checked: the driver does not work, see driver.nvml")
    elif not context.driver_was_looked_for:
        yield Verdict("skip", "Not checked: what the driver shows is not in the captures (nvidia-smi shows it)")
    elif hidden and is_given_away(context) and not context.wants_gpus:
        yield Verdict(
            "info",
            f"{counted(len(hidden), 'NVIDIA device')} of this host for virtual machines",
            evidence=evidence,
        )
    elif hidden:
        yield Verdict(
            "fail",
            f"{counted(len(hidden), 'NVIDIA device')} on the PCI bus, none shown by the driver",
            evidence=evidence,
            fix=("sudo dmesg | grep -i nvrm", f"install the NVIDIA driver: {INSTALL_GUIDE}"),
        )
    elif context.wants_gpus:
        yield Verdict(
            "fail",
            "No NVIDIA GPU was found",
            evidence=("no NVIDIA display device on the PCI bus", "no GPU shown by NVML"),
            fix=("lspci -nn -d 10de:", "check power cables and slots; in a virtual machine: pass the GPU through"),
        )
    else:
        yield Verdict("info", "No NVIDIA GPU was found", evidence=("no NVIDIA display device on the PCI bus",))
    # A container sees the whole PCI bus and only those GPUs it was given; a lost GPU has no address any more.
    every_address_is_known = bool(nvidia.gpus) and None not in shown
    if every_address_is_known and not context.is_container and not is_wsl(context):
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
    fix=("nvidia-smi -L", "lspci -nn -d 10de:", "or choose another profile: onecat profile detect"),
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
            fix=("compare with the PCI bus: lspci -nn -d 10de:", "or choose another profile: onecat profile detect"),
        )


@check(
    "gpu.model",
    title="The GPUs are of the model that the profile is made for",
    why="A profile's image and launch defaults are chosen for its GPUs.",
    fix=("choose the profile of your GPUs: onecat profile detect",),
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
    for gpu in meant(context):
        if gpu.name in hardware.gpu_names:
            yield Verdict("pass", gpu.name, subject(gpu))
        else:
            yield Verdict(
                "warn",
                f"{gpu.name} is not a GPU that the profile {context.profile.name} is made for",
                subject(gpu),
                (f"found: {gpu.name}", f"expected: {' or '.join(hardware.gpu_names)}"),
                fix=("choose the profile of your GPUs: onecat profile detect",),
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
    gpus = meant(context)
    kinds = {(gpu.name, gpu.memory_total) for gpu in gpus}
    if len(gpus) < 2:
        yield Verdict("skip", "Not checked: there is one GPU only")
    elif len({name for name, _ in kinds}) == 1 and any(size is None for _, size in kinds):
        yield Verdict("skip", "Not checked: the memory size of the GPUs is not known")
    elif len(kinds) == 1:
        yield Verdict("pass", f"{len(gpus)} times {gpus[0].name}")
    else:
        yield Verdict(
            "warn" if context.profile is not None else "info",
            "The GPUs are not alike",
            evidence=tuple(
                f"{subject(gpu)}: {gpu.name}, {gibibytes(gpu.memory_total) if gpu.memory_total else 'memory unknown'}"
                for gpu in gpus
            ),
            fix=("serve on GPUs of one model: list them in CUDA_VISIBLE_DEVICES",),
        )


FALLEN_OFF = "https://github.com/NVIDIA/NVSentinel/issues/155"


@check(
    "gpu.fallen-off-bus",
    title="No GPU has fallen off the bus",
    why="A GPU that no longer answers on PCIe is lost until the machine is switched off and on; what used it hangs. "
    "Power, heat, a riser or the slot are the usual causes.",
    fix=(
        "switch the machine off and on: a reboot is often not enough",
        "then check power cables, riser, slot and cooling",
    ),
    source=(XIDS, FALLEN_OFF),
    requires=(requirements.nvidia_hardware,),
)
def gpu_fallen_off_bus(context: Context) -> Iterator[Verdict]:
    """Xid 79 and "fallen off the bus" in the kernel log, NVML's "GPU is lost", a configuration space of all ones."""
    nvidia, lost = context.nvidia, _lost(context)
    for name, evidence in lost.items():
        yield Verdict(
            "fail",
            "The GPU has fallen off the bus",
            name,
            tuple(evidence),
            fix=(
                "switch the machine off and on: a reboot is often not enough",
                "then check power cables, riser, slot and cooling",
                "what PCIe said: sudo dmesg | grep -i -e aer -e 'pcie bus error'",
            ),
        )
    if lost:
        return
    answers = [gpu for gpu in nvidia.gpus if gpu.error is None]
    if answers and len(answers) == len(nvidia.gpus):
        log = "" if context.facts.kernel_events is not None else " (the kernel log was not read)"
        yield Verdict("pass", f"{counted(len(answers), 'GPU')} on the bus{log}")
    elif context.facts.kernel_events is not None:
        yield Verdict("pass", "The kernel log tells of no GPU that has fallen off the bus")
    else:
        yield Verdict("skip", f"Not checked: {requirements.kernel_log(context)}")


def _lost(context: Context) -> dict[str, list[str]]:
    """What says that a GPU is lost, by GPU or PCI address."""
    nvidia = context.nvidia
    found: dict[str, list[str]] = {}
    for event in events(context, "gpu-fell-off", "xid"):
        if event.kind == "gpu-fell-off" or event.xid == 79:
            found.setdefault(event_subject(context, event), []).append(f"kernel log: {quoted(event)}")
    for device in nvidia.pci_devices:
        if device.responds is False:
            gpu = gpu_at(context, device.address)
            name = subject(gpu) if gpu else device.address
            found.setdefault(name, []).append(f"{device.address}: its configuration space reads as all ones")
    places = [name for name in found if name and not name.startswith("GPU ")]
    for gpu in nvidia.gpus:
        if gpu.error and "lost" in gpu.error.lower():
            # A lost GPU has no address any more: where several are lost, which one is where cannot be told.
            name = subject(gpu) if subject(gpu) in found or not places else places.pop(0)
            found.setdefault(name, []).append(f"NVML for GPU {gpu.index}: {gpu.error}")
    nameless = found.pop("", [])
    if nvidia.nvml_error and "GPU is lost" in nvidia.nvml_error:
        nameless.append(f"NVML: {nvidia.nvml_error}")
    if nameless and not found:
        return {"": nameless}
    for evidence in found.values():
        evidence += nameless
    return found


@check(
    "gpu.initialization",
    title="The driver could start every GPU",
    why="A GPU that the driver cannot start does not exist for any program.",
    fix=("sudo dmesg | grep -i nvrm", "switch the machine off and on"),
    source=(
        "https://docs.nvidia.com/deploy/gpu-debug-guidelines/index.html",
        "https://github.com/Start9Labs/start-technologies/issues/3465",
    ),
    requires=(requirements.nvidia_hardware, requirements.kernel_log),
    to_pass=(requirements.whole_kernel_log,),
)
def gpu_initialization(context: Context) -> Iterator[Verdict]:
    """Messages of the kernel log that the driver could not start a GPU (RmInitAdapter failed), and NVML's list."""
    failed = events(context, "gpu-init-failed")
    if not failed:
        yield Verdict("pass", "The kernel log tells of no GPU that could not be started")
    working = {function(gpu.pci_address) for gpu in context.gpus}
    all_work = bool(working) and all(function(each.address) in working for each in context.nvidia.pci_devices)
    for event in failed:
        works = function(event.address) in working or (event.address is None and all_work)
        yield Verdict(
            "info" if works else "fail",
            "The driver could not start this GPU once, and shows it now" if works else "The driver cannot start a GPU",
            event_subject(context, event),
            (quoted(event),),
            fix=(
                "read the lines around it: sudo dmesg | grep -i nvrm",
                "Blackwell and newer need the open kernel module: cat /proc/driver/nvidia/version",
                "switch the machine off and on; then try the card in another slot",
            ),
        )
