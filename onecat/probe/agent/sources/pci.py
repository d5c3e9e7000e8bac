"""NVIDIA display functions in sysfs, which needs neither driver nor rights."""

# os.path spares every host the import of pathlib; one broken source must not cost the others.
# ruff: noqa: PTH100, PTH110, PTH118, PTH119, PTH120, PTH123, PTH208, BLE001
# mypy: disallow-untyped-defs=False, disallow-untyped-calls=False

import os
import re

from onecat.probe.agent.core import Unknown, as_int, read_file_or_none


def pci(machine, emit):
    """NVIDIA display functions in sysfs, which needs neither driver nor rights."""
    base = "/sys/bus/pci/devices"
    if not machine.exists(base):
        raise Unknown("absent", base + " does not exist")
    devices = []
    for address in machine.list(base):
        where = base + "/" + address
        read = lambda name, where=where: machine.read_or_none(where + "/" + name)  # noqa: E731
        if read("vendor") != "0x10de" or not (read("class") or "").startswith("0x03"):
            continue
        link = os.path.join(machine.path(where), "driver")
        devices.append(
            {
                "address": address,
                "vendor_id": "10de",
                "device_id": (read("device") or "")[2:],
                "driver": os.path.basename(os.path.realpath(link)) if os.path.exists(link) else None,
                "link_width_current": link_width(read("current_link_width")),
                "link_width_max": link_width(read("max_link_width")),
                "link_speed_current": read("current_link_speed"),
                "link_speed_max": read("max_link_speed"),
                "path": ports_above(os.path.realpath(machine.path(where))),
                "numa_node": as_int(read("numa_node")),
            }
        )
    emit(nvidia={"pci_devices": devices})


def ports_above(directory):
    """The bridges between a device and the processor, the nearest first."""
    ports = []  # type: list[dict[str, object]]
    while True:
        directory = os.path.dirname(directory)
        address = os.path.basename(directory)
        if not re.match(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$", address):
            return ports
        read = lambda name, directory=directory: read_file_or_none(os.path.join(directory, name))  # noqa: E731
        ports.append(
            {
                "address": address,
                "vendor_id": (read("vendor") or "")[2:] or None,
                "device_id": (read("device") or "")[2:] or None,
                "link_width_current": link_width(read("current_link_width")),
                "link_width_max": link_width(read("max_link_width")),
                "link_speed_current": read("current_link_speed"),
                "link_speed_max": read("max_link_speed"),
            }
        )


def link_width(text):
    """A PCIe link width; a device that does not answer reads as 0, 63 or 255."""
    width = as_int(text)
    return width if width in (1, 2, 4, 8, 12, 16, 32) else None


SOURCES = {"pci": pci}
