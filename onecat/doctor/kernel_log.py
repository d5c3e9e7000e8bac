"""What checks ask of the lines of the kernel log again and again."""

from __future__ import annotations

from onecat.doctor.context import Context
from onecat.doctor.hardware import device_at, function, gpu_at, subject
from onecat.facts import KernelEvent


def event_subject(context: Context, event: KernelEvent) -> str:
    """The GPU that a line of the kernel log is about, else its PCI address, else nothing."""
    gpu = gpu_at(context, event.address)
    return subject(gpu) if gpu else event.address or ""


def quoted(event: KernelEvent) -> str:
    """A line of the kernel log as evidence."""
    return f"{event.text} ({event.count} times)" if event.count > 1 else event.text


def events(context: Context, *kinds: str) -> tuple[KernelEvent, ...]:
    """The events of some kinds in the kernel log."""
    return tuple(event for event in context.facts.kernel_events or () if event.kind in kinds)


def concerns_gpus(context: Context, event: KernelEvent) -> bool:
    """Whether a line of the kernel log is about a GPU or a port above one; without the bus, any may be."""
    devices = context.nvidia.pci_devices
    if not devices or event.address is None:
        return True
    above = {function(port.address) for device in devices for port in device.path or ()}
    return device_at(context, event.address) is not None or function(event.address) in above
