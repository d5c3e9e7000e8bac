"""df, with any of its options, from GNU coreutils or busybox, in any language: space and inodes of mounted places."""

from __future__ import annotations

import re
from typing import Any

from onecat.probe.importers.registry import Capture, Part, importer
from onecat.probe.importers.text import short_lines

_PURPOSES = {"/": "root", "/dev/shm": "shm", "/tmp": "tmp", "/var/lib/docker": "docker"}
_ROW = re.compile(r"(?:[0-9]{1,3}%|-)\s{1,20}/")
_KINDS = re.compile(r"[a-z][\w.-]{1,20}")
_IGNORED = frozenset(
    {"devtmpfs", "tmpfs", "shm", "squashfs", "efivarfs", "udev", "none", "overlay", "nsfs", "rootfs", "cgroup"}
)
_NOT_DISKS = ("/snap/", "/sys/", "/proc/", "/dev/", "/run", "/usr/bin/", "/usr/lib")
_BLOCKS = {"1": 1, "512": 512, "1K": 1024, "1024": 1024, "1M": 1 << 20, "1048576": 1 << 20, "1G": 1 << 30}
_POWERS = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4, "P": 5, "E": 6}


def _is_df(text: str) -> bool:
    return re.search(r"[0-9]%\s{1,20}/", text) is not None


@importer("df", recognises=_is_df, hints=("df", "filesystem", "mounted on"))
def df(capture: Capture) -> Part:
    """Places that matter by their purpose, other disks as `mount`. Sizes without a known unit are left out."""
    found: dict[str, dict[str, Any]] = {}
    unit: int | None = None
    of_inodes = False
    lines = short_lines(capture.text)
    for number, line in enumerate(lines):
        if not _ROW.search(line):
            # The header is the last line before the rows that is more than a device's name.
            if len(line.split()) >= 4:
                unit, of_inodes = _unit(line), _is_of_inodes(line)
            continue
        words = line.split()
        # A long device name stands on a line of its own.
        before = lines[number - 1].split() if number else []
        if line[:1].isspace() and len(before) == 1:
            words = before + words
        row = _row(words)
        if row is None:
            continue
        device, kind, numbers, path = row
        if (
            path not in _PURPOSES
            and not (capture.command or "").startswith("path ")
            and (device in _IGNORED or path.startswith(_NOT_DISKS))
        ):
            continue
        record = found.setdefault(path, {"purpose": _PURPOSES.get(path, "mount"), "path": path})
        if kind and "kind" not in record:
            record["kind"] = kind
        if of_inodes:
            _set(record, "inodes_available", _number(numbers[2], 1))
        else:
            _set(record, "total", _number(numbers[0], unit))
            _set(record, "available", _number(numbers[2], unit))
    records = [record for record in found.values() if len(record) > 2]
    command = capture.command or ""
    if command.startswith("path ") and "=" in command:
        purpose, _, path = command[5:].partition("=")
        records = [{**record, "purpose": purpose, "path": path} for record in records[:1]]
    elif re.fullmatch(r"df(?: -\w+)*", command) and "/" in found and "/tmp" not in found:
        # All places are listed and this is none of its own, so it is part of the root.
        records += [{**record, "purpose": "tmp", "path": "/tmp"} for record in records if record["path"] == "/"]
    return {"filesystems": records} if records else {}


def _row(words: list[str]) -> tuple[str, str | None, list[str], str] | None:
    """Device, kind, the three numbers, and the mount point of a row."""
    for at in range(len(words) - 1):
        if words[at + 1].startswith("/") and at >= 4 and re.fullmatch(r"[0-9]{1,3}%|-", words[at]):
            first = at - 3
            kind = words[first - 1] if first >= 2 and _KINDS.fullmatch(words[first - 1]) else None
            return words[0], kind, words[first:at], " ".join(words[at + 1 :])
    return None


def _unit(header: str) -> int | None:
    """Bytes in one unit of plain numbers; None when the header names no size of blocks."""
    match = re.search(r"(?<![0-9])(1K|1024|512|1M|1048576|1G|1)[- ]", header)
    return _BLOCKS[match.group(1)] if match else None


def _is_of_inodes(header: str) -> bool:
    return re.search(r"inode|\(I\)|I-?Nodes|IUse%|IFree", header, re.IGNORECASE) is not None


def _number(text: str, unit: int | None) -> int | None:
    match = re.fullmatch(r"([0-9]{1,18})(?:[.,]([0-9]{1,3}))?([KMGTPE]?)i?B?", text)
    if match is None:
        return None
    whole, fraction, power = match.groups()
    if not power:
        return int(whole) * unit if unit is not None else (0 if whole == "0" else None)
    return int((int(whole) + (float(f"0.{fraction}") if fraction else 0)) * 1024 ** _POWERS[power])


def _set(record: dict[str, Any], name: str, value: int | None) -> None:
    if value is not None:
        record.setdefault(name, value)
