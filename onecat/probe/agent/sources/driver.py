"""The kernel side of the NVIDIA driver."""

# os.path spares every host the import of pathlib; one broken source must not cost the others.
# ruff: noqa: PTH100, PTH110, PTH118, PTH119, PTH120, PTH123, PTH208, BLE001
# mypy: disallow-untyped-defs=False, disallow-untyped-calls=False

import re


def driver(machine, emit):
    """The kernel side: which module is loaded, in which version and flavour."""
    facts = {
        "nouveau_loaded": machine.exists("/sys/module/nouveau")
        or re.search(r"^nouveau ", machine.read_or_none("/proc/modules") or "", re.MULTILINE) is not None
    }
    text = machine.read_or_none("/proc/driver/nvidia/version")
    if text:
        first = text.splitlines()[0]
        match = re.search(r"\b(\d+\.\d+(?:\.\d+)*)\b", first)
        facts["kernel_module_version"] = match.group(1) if match else None
        facts["kernel_module_open"] = "Open Kernel Module" in first
    else:
        facts["kernel_module_version"] = machine.read_or_none("/sys/module/nvidia/version")
    emit(nvidia=facts)


SOURCES = {"driver": driver}
