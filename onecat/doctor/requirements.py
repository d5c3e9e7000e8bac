"""Reasons why a check cannot be made on a host; see registry.Requirement."""

from __future__ import annotations

from onecat.doctor.context import Context


def profile(context: Context) -> str | None:
    """A profile was chosen."""
    return None if context.profile else "no profile was chosen"


def gpu_profile(context: Context) -> str | None:
    """The chosen profile is for NVIDIA GPUs."""
    return "no profile was chosen" if context.profile is None else gpus_matter(context)


def gpus_matter(context: Context) -> str | None:
    """NVIDIA's GPUs matter: to the chosen profile, or because none was chosen.

    Every check of GPUs, their driver and their CUDA asks this, so that no fault of a GPU keeps a profile that uses none
    from running.
    """
    if context.profile is None or context.concerns_gpus:
        return None
    return f"the profile {context.profile.name} uses no NVIDIA GPU"


def nvidia_hardware(context: Context) -> str | None:
    """NVIDIA's GPUs matter and there are some, or the bus could not be looked at and the profile needs some."""
    if (reason := gpus_matter(context)) is not None:
        return reason
    if context.has_nvidia_hardware or context.nvidia.kernel_module_version:
        return None
    if context.facts.nvidia is None:
        return context.why_absent("driver", "no NVIDIA facts were collected")
    if context.wants_gpus and context.facts.note("pci"):
        return None
    return "there is no NVIDIA GPU" if context.driver_was_looked_for else "no NVIDIA GPU is in the captures"


def gpus(context: Context) -> str | None:
    """NVIDIA's GPUs matter and NVML shows at least one."""
    if (missing := nvidia_hardware(context)) is not None:
        return missing
    if context.gpus:
        return None
    if context.nvidia.nvml_error:
        return f"NVML does not work: {context.nvidia.nvml_error}"
    if context.facts.note("nvml"):
        return f"NVML shows no GPU: {context.why_absent('nvml', '')}"
    return "NVML shows no GPU" if context.driver_was_looked_for else "what the driver shows is not in the captures"


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


def docker_reachable(context: Context) -> str | None:
    """The Docker daemon answered the probe."""
    docker = context.facts.docker
    if docker is None:
        return context.why_absent("docker", "no Docker facts were collected")
    if docker.state == "reachable":
        return None
    words = {"absent": "Docker is not installed", "forbidden": "the Docker daemon refuses this user"}
    return words.get(docker.state, "no Docker daemon answers")


def docker_containers(context: Context) -> str | None:
    """The probe could list the containers."""
    if (missing := docker_reachable(context)) is not None:
        return missing
    assert context.facts.docker is not None
    return None if context.facts.docker.containers is not None else "the containers were not listed"


def gpu_containers(context: Context) -> str | None:
    """Servers in containers may want NVIDIA GPUs here."""
    if (missing := container_possible(context)) is not None:
        return missing
    return gpu_profile(context) if context.profile is not None else nvidia_hardware(context)


def container_toolkit(context: Context) -> str | None:
    """The version of NVIDIA's container toolkit is known."""
    toolkit = context.facts.container_toolkit
    if toolkit is None or toolkit.version is None:
        return context.why_absent("toolkit", "the version of the container toolkit is not known")
    return None


def environment(context: Context) -> str | None:
    """The environment variables of the user who probes are known."""
    if context.facts.environment is not None:
        return None
    return context.why_absent("environment", "the environment variables are not known")


def kernel_log(context: Context) -> str | None:
    """The kernel log could be read."""
    if context.facts.kernel_events is not None:
        return None
    return context.why_absent("kernel-log", "the kernel log was not read (reading it often needs root: --sudo)")


def whole_kernel_log(context: Context) -> str | None:
    """The kernel log was read from the start of the machine on."""
    note = context.facts.note("kernel-log")
    return note.text if note is not None else None


def systemd_units(context: Context) -> str | None:
    """The services that have to do with serving are known."""
    if context.facts.systemd_units is not None:
        return None
    return context.why_absent("services", "the services are not known")


def ascend(context: Context) -> str | None:
    """There are Ascend NPUs, and the profile, if one was chosen, uses them."""
    ascend = context.facts.ascend
    if context.profile is not None and context.profile.hardware.accelerator != "ascend":
        return f"the profile {context.profile.name} uses no Ascend NPU"
    if ascend is not None and (ascend.npus or ascend.pci_devices or ascend.npu_smi_version):
        return None
    if ascend is None and context.profile is not None:
        return context.why_absent("ascend", "no Ascend facts were collected")
    return "there is no Ascend NPU"
