"""NVIDIA functions on the PCI bus and the ports above them, which need neither driver nor, mostly, rights."""

# ruff: noqa: PTH115, PTH118, PTH119, PTH120, PTH123
# mypy: disallow-untyped-defs=False, disallow-untyped-calls=False

import os

from onecat.probe.agent.core import Late, Unknown, as_int, needs_root, read_file_or_none

re = Late("re")

DEVICES = "/sys/bus/pci/devices"
NVIDIA = "0x10de"
DISPLAY_CLASS, SWITCH_CLASS = "0x03", "0x0680"
NAMES = ("/usr/share/misc/pci.ids", "/usr/share/hwdata/pci.ids")
ADDRESS = r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$"

# Offsets and bits of the configuration space: include/uapi/linux/pci_regs.h of Linux.
CAPABILITIES, EXPRESS_CAPABILITY, LINK_CONTROL = 0x34, 0x10, 0x10
STANDARD_SIZE, EXTENDED_START, ACS_CAPABILITY, ACS_CONTROL = 64, 0x100, 0x000D, 0x06
ASPM = ("disabled", "L0s", "L1", "L0s L1")
ACS = ("SrcValid", "TransBlk", "ReqRedir", "CmpltRedir", "UpstreamFwd", "EgressCtrl", "DirectTrans")
"""As lspci names the bits, the lowest first."""


def pci(machine, emit):
    if not machine.exists(DEVICES):
        raise Unknown("absent", DEVICES + " does not exist")
    emit(pci=bus(machine))
    devices, switches, ports = [], 0, {}  # type: ignore[var-annotated]
    for address in machine.list(DEVICES):
        directory = os.path.realpath(machine.path(DEVICES + "/" + address))
        if read(directory, "vendor") != NVIDIA:
            continue
        kind = read(directory, "class") or ""
        switches += kind.startswith(SWITCH_CLASS)
        if kind.startswith(DISPLAY_CLASS):
            emit(doing="reading " + directory)
            devices.append(device(address, directory, ports))
    names = device_names(machine, {each["device_id"] for each in devices})
    for each in devices:
        each["name"] = names.get(each["device_id"])
    emit(nvidia={"pci_devices": devices, "nvswitches": switches})
    if any(port["acs"] is None and len(read_config(place)) == STANDARD_SIZE for place, port in ports.items()):
        emit(note=needs_root("access control (ACS) of the PCI ports above the GPUs"))


def bus(machine):
    policies = machine.read_or_none("/sys/module/pcie_aspm/parameters/policy") or ""
    groups = "/sys/kernel/iommu_groups"
    return {
        "aspm_policy": policies.partition("[")[2].partition("]")[0] or None,
        "iommu_groups": len(machine.list(groups)) if machine.exists(groups) else None,
    }


def device(address, directory, ports):
    """A display function. ports: those that were read before, by directory, which grows."""
    config = read_config(directory)
    driver, group = (link_name(directory, name) for name in ("driver", "iommu_group"))
    return dict(
        link(directory, config),
        address=address,
        vendor_id=NVIDIA[2:],
        device_id=(read(directory, "device") or "")[2:],
        driver=driver,
        path=ports_above(directory, ports),
        numa_node=as_int(read(directory, "numa_node")),
        iommu_group=as_int(group),
        errors_correctable=error_total(directory, "aer_dev_correctable"),
        errors_nonfatal=error_total(directory, "aer_dev_nonfatal"),
        errors_fatal=error_total(directory, "aer_dev_fatal"),
        responds=config[:4] != b"\xff" * 4 if config else None,
    )


def ports_above(directory, ports):
    """The bridges between a device and the processor, the nearest first."""
    path = []  # type: list[dict[str, object]]
    while True:
        directory = os.path.dirname(directory)
        address = os.path.basename(directory)
        if not re.match(ADDRESS, address):
            return path
        if directory not in ports:
            config = read_config(directory)
            ports[directory] = dict(
                link(directory, config),
                address=address,
                vendor_id=(read(directory, "vendor") or "")[2:] or None,
                device_id=(read(directory, "device") or "")[2:] or None,
                acs=access_control(config),
            )
        path.append(ports[directory])


def link(directory, config):
    """What devices and ports have in common."""
    return {
        "link_width_current": link_width(read(directory, "current_link_width")),
        "link_width_max": link_width(read(directory, "max_link_width")),
        "link_speed_current": read(directory, "current_link_speed"),
        "link_speed_max": read(directory, "max_link_speed"),
        "aspm": power_states(directory, config),
    }


def read(directory, name):
    return read_file_or_none(os.path.join(directory, name))


def link_name(directory, name):
    try:
        return os.path.basename(os.readlink(os.path.join(directory, name)))
    except OSError:
        return None


def link_width(text):
    """A PCIe link width; a device that does not answer reads as 0, 63 or 255."""
    width = as_int(text)
    return width if width in (1, 2, 4, 8, 12, 16, 32) else None


def read_config(directory):
    """The configuration space: 64 bytes of it without root, else 256 or 4096; empty when it cannot be read."""
    try:
        with open(os.path.join(directory, "config"), "rb") as file:
            return file.read(4096)
    except OSError:
        return b""


def number(config, offset, size):
    return int.from_bytes(config[offset : offset + size], "little")


def power_states(directory, config):
    """The power saving states that a link may enter by itself: as the device is set, else as the kernel says."""
    where = find_capability(config, EXPRESS_CAPABILITY)
    if where:
        return ASPM[number(config, where + LINK_CONTROL, 2) & 3]
    states = [(name, read(directory, f"link/{name.lower()}_aspm")) for name in ("L0s", "L1")]
    if all(state is None for _, state in states):
        return None
    return " ".join(name for name, state in states if state == "1") or "disabled"


def find_capability(config, wanted):
    """The offset of a capability, 0 when there is none or only the header of the space may be read."""
    where, seen = number(config, CAPABILITIES, 1) & 0xFC, set()
    while STANDARD_SIZE <= where < len(config) - 1 and where not in seen:
        if config[where] == wanted:
            return where
        seen.add(where)
        where = config[where + 1] & 0xFC
    return 0


def access_control(config):
    """The access control services that are on; None when the extended space cannot be read."""
    if len(config) <= EXTENDED_START:
        return None
    where, seen = EXTENDED_START, set()
    while EXTENDED_START <= where < len(config) - 8 and where not in seen:
        header = number(config, where, 4)
        if header & 0xFFFF == ACS_CAPABILITY:
            control = number(config, where + ACS_CONTROL, 2)
            return [name for bit, name in enumerate(ACS) if control >> bit & 1]
        seen.add(where)
        where = header >> 20 & 0xFFC
    return []


def error_total(directory, name):
    """The sum that ends a file of PCIe Advanced Error Reporting."""
    match = re.search(r"TOTAL_ERR_\w+ (\d+)", read(directory, name) or "")
    return int(match.group(1)) if match else None


def device_names(machine, identifiers):
    """NVIDIA devices as lspci names them, by their id, from its own table where it is installed."""
    text = next(filter(None, map(machine.read_or_none, NAMES)), "") if identifiers else ""
    start = text.find("\n10de  ")
    if start < 0:
        return {}
    vendor = text[start + 1 : text.find("\n", start + 1)][6:]
    end = re.compile(r"^[0-9a-f]{4}  ", re.MULTILINE).search(text, start + 7)
    part = text[start : end.start() if end else len(text)]
    found = re.findall(r"^\t([0-9a-f]{4})  (.+)$", part, re.MULTILINE)
    return {identifier: f"{vendor} {name}" for identifier, name in found if identifier in identifiers}


SOURCES = {"pci": pci}
