"""The GPUs: that they are there, answer, and are the right ones."""

from __future__ import annotations

from collections.abc import Iterator

from onecat.doctor import requirements
from onecat.doctor.context import Context
from onecat.doctor.hardware import place, subject
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
