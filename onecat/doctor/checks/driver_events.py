"""What the kernel log says of the NVIDIA driver."""

from __future__ import annotations

from collections.abc import Iterator

from onecat.doctor import requirements
from onecat.doctor.context import Context
from onecat.doctor.driver import architectures, install_driver
from onecat.doctor.kernel_log import event_subject, events, quoted
from onecat.doctor.registry import Verdict, check

IGNORED = "https://github.com/NixOS/nixos-hardware/issues/1880"
REFUSED = "https://github.com/NVIDIA/gpu-operator/issues/553"


@check(
    "driver.gpu-ignored",
    title="The driver takes every GPU",
    why="The kernel module passes over GPUs that it does not support: too old for its branch, or before Turing for the "
    "open module. They do not exist for any program then.",
    fix=("install the branch that the kernel log names, for Volta: 580 with the proprietary module",),
    source=(IGNORED, "https://github.com/NVIDIA/open-gpu-kernel-modules/issues/76"),
    requires=(requirements.nvidia_hardware, requirements.kernel_log),
    to_pass=(requirements.whole_kernel_log,),
)
def driver_gpu_ignored(context: Context) -> Iterator[Verdict]:
    """Lines of the kernel log by which the driver says that it ignores a GPU."""
    ignored = events(context, "gpu-ignored")
    if not ignored:
        yield Verdict("pass", "The kernel log tells of no GPU that the driver ignores")
    branches = [each.last_driver_branch for each in architectures(context) if each.last_driver_branch]
    branch = min(branches) if branches else None
    for event in ignored:
        yield Verdict(
            "fail",
            "The driver ignores a GPU",
            event_subject(context, event),
            (quoted(event),),
            fix=(
                f"install NVIDIA driver {branch} with the proprietary kernel module"
                if branch
                else install_driver(context),
                "hold it back from upgrades (apt-mark hold, dnf versionlock)",
                "sudo reboot",
            ),
        )


@check(
    "driver.module-refused",
    title="The kernel accepts the NVIDIA module",
    why="Secure boot loads signed modules only, SELinux those with the right label, and a module that was built for "
    "another kernel none at all.",
    fix=("mokutil --sb-state", "modinfo nvidia | grep -e signer -e vermagic", "sudo modprobe nvidia"),
    source=(REFUSED, "https://docs.nvidia.com/datacenter/tesla/driver-installation-guide/"),
    requires=(requirements.nvidia_hardware, requirements.kernel_log),
    to_pass=(requirements.whole_kernel_log,),
)
def driver_module_refused(context: Context) -> Iterator[Verdict]:
    """Lines of the kernel log by which the kernel refuses a module, and whether secure boot is on."""
    refused, system = events(context, "module-refused"), context.facts.operating_system
    loaded = bool(context.nvidia.kernel_module_version or context.gpus)
    if not refused:
        yield Verdict("pass", "The kernel log tells of no refused module")
    for event in refused:
        secure_boot = (
            (f"secure boot: {'on' if system.secure_boot else 'off'}",)
            if system and system.secure_boot is not None
            else ()
        )
        yield Verdict(
            "info" if loaded else "fail",
            "The kernel refused a module once; the NVIDIA module is loaded now"
            if loaded
            else "The kernel refuses to load the NVIDIA module"
            if "nvidia" in event.text.lower()
            else "The kernel refused a module, and the NVIDIA module is not loaded",
            evidence=(quoted(event), *secure_boot),
            fix=(
                "secure boot: sign the module and enrol its key (sudo mokutil --import KEY, then reboot), or take the "
                "distribution's signed packages",
                "SELinux: sudo restorecon -Rv /lib/modules/$(uname -r)",
                "another kernel: sudo dkms autoinstall",
            ),
        )
