"""The version of the NVIDIA driver against the engine, the GPUs and itself."""

from __future__ import annotations

from collections.abc import Iterator

from onecat.doctor import requirements
from onecat.doctor.context import Context
from onecat.doctor.driver import INSTALL_GUIDE, architectures, driver_version, install_driver
from onecat.doctor.hardware import is_wsl
from onecat.doctor.kernel_log import events, quoted
from onecat.doctor.registry import Verdict, check
from onecat.doctor.units import told, version_key
from onecat.knowledge.hardware import cuda_families, driver_branches

MATRIX = "https://docs.nvidia.com/datacenter/tesla/drivers/cuda-toolkit-driver-and-architecture-matrix.html"
MINIMUM = "https://docs.nvidia.com/deploy/cuda-compatibility/minor-version-compatibility.html"
BRANCHES = "https://docs.nvidia.com/datacenter/tesla/drivers/620/supported-drivers-and-cuda-toolkit-versions.html"
MISMATCH = "https://github.com/NVIDIA/nvidia-container-toolkit/issues/394"


@check(
    "driver.minimum",
    title="The driver is new enough for the CUDA family of the engine",
    why="Programs built with CUDA 12 need driver 525 or newer, with CUDA 13 driver 580 or newer; on an older one "
    'they stop with "CUDA driver version is insufficient".',
    fix=(f"install a newer NVIDIA driver: {INSTALL_GUIDE}",),
    source=(MINIMUM,),
    requires=(requirements.gpus_matter,),
)
def driver_minimum(context: Context) -> Iterator[Verdict]:
    """The driver version against the least one for the profile's image and for every PyTorch that was seen.

    A newer driver is always fine.
    """
    version = driver_version(context)
    limits = context.profile.doctor.driver if context.profile and context.wants_gpus else None
    needs = [("", limits.minimum)] if limits else []
    for engine in context.facts.engines:
        major = version_key(engine.torch_cuda_version or "")[:1]
        family = next((each for each in cuda_families() if (each.family,) == major), None)
        if family is not None:
            needs.append((engine.where, family.minimum_driver))
    reason = requirements.gpu_profile(context) or "the profile names no least driver"
    if not needs:
        yield Verdict("skip", f"Not checked: {reason}, and no PyTorch for CUDA is known")
    elif version is None:
        yield Verdict("skip", "Not checked: the driver version is not known")
    else:
        for where, minimum in needs:
            yield _minimum(context, where, version, minimum)


def _minimum(context: Context, where: str, version: str, minimum: str) -> Verdict:
    family = next((each for each in cuda_families() if each.minimum_driver == minimum), None)
    what = f"CUDA {family.family}" if family else f"the profile {context.profile.name if context.profile else ''}"
    evidence = (f"driver: {version}", f"needed by {what}: {minimum}")
    if version_key(version) >= version_key(minimum):
        return Verdict("pass", f"Driver {version} runs {what}", where, evidence)
    return Verdict(
        "fail",
        f"Driver {version} is too old for {what}",
        where,
        evidence,
        fix=(install_driver(context), "sudo reboot"),
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
    version, found = driver_version(context), architectures(context)
    if version is None or not found:
        missing = "the driver version" if version is None else "the architecture of the GPUs"
        yield Verdict("skip", f"Not checked: {missing} is not known")
        return
    branch = version_key(version)[0]
    for each in found:
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
    is_open, found = context.nvidia.kernel_module_open, architectures(context)
    if is_open is None or not found:
        missing = "the flavour of the kernel module" if is_open is None else "the architecture of the GPUs"
        yield Verdict("skip", f"Not checked: {missing} is not known")
        return
    flavour = "open" if is_open else "proprietary"
    for each in found:
        evidence = (f"loaded: the {flavour} kernel module, version {told(context.nvidia.kernel_module_version)}",)
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


@check(
    "driver.versions",
    title="Kernel module and libraries of the driver are of one version",
    why="They talk to each other in a way that changes with every version. After an update of the packages the old "
    "kernel module stays until it is loaded anew.",
    fix=("sudo reboot", "cat /proc/driver/nvidia/version; ldconfig -p | grep -e libcuda.so -e libnvidia-ml.so"),
    source=(MISMATCH, "https://github.com/tinygrad/open-gpu-kernel-modules/issues/47"),
    requires=(requirements.nvidia_hardware,),
)
def driver_versions(context: Context) -> Iterator[Verdict]:
    """The versions of the loaded kernel module, of libnvidia-ml and of libcuda, and what the kernel log tells."""
    nvidia = context.nvidia
    module = nvidia.kernel_module_version
    libraries = {"libnvidia-ml": nvidia.library_version, "libcuda": nvidia.cuda_library_version}
    known = {name: version for name, version in libraries.items() if version}
    log = tuple(f"kernel log: {quoted(event)}" for event in events(context, "version-mismatch"))
    if is_wsl(context) or module is None or not known:
        missing = "libraries" if module and not is_wsl(context) else "kernel module"
        reason = (
            "in WSL the driver is that of Windows" if is_wsl(context) else f"the version of the {missing} is not known"
        )
        yield Verdict("skip", f"Not checked: {reason}", evidence=log)
        return
    evidence = (f"kernel module: {module}", *(f"{name}: {version}" for name, version in known.items()), *log)
    # A compatibility package is another version on purpose: cuda.compat-libraries judges it.
    meant = [version for version in known.values() if any(version in path for path in nvidia.compat_libraries)]
    other = [name for name, version in known.items() if version != module and version not in meant]
    # NVML that shows GPUs is proof that its library fits: the file that was found is then another copy.
    in_use = [name for name in other if not (name == "libnvidia-ml" and context.gpus)]
    if in_use:
        yield Verdict(
            "fail",
            f"The kernel module is {module}, {' and '.join(f'{name} {known[name]}' for name in in_use)}",
            evidence=evidence,
            fix=("sudo reboot", "when it stays: install kernel module and libraries from one source, in one version"),
        )
    elif other or log:
        yield Verdict(
            "warn",
            "A program used driver libraries of another version",
            evidence=evidence,
            fix=(
                "restart containers that ran while the driver was updated",
                "ldconfig -p | grep -e libcuda -e libnvidia-ml",
            ),
        )
    else:
        yield Verdict("pass", f"All are {module}", evidence=evidence)


@check(
    "driver.next-boot",
    title="The next boot loads the kernel module that is loaded now",
    why="A module on disk of another version than the libraries means that the GPUs are gone after the next reboot.",
    fix=("modinfo -F version nvidia", "install kernel module and libraries in one version"),
    source=(MISMATCH,),
    requires=(requirements.nvidia_hardware,),
)
def driver_next_boot(context: Context) -> Iterator[Verdict]:
    """The version of the kernel module on disk, which the next boot loads, against the libraries."""
    nvidia = context.nvidia
    later, library = nvidia.kernel_module_file_version, nvidia.library_version or nvidia.driver_version
    if later is None or library is None:
        missing = "kernel module on disk" if later is None else "libraries"
        yield Verdict("skip", f"Not checked: the version of the {missing} is not known")
        return
    evidence = (f"on disk: {later}", f"loaded: {told(nvidia.kernel_module_version)}", f"libraries: {library}")
    if later == library:
        yield Verdict("pass", f"The module on disk is {later}", evidence=evidence)
    else:
        yield Verdict(
            "warn",
            f"The next boot loads kernel module {later}, the libraries are {library}",
            evidence=evidence,
            fix=("dkms status", "install kernel module and libraries in one version, then: sudo reboot"),
        )


@check(
    "driver.end-of-life",
    title="The branch of the driver still gets updates",
    why="A branch past its end gets no fixes, not even for security. It works as before.",
    fix=(f"choose a supported branch: {BRANCHES}",),
    source=(BRANCHES,),
    requires=(requirements.nvidia_hardware,),
)
def driver_end_of_life(context: Context) -> Iterator[Verdict]:
    """The branch (first part of the driver's version) against NVIDIA's dates, on the day the facts were collected."""
    version = driver_version(context)
    branch = next((each for each in driver_branches() if version and each.branch == version_key(version)[0]), None)
    if version is None or branch is None:
        reason = f"onecat has no dates for the branch of {version}" if version else "the driver version is not known"
        yield Verdict("skip", f"Not checked: {reason}")
        return
    today = (context.facts.collected_at or "")[:7]
    if branch.end is not None and not today:
        yield Verdict("skip", "Not checked: the day on which the facts were collected is not known")
    elif branch.end is not None and today <= branch.end:
        yield Verdict("pass", f"Branch {branch.branch} ({branch.kind}) is supported until {branch.end}")
    else:
        ended = f" in {branch.end}" if branch.end else ""
        last = [each.last_driver_branch for each in architectures(context) if each.last_driver_branch]
        yield Verdict(
            "info",
            f"Branch {branch.branch} ({branch.kind}) has ended{ended}",
            evidence=(f"driver: {version}",),
            fix=(
                f"take branch {min(last)}, the last for this GPU: {BRANCHES}" if last else f"take a newer: {BRANCHES}",
            ),
            source=branch.source,
        )
