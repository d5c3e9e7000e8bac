"""What checks ask of a host's GPUs and of its machine again and again."""

from __future__ import annotations

from onecat.doctor.context import Context
from onecat.doctor.cuda_code import capability_of
from onecat.facts import Gpu, PciDevice
from onecat.knowledge.hardware import Architecture, architecture, gpu_model

CONTAINERS = ("docker", "podman", "lxc", "lxc-libvirt", "systemd-nspawn", "rkt", "openvz", "proot", "pouch")
"""Words of systemd-detect-virt for containers: they say nothing about the machine below."""


def subject(gpu: Gpu) -> str:
    """How a GPU is called in findings."""
    return f"GPU {gpu.index}"


def place(gpu: Gpu) -> str:
    """A GPU with its name and PCI address, as evidence."""
    return f"{gpu.name} at {gpu.pci_address}" if gpu.pci_address else gpu.name


def compute_capability(gpu: Gpu) -> str | None:
    """As NVML reports it, else as the table of products has it."""
    if capability_of(gpu.compute_capability) is not None:
        return gpu.compute_capability
    model = gpu_model(gpu.name)
    return model.compute_capability if model else None


def meant(context: Context) -> tuple[Gpu, ...]:
    """The GPUs that a server of the profile is to use.

    Where enough of them have the profile's compute capability, a card beside them (for the display, say) is left out.
    """
    if context.profile is None:
        return context.gpus
    hardware = context.profile.hardware
    fitting = tuple(gpu for gpu in context.gpus if compute_capability(gpu) == hardware.compute_capability)
    return fitting if fitting and len(fitting) >= hardware.count else context.gpus


def architecture_of(gpu: Gpu) -> Architecture | None:
    """The architecture of a GPU, or None when neither NVML nor the table of products tells."""
    return architecture(compute_capability(gpu))


def is_wsl(context: Context) -> bool:
    """Whether this is Windows' subsystem for Linux, where the driver is Windows' own."""
    system = context.facts.operating_system
    return system is not None and system.virtualization == "wsl"


def is_virtual_machine(context: Context) -> bool | None:
    """Whether the host is a virtual machine; None when not known (a container does not see what is below)."""
    if any(gpu.virtualization_mode in ("pass-through", "vgpu") for gpu in context.gpus):
        return True
    system = context.facts.operating_system
    if system is None or system.virtualization is None or system.virtualization in CONTAINERS:
        return None
    return system.virtualization != "none"


def is_given_away(context: Context) -> bool:
    """Whether every NVIDIA device was given to a virtual machine of this host (vfio-pci): then no driver is missed."""
    devices = context.nvidia.pci_devices
    return bool(devices) and all(device.driver == "vfio-pci" for device in devices)


def several_gpus(context: Context) -> bool:
    """Whether one model is to be spread over GPUs: by the profile; without one, where it has several."""
    if context.profile is not None:
        return context.wants_gpus and context.profile.hardware.count > 1
    return max(len(context.gpus), len(context.nvidia.pci_devices)) > 1


def function(address: str | None) -> str | None:
    """A PCI address without its function, which NVIDIA's messages leave out: 0000:3b:00.0 -> 0000:3b:00."""
    return address.partition(".")[0].lower() if address else None


def gpu_at(context: Context, address: str | None) -> Gpu | None:
    """The GPU at a PCI address, with or without function.

    A lost GPU has no address any more: it is the one at the only address on the bus where no other GPU is.
    """
    wanted = function(address)
    if wanted is None:
        return None
    found = next((gpu for gpu in context.nvidia.gpus if function(gpu.pci_address) == wanted), None)
    if found is not None:
        return found
    lost = [gpu for gpu in context.nvidia.gpus if gpu.pci_address is None]
    shown = {function(gpu.pci_address) for gpu in context.nvidia.gpus}
    others = {function(device.address) for device in context.nvidia.pci_devices} - shown - {wanted}
    return lost[0] if len(lost) == 1 and lost[0].error is not None and not others else None


def device_at(context: Context, address: str | None) -> PciDevice | None:
    """The NVIDIA device at a PCI address, with or without function."""
    wanted = function(address)
    return next((each for each in context.nvidia.pci_devices if wanted and function(each.address) == wanted), None)
