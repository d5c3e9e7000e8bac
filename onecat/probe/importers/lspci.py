"""lspci, with -vvv, -nn, -k or nothing: NVIDIA's GPUs, the bridges above them, NVSwitches and Huawei's accelerators.

What lspci prints: https://github.com/pciutils/pciutils (ls-caps.c, ls-ecaps.c).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from onecat.probe.importers.registry import Capture, Part, importer
from onecat.probe.importers.text import pci_address, short_lines, whole

_HEAD = re.compile(
    r"((?:[0-9a-f]{4,8}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]) ([^:\[\n]{0,80}?)(?: ?\[?([0-9a-f]{4})\]?)?: (\S.*)"
)
_IDS = re.compile(r"\[?\b([0-9a-f]{4}):([0-9a-f]{4})\b\]?")
_LINK = re.compile(r"Speed ([0-9.]{1,5}) ?GT/s[^,]{0,20}, Width x([0-9]{1,2})")
_NVSWITCHES = frozenset({"1ac0", "1ac1", "1ac2", "1af1", "22a3", "2901"})
"""https://pci-ids.ucw.cz/read/PC/10de: Volta, Ampere, Hopper and Blackwell NVSwitches."""


@dataclass
class Block:
    """What lspci prints of one PCI function."""

    address: str
    kind: str
    class_id: str | None
    name: str
    vendor_id: str | None
    device_id: str | None
    lines: list[str] = field(default_factory=list)

    @property
    def is_nvidia(self) -> bool:
        return self.vendor_id == "10de" or (self.vendor_id is None and self.name.startswith("NVIDIA"))

    @property
    def is_display(self) -> bool:
        return (self.class_id or "").startswith("03") or self.kind in (
            "3D controller",
            "VGA compatible controller",
            "Display controller",
        )

    @property
    def is_bridge(self) -> bool:
        return self.class_id == "0604" or self.kind == "PCI bridge"

    def value(self, label: str) -> str | None:
        """What follows a label at the beginning of a line, as "LnkSta:"."""
        return next((line[len(label) :].strip() for line in self.lines if line.startswith(label)), None)


def _is_lspci(text: str) -> bool:
    return re.search(rf"^{_HEAD.pattern}", text, re.MULTILINE) is not None


@importer("lspci", recognises=_is_lspci, hints=("lspci", "pci", "controller"))
def lspci(capture: Capture) -> Part:
    """GPUs with the ports above them, which only a listing of all functions tells."""
    blocks = list(_blocks(capture.text))
    above = _Bridges(blocks)
    devices = [_device(block, above) for block in blocks if block.is_nvidia and block.is_display]
    part: Part = {}
    nvidia: dict[str, Any] = {}
    if devices:
        nvidia["pci_devices"] = devices
    switches = sum(block.is_nvidia and _is_nvswitch(block) for block in blocks)
    if switches:
        nvidia["nvswitches"] = switches
    if nvidia:
        part["nvidia"] = nvidia
    huawei = [block.address for block in blocks if _is_huawei_accelerator(block)]
    if huawei:
        part["ascend"] = {"pci_devices": huawei}
    return part


def _blocks(text: str) -> Iterator[Block]:
    seen: set[str] = set()
    block: Block | None = None
    for line in short_lines(text):
        if line[:1] in "0123456789abcdef" and (match := _HEAD.match(line)):
            address, kind, class_id, rest = match.groups()
            full = pci_address(address)
            if block:
                yield block
            block = None
            if full and full not in seen:
                seen.add(full)
                block = _head(full, kind.strip(), class_id, rest)
        elif block and line[:1] in "\t ":
            block.lines.append(line.strip())
        elif block and line.strip():
            yield block
            block = None
    if block:
        yield block


def _head(address: str, kind: str, class_id: str | None, rest: str) -> Block:
    ids = next(reversed(list(_IDS.finditer(rest))), None)
    name = rest
    if ids and ids.group().startswith("["):
        name = rest[: ids.start()]
    elif ids:
        name = ""
    # Without an entry in its list lspci prints the number in the place of the name.
    unlisted = re.search(r" Device ([0-9a-f]{4})\b(?! \[)", rest)
    name = re.sub(r" \((?:rev|prog-if) [^)]{0,40}\)", "", name).strip()
    return Block(
        address,
        kind,
        class_id,
        name,
        ids.group(1) if ids else None,
        ids.group(2) if ids else (unlisted.group(1) if unlisted else None),
        [f"head: {rest}"],
    )


class _Bridges:
    """The tree of a listing: which bridge leads to which bus."""

    def __init__(self, blocks: list[Block]) -> None:
        self.by_bus: dict[tuple[str, int], tuple[Block, int]] = {}
        self.buses: set[tuple[str, int]] = set()
        for block in blocks:
            domain, bus = _place(block.address)
            if block.is_bridge or block.kind == "Host bridge" or block.class_id == "0600":
                self.buses.add((domain, bus))
            numbers = re.match(r"primary=([0-9a-f]{2}), secondary=([0-9a-f]{2})", block.value("Bus:") or "")
            if numbers:
                self.by_bus.setdefault((domain, int(numbers.group(2), 16)), (block, bus))

    def path(self, address: str) -> list[dict[str, Any]] | None:
        """The ports above a function, the nearest first; None when the listing does not show them up to the root."""
        domain, bus = _place(address)
        ports: list[Block] = []
        while (domain, bus) in self.by_bus and len(ports) < 32:
            port, bus = self.by_bus[(domain, bus)]
            ports.append(port)
        if not ports:
            return [] if (domain, bus) in self.buses else None
        kind = _express(ports[-1])
        if "Upstream" in kind or "Downstream" in kind:
            return None
        return [_port(block) for block in ports]


def _place(address: str) -> tuple[str, int]:
    domain, bus, _ = address.split(":")
    return domain, int(bus, 16)


def _express(block: Block) -> str:
    """What the Express capability says: "Root Port (Slot+)", "Endpoint"."""
    return next((line.partition("Express")[2] for line in block.lines if "] Express" in line), "")


def _port(block: Block) -> dict[str, Any]:
    port = {
        "address": block.address,
        "vendor_id": block.vendor_id,
        "device_id": block.device_id,
        **_link(block),
        "aspm": _aspm(block),
        "acs": _acs(block),
    }
    return {key: value for key, value in port.items() if value is not None}


def _link(block: Block) -> dict[str, Any]:
    link: dict[str, Any] = {}
    for label, state in (("LnkCap:", "max"), ("LnkSta:", "current")):
        match = _LINK.search(block.value(label) or "")
        if match and match.group(2) != "0":
            link[f"link_speed_{state}"] = f"{float(match.group(1)):.1f} GT/s PCIe"
            link[f"link_width_{state}"] = int(match.group(2))
    return link


def _aspm(block: Block) -> str | None:
    match = re.match(r"ASPM (Disabled|(?:L0s|L1)(?: L1)?)(?: Enabled)?", block.value("LnkCtl:") or "")
    if match is None:
        return None
    return "disabled" if match.group(1) == "Disabled" else match.group(1)


def _acs(block: Block) -> list[str] | None:
    control = block.value("ACSCtl:")
    if control is not None:
        return re.findall(r"(\w{3,20})\+", control)
    # Extended capabilities are listed only to root; a port that shows some and not this one does not have it.
    extended = any(re.match(r"Capabilities: \[[0-9a-f]{3} ", line) for line in block.lines)
    return [] if extended else None


def _device(block: Block, above: _Bridges) -> dict[str, Any]:
    numa = block.value("NUMA node:")
    group = block.value("IOMMU group:")
    device: dict[str, Any] = {
        "address": block.address,
        "vendor_id": "10de",
        "device_id": block.device_id or "",
        "name": block.name or None,
        "driver": block.value("Kernel driver in use:"),
        **_link(block),
        "path": above.path(block.address),
        "numa_node": whole(numa),
        "iommu_group": whole(group),
        "aspm": _aspm(block),
        "responds": _responds(block),
    }
    return {key: value for key, value in device.items() if value is not None}


def _responds(block: Block) -> bool | None:
    if "(rev ff)" in block.lines[0] or any("Unknown header type 7f" in line for line in block.lines):
        return False
    return True if block.value("Control:") else None


def _is_nvswitch(block: Block) -> bool:
    is_bridge = block.class_id == "0680" or block.kind == "Bridge"
    return is_bridge and (block.device_id in _NVSWITCHES or "NVSwitch" in block.name)


def _is_huawei_accelerator(block: Block) -> bool:
    is_accelerator = block.class_id == "1200" or block.kind == "Processing accelerators"
    return is_accelerator and (block.vendor_id == "19e5" or block.name.startswith("Huawei"))
