"""Modes that a GPU can be set to."""

from __future__ import annotations

from collections.abc import Iterator

from onecat.doctor import requirements
from onecat.doctor.context import Context
from onecat.doctor.cuda_code import capability_of
from onecat.doctor.hardware import architecture_of, compute_capability, is_wsl, place, subject
from onecat.doctor.registry import Verdict, check
from onecat.facts import Gpu

PERSISTENCE = "https://docs.nvidia.com/deploy/driver-persistence/persistence-daemon.html"
COMPUTE_MODES = "https://docs.nvidia.com/deploy/nvml-api/group__nvmlDeviceEnumvs.html"
MIG = "https://docs.nvidia.com/datacenter/tesla/mig-user-guide/mig-device-names.html"


@check(
    "gpu.persistence",
    title="The driver keeps the GPUs initialised",
    why="Without persistence the driver lets go of a GPU when its last program ends: the next start takes seconds "
    "longer for each GPU, and clock and power settings are lost.",
    fix=("sudo systemctl enable --now nvidia-persistenced", "or until the next reboot: sudo nvidia-smi -pm 1"),
    source=(PERSISTENCE, "https://docs.nvidia.com/deploy/driver-persistence/overview.html"),
    requires=(requirements.gpus,),
)
def gpu_persistence(context: Context) -> Iterator[Verdict]:
    """The persistence mode of each GPU, and whether nvidia-persistenced runs."""
    daemon = context.nvidia.persistence_daemon
    for gpu in context.gpus:
        if gpu.persistence_mode is None:
            yield Verdict("skip", "Not checked: the persistence mode is not known", subject(gpu))
        elif gpu.persistence_mode:
            yield Verdict("pass", "Persistence is on", subject(gpu))
        elif is_wsl(context):
            yield Verdict("skip", "Not checked: in WSL the driver is that of Windows", subject(gpu))
        else:
            runs = {True: "nvidia-persistenced runs", False: "nvidia-persistenced does not run", None: ""}[daemon]
            yield Verdict(
                "warn",
                "Persistence is off",
                subject(gpu),
                (f"{place(gpu)}: persistence mode off{f', {runs}' if runs else ''}",),
                fix=("sudo nvidia-smi -pm 1",)
                if daemon
                else ("sudo systemctl enable --now nvidia-persistenced", "or: sudo nvidia-smi -pm 1"),
            )


@check(
    "gpu.compute-mode",
    title="Programs may use the GPUs",
    why="In the mode `prohibited` no CUDA program can use a GPU, in an exclusive mode only one at a time: a second "
    "server or a test beside it is refused.",
    fix=("sudo nvidia-smi -c DEFAULT",),
    source=(COMPUTE_MODES,),
    requires=(requirements.gpus,),
)
def gpu_compute_mode(context: Context) -> Iterator[Verdict]:
    """The compute mode that NVML reports."""
    for gpu in context.gpus:
        mode = gpu.compute_mode.lower().replace("_", " ") if gpu.compute_mode else None
        evidence = (f"{place(gpu)}: compute mode {mode}",)
        fix = (f"sudo nvidia-smi -i {gpu.index} -c DEFAULT",)
        if mode is None:
            yield Verdict("skip", "Not checked: the compute mode is not known", subject(gpu))
        elif mode == "prohibited":
            yield Verdict("fail", "CUDA programs are prohibited on this GPU", subject(gpu), evidence, fix=fix)
        elif mode.startswith("exclusive"):
            yield Verdict("warn", "One program at a time may use this GPU", subject(gpu), evidence, fix=fix)
        else:
            yield Verdict("pass", f"Compute mode {mode}", subject(gpu))


@check(
    "gpu.mig",
    title="The GPUs are whole, not split into MIG instances",
    why="A split GPU shows CUDA one instance with a part of its memory and cores, without instances nothing at all. "
    "Profiles are made for whole GPUs.",
    fix=("sudo nvidia-smi -i N -mig 0", "nvidia-smi -L"),
    source=(MIG,),
    requires=(requirements.gpus,),
)
def gpu_mig(context: Context) -> Iterator[Verdict]:
    """The MIG mode that NVML reports, and how many instances there are."""
    for gpu in context.gpus:
        if gpu.mig_enabled is None:
            yield Verdict("skip", f"Not checked: {_no_mig(gpu)}", subject(gpu))
            continue
        count = "unknown number of" if gpu.mig_devices is None else str(gpu.mig_devices)
        evidence = (f"{place(gpu)}: MIG on, {count} instances",)
        whole = (f"for the whole GPU, with nothing using it: sudo nvidia-smi -i {gpu.index} -mig 0",)
        if not gpu.mig_enabled:
            yield Verdict("pass", "MIG is off", subject(gpu))
        elif gpu.mig_devices == 0:
            yield Verdict("fail", "MIG is on without an instance: CUDA sees no GPU", subject(gpu), evidence, fix=whole)
        elif context.wants_gpus:
            yield Verdict(
                "warn",
                "MIG is on: the profile counts on a whole GPU",
                subject(gpu),
                evidence,
                fix=(*whole, "or serve on one instance: its UUID (nvidia-smi -L) in CUDA_VISIBLE_DEVICES"),
            )
        else:
            yield Verdict("info", "MIG is on: CUDA sees instances, not the GPU", subject(gpu), evidence, fix=whole)


def _no_mig(gpu: Gpu) -> str:
    """Why there is no MIG mode."""
    capability, architecture = capability_of(compute_capability(gpu)), architecture_of(gpu)
    if capability is not None and architecture is not None and capability < (8, 0):
        return f"{architecture.name} GPUs cannot be split"
    return "the MIG mode is not known, or this GPU cannot be split"
