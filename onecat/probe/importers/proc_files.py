"""Files of /proc and /sys that say little by themselves: the collector's sections name them."""

from __future__ import annotations

import datetime
import re
from typing import Any

from onecat.probe.importers.registry import Capture, Part, holds, importer
from onecat.probe.importers.text import short_lines

_ID = re.compile(r"^uid=([0-9]{1,10})\(([^)\n]{1,80})\)", re.MULTILINE)
_POLICY = re.compile(r"^(?=.*\[\w+\])(?=.*default)(?=.*performance)[\w\[\] ]{10,80}$", re.MULTILINE)


@importer("/proc/sys/kernel/osrelease", recognises=lambda text: False, sections=("/proc/sys/kernel/osrelease",))
def kernel_release(capture: Capture) -> Part:
    word = capture.text.strip()
    return {"operating_system": {"kernel": word}} if re.fullmatch(r"[0-9]\S{1,100}", word) else {}


@importer("/proc/cmdline", recognises=lambda text: text.startswith("BOOT_IMAGE="), sections=("/proc/cmdline",))
def kernel_command_line(capture: Capture) -> Part:
    line = capture.text.strip().partition("\n")[0]
    return {"operating_system": {"kernel_command_line": line}} if line else {}


@importer("/proc/modules", recognises=lambda text: False, sections=("/proc/modules", "lsmod"), hints=("lsmod",))
def modules(capture: Capture) -> Part:
    """Whether nouveau is loaded."""
    names = {line.partition(" ")[0] for line in short_lines(capture.text)}
    return {"nvidia": {"nouveau_loaded": "nouveau" in names}} if len(names) > 3 else {}


@importer("ASPM policy", recognises=lambda text: _POLICY.search(text) is not None, hints=("aspm",))
def aspm_policy(capture: Capture) -> Part:
    match = _POLICY.search(capture.text)
    chosen = re.search(r"\[(\w+)\]", match.group()) if match else None
    return {"pci": {"aspm_policy": chosen.group(1)}} if chosen else {}


@importer("id", recognises=lambda text: _ID.search(text) is not None, sections=("id",), hints=("uid",))
def user(capture: Capture) -> Part:
    match = _ID.search(capture.text)
    return {"user": match.group(2), "is_root": match.group(1) == "0"} if match else {}


@importer("date +%s", recognises=lambda text: False, sections=("date +%s",))
def time(capture: Capture) -> Part:
    if not re.fullmatch(r"\s*[0-9]{9,11}\s*", capture.text):
        return {}
    moment = datetime.datetime.fromtimestamp(int(capture.text), datetime.timezone.utc)
    return {"collected_at": moment.strftime("%Y-%m-%dT%H:%M:%SZ")}


@importer("sudo", recognises=lambda text: False, sections=("sudo",))
def sudo(capture: Capture) -> Part:
    """That sudo did not let, which the collector says in one word."""
    if capture.text.strip() != "refused":
        return {}
    return {"notes": [{"source": "sudo", "kind": "permission", "text": "sudo refused: observed without root"}]}


@importer(
    "/proc/mounts", recognises=holds(" / overlay ", " / ext4 ", " / xfs ", " / btrfs "), sections=("/proc/mounts",)
)
def mounts(capture: Capture) -> Part:
    """The kind of file system of the places that matter; their space comes from df."""
    purposes = {"/": "root", "/dev/shm": "shm", "/tmp": "tmp", "/var/lib/docker": "docker"}
    kinds: dict[str, str] = {}
    for line in short_lines(capture.text):
        fields = line.split()
        if len(fields) >= 6 and fields[1] in purposes:
            kinds[fields[1]] = fields[2]
    if "/" in kinds:
        kinds.setdefault("/tmp", kinds["/"])
    found = [{"purpose": purposes[path], "path": path, "kind": kind} for path, kind in kinds.items()]
    return {"filesystems": found} if found else {}


_SOCKET = re.compile(r"^ *[0-9]{1,6}: ([0-9A-F]{8}|[0-9A-F]{32}):([0-9A-F]{4}) [0-9A-F]{8,32}:0000 0A ", re.MULTILINE)


@importer("/proc/net/tcp", recognises=lambda text: _SOCKET.search(text) is not None, sections=("/proc/net/tcp",))
def sockets(capture: Capture) -> Part:
    """Ports that listen. The addresses are taken to be of a little-endian machine, as all supported ones are."""
    from ipaddress import IPv4Address, IPv6Address

    listeners: list[dict[str, Any]] = []
    for digits, port in _SOCKET.findall(capture.text):
        words = [bytes.fromhex(digits[at : at + 8])[::-1] for at in range(0, len(digits), 8)]
        packed = b"".join(words)
        address = str(IPv4Address(packed) if len(packed) == 4 else IPv6Address(packed))
        listeners.append({"address": address, "port": int(port, 16)})
    return {"listeners": listeners} if listeners else {}
