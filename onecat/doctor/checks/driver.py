"""The NVIDIA driver: kernel module and user-space library."""

from __future__ import annotations

from collections.abc import Iterator

from onecat.doctor import requirements
from onecat.doctor.context import Context
from onecat.doctor.registry import Verdict, check
from onecat.doctor.units import version_key
from onecat.knowledge.hardware import Architecture, architecture, cuda_families, nvml_error

MATRIX = "https://docs.nvidia.com/datacenter/tesla/drivers/cuda-toolkit-driver-and-architecture-matrix.html"
MINIMUM = "https://docs.nvidia.com/deploy/cuda-compatibility/minor-version-compatibility.html"
INSTALL_GUIDE = "https://docs.nvidia.com/datacenter/tesla/driver-installation-guide/"


def _version(context: Context) -> str | None:
    """The driver version, if it is one that can be compared."""
    candidates = (context.nvidia.driver_version, context.nvidia.kernel_module_version)
    return next((version for version in candidates if version and version_key(version)), None)


def _architectures(context: Context) -> tuple[Architecture, ...]:
    """Of the GPUs seen, or of the profile where the driver shows none."""
    capabilities = {gpu.compute_capability for gpu in context.gpus}
    if not capabilities and context.profile is not None:
        capabilities = {context.profile.hardware.compute_capability}
    found = (architecture(capability) for capability in sorted(each for each in capabilities if each))
    return tuple(each for each in found if each is not None)


def _install(context: Context) -> str:
    limits = context.profile.doctor.driver if context.profile else None
    branch = limits.recommended_branch if limits else None
    return f"install {f'NVIDIA driver {branch}' if branch else 'the NVIDIA driver'}: {INSTALL_GUIDE}"


@check(
    "driver.loaded",
    title="The NVIDIA kernel module is loaded",
    why="Without it the GPUs do not exist for any program.",
    fix=(f"install the NVIDIA driver: {INSTALL_GUIDE}", "sudo modprobe nvidia"),
    source=(INSTALL_GUIDE,),
    requires=(requirements.nvidia_hardware,),
)
def driver_loaded(context: Context) -> Iterator[Verdict]:
    """/proc/driver/nvidia/version and /sys/module/nvidia; NVML showing GPUs is proof as well."""
    nvidia = context.facts.nvidia
    if nvidia is None:
        yield Verdict("skip", f"Not checked: {context.why_absent('driver', 'no NVIDIA facts were collected')}")
    elif nvidia.kernel_module_version:
        flavour = {True: " (open)", False: " (proprietary)", None: ""}[nvidia.kernel_module_open]
        yield Verdict("pass", f"Kernel module {nvidia.kernel_module_version}{flavour} is loaded")
    elif context.gpus:
        yield Verdict("pass", f"Driver {nvidia.driver_version} is loaded", evidence=("NVML shows GPUs",))
    elif context.facts.note("driver"):
        yield Verdict("skip", f"Not checked: {context.why_absent('driver', '')}")
    else:
        addresses = ", ".join(device.address for device in nvidia.pci_devices)
        yield Verdict(
            "fail",
            "The NVIDIA kernel module is not loaded",
            evidence=(
                "neither /proc/driver/nvidia/version nor /sys/module/nvidia/version exists",
                f"NVIDIA devices on the PCI bus: {addresses or 'none'}",
            ),
            fix=(_install(context), "if it is installed: sudo modprobe nvidia, then read sudo dmesg | grep -i nvrm"),
        )


@check(
    "driver.nouveau",
    title="The nouveau driver does not hold the GPUs",
    why="A GPU that nouveau drives cannot be used by NVIDIA's driver, so CUDA does not see it.",
    fix=(
        "printf 'blacklist nouveau\\noptions nouveau modeset=0\\n' | sudo tee /etc/modprobe.d/nouveau.conf",
        "sudo update-initramfs -u (Debian, Ubuntu) or sudo dracut --force (RHEL), then reboot",
    ),
    source=(INSTALL_GUIDE,),
    requires=(requirements.nvidia_hardware,),
)
def driver_nouveau(context: Context) -> Iterator[Verdict]:
    """Whether the module is loaded and which PCI devices it drives."""
    nvidia = context.nvidia
    held = [device.address for device in nvidia.pci_devices if device.driver == "nouveau"]
    if nvidia.nouveau_loaded is None and not held:
        yield Verdict("skip", f"Not checked: {context.why_absent('driver', 'the loaded modules are not known')}")
    elif held and not context.gpus:
        yield Verdict(
            "fail",
            "nouveau drives the NVIDIA devices",
            evidence=tuple(f"{address}: driver nouveau" for address in held),
            fix=(
                "echo 'blacklist nouveau' | sudo tee /etc/modprobe.d/nouveau.conf",
                "sudo update-initramfs -u (Debian, Ubuntu) or sudo dracut --force (RHEL)",
                "sudo reboot",
            ),
        )
    elif held:
        yield Verdict(
            "info", "nouveau drives another NVIDIA device", evidence=tuple(f"{each}: driver nouveau" for each in held)
        )
    else:
        yield Verdict("pass", "nouveau drives no NVIDIA device")


@check(
    "driver.nvml",
    title="The driver answers: kernel module and library work together",
    why="What keeps NVML from working keeps every CUDA program from working.",
    fix=("nvidia-smi", "sudo dmesg | grep -i nvrm"),
    source=("https://docs.nvidia.com/deploy/nvml-api/",),
    requires=(requirements.nvidia_hardware,),
)
def driver_nvml(context: Context) -> Iterator[Verdict]:
    """The answer of NVML (libnvidia-ml.so.1), which nvidia-smi uses too."""
    nvidia, note = context.nvidia, context.facts.note("nvml")
    versions = [
        f"{part}: {version}"
        for part, version in (
            ("kernel module", nvidia.kernel_module_version),
            ("user-space library", nvidia.library_version),
        )
        if version
    ]
    if nvidia.nvml_error:
        meaning = nvml_error(nvidia.nvml_error)
        yield Verdict(
            "fail",
            meaning.title,
            evidence=(f"NVML: {nvidia.nvml_error}", *versions),
            fix=meaning.fix,
            why=meaning.why,
            source=meaning.source,
        )
    elif note is not None and note.kind in ("timeout", "error") and nvidia.library_found:
        yield Verdict(
            "fail",
            "The driver hangs" if note.kind == "timeout" else "The NVIDIA library breaks",
            evidence=(note.text, *versions),
            fix=("sudo dmesg | grep -i -e nvrm -e xid", "switch the machine off and on: a dead GPU hangs its driver"),
        )
    elif nvidia.library_found is False and nvidia.kernel_module_version:
        yield Verdict(
            "fail",
            "The kernel module is loaded and its library libnvidia-ml.so.1 is not there",
            evidence=(*versions, *((note.text,) if note else ())),
            fix=(
                "install the user-space part of the same driver version (Debian, Ubuntu: libnvidia-ml1, libcuda1)",
                "inside a container: start it with --gpus all or --device nvidia.com/gpu=all",
            ),
        )
    elif nvidia.driver_version:
        yield Verdict("pass", f"NVML of driver {nvidia.driver_version} answers", evidence=tuple(versions))
    else:
        yield Verdict("skip", f"Not checked: {context.why_absent('nvml', 'NVML was not asked')}")


@check(
    "driver.minimum",
    title="The driver is new enough for the CUDA family of the image",
    why="Programs built with CUDA 12 need driver 525 or newer, with CUDA 13 driver 580 or newer; on an older one "
    'they stop with "CUDA driver version is insufficient".',
    fix=(f"install a newer NVIDIA driver: {INSTALL_GUIDE}",),
    source=(MINIMUM,),
    requires=(requirements.gpu_profile,),
)
def driver_minimum(context: Context) -> Iterator[Verdict]:
    """The driver version against the least one that the profile's image runs on. A newer driver is always fine."""
    assert context.profile is not None
    limits, version = context.profile.doctor.driver, _version(context)
    if limits is None or version is None:
        reason = "the driver version is not known" if limits else "the profile names no least driver"
        yield Verdict("skip", f"Not checked: {reason}")
        return
    family = next((each for each in cuda_families() if each.minimum_driver == limits.minimum), None)
    what = f"CUDA {family.family}" if family else f"the profile {context.profile.name}"
    evidence = (f"driver: {version}", f"needed by {what}: {limits.minimum}")
    if version_key(version) >= version_key(limits.minimum):
        yield Verdict("pass", f"Driver {version} runs {what}", evidence=evidence)
    else:
        yield Verdict(
            "fail", f"Driver {version} is too old for {what}", evidence=evidence, fix=(_install(context), "sudo reboot")
        )


@check(
    "driver.last-branch",
    title="The driver still supports the GPU's architecture",
    why="A newer driver than the last that supports an architecture ignores its GPUs. For Maxwell, Pascal and Volta "
    "the last branch is 580.",
    fix=("install a driver of the last branch and hold the package back from upgrades",),
    source=(MATRIX, "https://github.com/NixOS/nixos-hardware/issues/1880"),
    requires=(requirements.nvidia_hardware,),
)
def driver_last_branch(context: Context) -> Iterator[Verdict]:
    """The branch of the driver (first part of its version) against the architecture of GPUs or profile."""
    version, architectures = _version(context), _architectures(context)
    if version is None or not architectures:
        missing = "the driver version" if version is None else "the architecture of the GPUs"
        yield Verdict("skip", f"Not checked: {missing} is not known")
        return
    branch = version_key(version)[0]
    for each in architectures:
        if each.last_driver_branch is None or branch <= each.last_driver_branch:
            last = f", the last branch is {each.last_driver_branch}" if each.last_driver_branch else ""
            yield Verdict("pass", f"Driver {branch} supports {each.name}{last}", each.name, (f"driver: {version}",))
        else:
            yield Verdict(
                "fail",
                f"Driver {branch} no longer supports {each.name}",
                each.name,
                (f"driver: {version}", f"last branch for {each.name}: {each.last_driver_branch}"),
                fix=(
                    f"install a driver of branch {each.last_driver_branch}: {INSTALL_GUIDE}",
                    "hold it back from upgrades (apt-mark hold, dnf versionlock)",
                ),
            )


@check(
    "driver.kernel-module",
    title="The flavour of the kernel module fits the GPU",
    why="NVIDIA's open kernel module drives Turing and newer only; before that the proprietary one is needed.",
    fix=("install the proprietary flavour of the driver (not nvidia-open)",),
    source=("https://github.com/NVIDIA/open-gpu-kernel-modules/issues/76",),
    requires=(requirements.nvidia_hardware,),
)
def driver_kernel_module(context: Context) -> Iterator[Verdict]:
    """Whether /proc/driver/nvidia/version says "Open Kernel Module", against the architecture of GPUs or profile."""
    is_open, architectures = context.nvidia.kernel_module_open, _architectures(context)
    if is_open is None or not architectures:
        missing = "the flavour of the kernel module" if is_open is None else "the architecture of the GPUs"
        yield Verdict("skip", f"Not checked: {missing} is not known")
        return
    flavour = "open" if is_open else "proprietary"
    for each in architectures:
        evidence = (f"loaded: the {flavour} kernel module {context.nvidia.kernel_module_version}",)
        if is_open and each.open_kernel_module == "refused":
            yield Verdict(
                "fail",
                f"The open kernel module does not drive {each.name}",
                each.name,
                evidence,
                fix=("replace nvidia-open by the proprietary flavour of the same driver, then: sudo reboot",),
            )
        else:
            yield Verdict("pass", f"The {flavour} kernel module drives {each.name}", each.name, evidence)
