"""Reasons why a check cannot be made on a host; see registry.Requirement."""

from __future__ import annotations

from onecat.doctor.context import Context


def profile(context: Context) -> str | None:
    """A profile was chosen."""
    return None if context.profile else "no profile was chosen"


def gpu_profile(context: Context) -> str | None:
    """The chosen profile is for NVIDIA GPUs."""
    if context.profile is None:
        return "no profile was chosen"
    return None if context.wants_gpus else f"the profile {context.profile.name} uses no NVIDIA GPU"


def nvidia_hardware(context: Context) -> str | None:
    """There is NVIDIA hardware, or the bus could not be looked at and the profile needs some."""
    if context.has_nvidia_hardware or context.nvidia.kernel_module_version:
        return None
    if context.facts.nvidia is None:
        return context.why_absent("driver", "no NVIDIA facts were collected")
    if context.wants_gpus and context.facts.note("pci"):
        return None
    return "there is no NVIDIA GPU"


def gpus(context: Context) -> str | None:
    """NVML shows at least one GPU."""
    if context.gpus:
        return None
    if (missing := nvidia_hardware(context)) is not None:
        return missing
    if context.nvidia.nvml_error:
        return f"NVML does not work: {context.nvidia.nvml_error}"
    if context.facts.note("nvml"):
        return f"NVML shows no GPU: {context.why_absent('nvml', '')}"
    return "NVML shows no GPU"


def container_possible(context: Context) -> str | None:
    """The server may run in a container."""
    if context.profile is not None and "container" not in context.runtimes:
        return "the server runs natively, without a container"
    return None


def native_possible(context: Context) -> str | None:
    """The server may run natively."""
    if context.profile is None:
        return "no profile was chosen"
    return None if "native" in context.runtimes else "the server runs in a container, which brings its own"
