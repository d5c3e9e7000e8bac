"""TCP ports in use."""

# os.path spares every host the import of pathlib; one broken source must not cost the others.
# ruff: noqa: PTH100, PTH110, PTH115, PTH116, PTH118, PTH119, PTH120, PTH123, PTH208, BLE001
# mypy: disallow-untyped-defs=False, disallow-untyped-calls=False

import _socket  # What is behind socket, which makes hundreds of enum members: that costs more than all that is here.
import os
import struct
import sys
import time

from onecat.probe.agent.core import Unknown, needs_root, read_file_or_none

LOOKING_SECONDS = 0.3
"""How long to look for the programs behind ports: a busy machine has many files open."""

NETLINK_SOCK_DIAG = 4
SOCK_DIAG_BY_FAMILY = 20
REQUEST_DUMP = 0x301
DONE, ERROR = 3, 2
LISTEN = 10


def listeners(machine, emit):
    try:
        found = asked_listeners() if machine.is_running else None
    except OSError:
        found = None  # A sandbox without netlink.
    if found is None:
        found = tabled_listeners(machine)
    programs = programs_of_sockets(set(found.values())) if machine.is_running else {}
    emit(
        listeners=[
            {"address": address, "port": port, "process": programs.get(inode)}
            for (port, address), inode in sorted(found.items())
        ]
    )
    if machine.is_running and not machine.is_root and len(programs) < len(set(found.values())):
        emit(note=needs_root("the programs behind other users' ports"))


def asked_listeners():
    """Sockets that listen, as the kernel tells them by themselves: {(port, address): number of the socket}.

    /proc/net/tcp walks through every bucket of the table of all connections, which takes milliseconds.
    Source: https://man7.org/linux/man-pages/man7/sock_diag.7.html
    """
    found = {}
    kernel = _socket.socket(_socket.AF_NETLINK, _socket.SOCK_RAW, NETLINK_SOCK_DIAG)
    try:
        kernel.settimeout(1.0)
        for family, length in ((_socket.AF_INET, 4), (_socket.AF_INET6, 16)):
            wanted = struct.pack("=BBBBI48x", family, _socket.IPPROTO_TCP, 0, 0, 1 << LISTEN)
            kernel.send(struct.pack("=IHHII", 16 + len(wanted), SOCK_DIAG_BY_FAMILY, REQUEST_DUMP, 1, 0) + wanted)
            kind = None
            while kind != DONE:
                data = kernel.recv(1 << 16)
                while len(data) >= 16:
                    size, kind = struct.unpack_from("=IH", data)
                    if kind == ERROR:
                        raise OSError(-struct.unpack_from("=i", data, 16)[0], "sock_diag")
                    if kind == SOCK_DIAG_BY_FAMILY:
                        (port,) = struct.unpack_from("!H", data, 20)
                        (inode,) = struct.unpack_from("=I", data, 84)
                        found[port, _socket.inet_ntop(family, data[24 : 24 + length])] = str(inode)
                    data = data[max(size + 3 & ~3, 16) :]
    finally:
        kernel.close()
    return found


def tabled_listeners(machine):
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
    return found


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
    return _socket.inet_ntop(_socket.AF_INET if len(packed) == 4 else _socket.AF_INET6, packed)


SOURCES = {"listeners": listeners}
