"""The NVIDIA driver: that it is loaded and answers."""

from __future__ import annotations

from collections.abc import Iterator

from onecat.doctor import requirements
from onecat.doctor.context import Context
from onecat.doctor.driver import INSTALL_GUIDE, install_driver
from onecat.doctor.hardware import is_given_away, is_wsl
from onecat.doctor.packages import rebuild_initramfs
from onecat.doctor.registry import Verdict, check
from onecat.knowledge.hardware import nvml_error


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
        version = f" {nvidia.driver_version}" if nvidia.driver_version else ""
        yield Verdict("pass", f"Driver{version} is loaded", evidence=("the driver shows GPUs",))
    elif is_wsl(context):
        yield Verdict("skip", "Not checked: in WSL the driver is that of Windows")
    elif context.facts.note("driver"):
        yield Verdict("skip", f"Not checked: {context.why_absent('driver', '')}")
    elif is_given_away(context) and not context.wants_gpus:
        yield Verdict("skip", "Not checked: every NVIDIA device of this host is for virtual machines (vfio-pci)")
    elif not context.driver_was_looked_for:
        yield Verdict("skip", "Not checked: whether the module is loaded is not in the captures (nvidia-smi shows it)")
    else:
        system = context.facts.operating_system
        secure_boot = system is not None and system.secure_boot is True
        addresses = ", ".join(device.address for device in nvidia.pci_devices)
        yield Verdict(
            "fail",
            "The NVIDIA kernel module is not loaded",
            evidence=(
                "neither /proc/driver/nvidia/version nor /sys/module/nvidia/version exists",
                f"NVIDIA devices on the PCI bus: {addresses or 'none'}",
            ),
            fix=(
                install_driver(context),
                "if it is installed: sudo modprobe nvidia, then read sudo dmesg | grep -i nvrm",
                *(("secure boot is on: the module must be signed, see driver.module-refused",) if secure_boot else ()),
            ),
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
                rebuild_initramfs(context.facts.operating_system),
                install_driver(context),
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
