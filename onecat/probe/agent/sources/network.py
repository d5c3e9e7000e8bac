"""TCP ports in use."""

# os.path spares every host the import of pathlib; one broken source must not cost the others.
# ruff: noqa: PTH100, PTH110, PTH115, PTH116, PTH118, PTH119, PTH120, PTH123, PTH208, BLE001
# mypy: disallow-untyped-defs=False, disallow-untyped-calls=False

import os
import sys
import time

from onecat.probe.agent.core import Unknown, needs_root, read_file_or_none

LOOKING_SECONDS = 0.3
"""How long to look for the programs behind ports: a busy machine has many files open."""


def listeners(machine, emit):
    found = {}
    tables = [name for name in ("/proc/net/tcp", "/proc/net/tcp6") if machine.exists(name)]
    if not tables:
        raise Unknown("absent", "/proc/net/tcp cannot be read")
    for name in tables:
        for line in machine.read(name).splitlines()[1:]:
            fields = line.split()
            if len(fields) > 9 and fields[3] == "0A":
                address, _, port = fields[1].partition(":")
                found[int(port, 16), decode_address(address)] = fields[9]
    programs = programs_of_sockets(set(found.values())) if machine.is_running else {}
    emit(
        listeners=[
            {"address": address, "port": port, "process": programs.get(inode)}
            for (port, address), inode in sorted(found.items())
        ]
    )
    if machine.is_running and not machine.is_root and len(programs) < len(set(found.values())):
        emit(note=needs_root("the programs behind other users' ports"))


def programs_of_sockets(inodes):
    """The names of the programs that hold sockets, by the socket's number, as far as this user may see."""
    links = {"socket:[" + inode + "]": inode for inode in inodes}
    programs = {}  # type: dict[str, str]
    deadline = time.monotonic() + LOOKING_SECONDS
    user = os.geteuid()
    for pid in os.listdir("/proc"):
        if len(programs) == len(links) or time.monotonic() > deadline:
            break
        if not pid.isdigit():
            continue
        folder = "/proc/" + pid + "/fd/"
        try:
            if user and os.stat("/proc/" + pid).st_uid != user:
                continue
            for number in os.listdir(folder):
                inode = links.get(os.readlink(folder + number))
                if inode is not None:
                    programs[inode] = (read_file_or_none("/proc/" + pid + "/comm") or "")[:32]
        except OSError:
            continue  # It has ended meanwhile, or shows its files to nobody.
    return programs


def decode_address(text):
    """An address of /proc/net/tcp: 32-bit words in the byte order of the machine."""
    words = [bytes.fromhex(text[start : start + 8]) for start in range(0, len(text), 8)]
    packed = b"".join(word[::-1] if sys.byteorder == "little" else word for word in words)
    if len(packed) == 4:
        return ".".join(map(str, packed))
    if packed in (bytes(16), bytes(15) + b"\1"):
        return "::1" if packed[-1] else "::"
    import socket

    return socket.inet_ntop(socket.AF_INET6, packed)


SOURCES = {"listeners": listeners}
