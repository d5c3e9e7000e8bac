"""TCP ports in use, network interfaces and their addresses."""

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
NETLINK_ROUTE = 0
GET_LINK, NEW_LINK = 18, 16
GET_ADDRESS, NEW_ADDRESS = 22, 20
IFLA_IFNAME = 3
IFA_ADDRESS, IFA_LOCAL = 1, 2
IFF_UP, IFF_LOOPBACK, IFF_RUNNING = 0x1, 0x8, 0x40
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
    for family, length in ((_socket.AF_INET, 4), (_socket.AF_INET6, 16)):
        wanted = struct.pack("=BBBBI48x", family, _socket.IPPROTO_TCP, 0, 0, 1 << LISTEN)
        for body in told_by_kernel(NETLINK_SOCK_DIAG, SOCK_DIAG_BY_FAMILY, SOCK_DIAG_BY_FAMILY, wanted):
            (port,) = struct.unpack_from("!H", body, 4)
            (inode,) = struct.unpack_from("=I", body, 68)
            found[port, _socket.inet_ntop(family, body[8 : 8 + length])] = str(inode)
    return found


def told_by_kernel(protocol, question, answer, wanted):
    """The bodies of the kernel's messages of the kind `answer`, to one question about everything.

    Source: https://man7.org/linux/man-pages/man7/netlink.7.html
    """
    kernel = _socket.socket(_socket.AF_NETLINK, _socket.SOCK_RAW, protocol)
    try:
        kernel.settimeout(1.0)
        kernel.send(struct.pack("=IHHII", 16 + len(wanted), question, REQUEST_DUMP, 1, 0) + wanted)
        kind = None
        while kind != DONE:
            data = kernel.recv(1 << 16)
            while len(data) >= 16:
                size, kind = struct.unpack_from("=IH", data)
                if kind == ERROR:
                    raise OSError(-struct.unpack_from("=i", data, 16)[0], "netlink")
                if kind == answer:
                    yield data[16:size]
                data = data[max(size + 3 & ~3, 16) :]
    finally:
        kernel.close()


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


def interfaces(machine, emit):
    """Source of the numbers: https://man7.org/linux/man-pages/man7/rtnetlink.7.html"""
    if not machine.is_running:
        raise Unknown("absent", "a copy of a host's files does not tell its addresses")
    found = {}
    for body in told_by_kernel(NETLINK_ROUTE, GET_LINK, NEW_LINK, b"\0" * 16):
        (index, flags) = struct.unpack_from("=iI", body, 4)
        name = attributes(body, 16).get(IFLA_IFNAME, b"").rstrip(b"\0").decode("utf-8", "replace")
        found[index] = {
            "name": name,
            "up": bool(flags & IFF_UP) and bool(flags & IFF_RUNNING),
            "loopback": bool(flags & IFF_LOOPBACK),
            "addresses": [],
            "speed_mbps": speed(name),
        }
    for body in told_by_kernel(NETLINK_ROUTE, GET_ADDRESS, NEW_ADDRESS, b"\0" * 16):
        (family, length) = struct.unpack_from("=BB", body, 0)
        (index,) = struct.unpack_from("=I", body, 4)
        known = attributes(body, 8)
        # Of a point-to-point link IFA_ADDRESS is the other end.
        packed = known.get(IFA_LOCAL, known.get(IFA_ADDRESS))
        if packed is not None and family in (_socket.AF_INET, _socket.AF_INET6) and index in found:
            found[index]["addresses"].append(_socket.inet_ntop(family, packed) + "/" + str(length))
    emit(interfaces=[found[index] for index in sorted(found)])


def attributes(body, start):
    """The attributes behind the fixed part of a message, by number."""
    found = {}
    rest = body[start:]
    while len(rest) >= 4:
        size, kind = struct.unpack_from("=HH", rest)
        if size < 4:
            break
        found[kind & 0x3FFF] = rest[4:size]
        rest = rest[size + 3 & ~3 :]
    return found


def speed(name):
    """The link's speed in Mbit/s; None where the driver does not tell one."""
    text = read_file_or_none("/sys/class/net/" + name + "/speed")
    try:
        value = int(text or "")
    except ValueError:
        return None
    return value if value > 0 else None


SOURCES = {"listeners": listeners, "interfaces": interfaces}
