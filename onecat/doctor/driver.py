"""What checks of the driver share."""

from __future__ import annotations

from onecat.doctor.context import Context
from onecat.doctor.hardware import compute_capability
from onecat.doctor.units import version_key
from onecat.knowledge.hardware import Architecture, architecture, gpu_model_by_device

INSTALL_GUIDE = "https://docs.nvidia.com/datacenter/tesla/driver-installation-guide/"


def driver_version(context: Context) -> str | None:
    """The driver version, if it is one that can be compared."""
    candidates = (context.nvidia.driver_version, context.nvidia.kernel_module_version)
    return next((version for version in candidates if version and version_key(version)), None)


def architectures(context: Context) -> tuple[Architecture, ...]:
    """Of the GPUs that the driver shows and of those on the PCI bus by their numbers, else of the profile."""
    capabilities = {compute_capability(gpu) for gpu in context.gpus}
    # A card that was given to another driver (vfio-pci for a virtual machine) is not this one's.
    devices = [device for device in context.nvidia.pci_devices if device.driver in (None, "nvidia")]
    models = [gpu_model_by_device(device.device_id) for device in devices]
    capabilities |= {model.compute_capability for model in models if model is not None}
    if not capabilities and context.profile is not None:
        capabilities = {context.profile.hardware.compute_capability}
    found = (architecture(capability) for capability in sorted(each for each in capabilities if each))
    return tuple(dict.fromkeys(each for each in found if each is not None))


def install_driver(context: Context) -> str:
    """How to get the driver that the profile recommends."""
    limits = context.profile.doctor.driver if context.profile else None
    branch = limits.recommended_branch if limits else None
    return f"install {f'NVIDIA driver {branch}' if branch else 'the NVIDIA driver'}: {INSTALL_GUIDE}"
