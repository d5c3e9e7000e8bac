"""`ADDRESS NAME=VALUE` lines of PCI functions in sysfs, which the collector prints for accelerators and their ports."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from onecat.probe.importers.registry import Capture, Part, importer
from onecat.probe.importers.text import pci_address, whole

_LINE = re.compile(r"^([0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]) (\w{1,40})=(.{0,4000})$", re.MULTILINE)
_WIDTHS = (1, 2, 4, 8, 12, 16, 32)


@importer(
    "sysfs pci", recognises=lambda text: _LINE.search(text) is not None, sections=("sysfs pci",), hints=("sysfs",)
)
def sysfs_pci(capture: Capture) -> Part:
    """The same facts as the agent's source `pci`; an empty section says that there is no accelerator."""
    functions: dict[str, dict[str, str]] = {}
    for address, name, value in _LINE.findall(capture.text):
        functions.setdefault(address, {}).setdefault(name, value.strip())
    devices = [
        _device(address, values, functions)
        for address, values in functions.items()
        if values.get("vendor") == "0x10de" and values.get("class", "").startswith("0x03")
    ]
    huawei = [
        address
        for address, values in functions.items()
        if values.get("vendor") == "0x19e5" and values.get("class", "").startswith("0x12")
    ]
    part: Part = {"nvidia": {"pci_devices": devices}} if devices else {}
    return {**part, **({"ascend": {"pci_devices": huawei}} if huawei else {})}


def _device(address: str, values: Mapping[str, str], functions: Mapping[str, Mapping[str, str]]) -> dict[str, Any]:
    device: dict[str, Any] = {
        "address": pci_address(address),
        "vendor_id": "10de",
        "device_id": values.get("device", "")[2:],
        "driver": values.get("driver") or None,
        **_link(values),
        "numa_node": whole(values.get("numa_node")),
    }
    if "path" in values:
        device["path"] = [_port(port, functions.get(port, {})) for port in values["path"].split()]
    return {key: value for key, value in device.items() if value is not None}


def _port(address: str, values: Mapping[str, str]) -> dict[str, Any]:
    port = {
        "address": address,
        "vendor_id": values.get("vendor", "")[2:] or None,
        "device_id": values.get("device", "")[2:] or None,
        **_link(values),
    }
    return {key: value for key, value in port.items() if value is not None}


def _link(values: Mapping[str, str]) -> dict[str, Any]:
    """A device that does not answer reads as a width of 0, 63 or 255."""
    link: dict[str, Any] = {}
    for state in ("current", "max"):
        width = whole(values.get(f"{state}_link_width"))
        if width in _WIDTHS:
            link[f"link_width_{state}"] = width
        speed = values.get(f"{state}_link_speed", "")
        if speed[:1].isdigit():
            link[f"link_speed_{state}"] = speed
    return link
