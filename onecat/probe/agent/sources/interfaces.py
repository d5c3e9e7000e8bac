"""Network interfaces and their addresses, as the kernel tells them."""

# os.path spares every host the import of pathlib; one broken source must not cost the others.
# ruff: noqa: PTH100, PTH110, PTH115, PTH116, PTH118, PTH119, PTH120, PTH123, PTH208, BLE001
# mypy: disallow-untyped-defs=False, disallow-untyped-calls=False

import _socket  # What is behind socket, which makes hundreds of enum members.
import struct

from onecat.probe.agent.core import Unknown, read_file_or_none

# Source: https://man7.org/linux/man-pages/man7/rtnetlink.7.html and the kernel's include/uapi/linux/{rtnetlink,if_link,
# if_addr,if}.h.
NETLINK_ROUTE = 0
GET_LINK, GET_ADDRESS = 18, 22
NEW_LINK, NEW_ADDRESS = 16, 20
REQUEST_DUMP = 0x301
DONE, ERROR = 3, 2
IFLA_IFNAME = 3
IFA_ADDRESS, IFA_LOCAL = 1, 2
IFF_UP, IFF_LOOPBACK, IFF_RUNNING = 0x1, 0x8, 0x40


def interfaces(machine, emit):
    if not machine.is_running:
        raise Unknown("absent", "a copy of a host's files does not tell its addresses")
    found = {}
    for body in asked(GET_LINK, NEW_LINK):
        (index, flags) = struct.unpack_from("=iI", body, 4)
        name = attributes(body, 16).get(IFLA_IFNAME, b"").rstrip(b"\0").decode("utf-8", "replace")
        found[index] = {
            "name": name,
            "up": bool(flags & IFF_UP) and bool(flags & IFF_RUNNING),
            "loopback": bool(flags & IFF_LOOPBACK),
            "addresses": [],
            "speed_mbps": speed(name),
        }
    for body in asked(GET_ADDRESS, NEW_ADDRESS):
        (family, length) = struct.unpack_from("=BB", body, 0)
        (index,) = struct.unpack_from("=I", body, 4)
        known = attributes(body, 8)
        # Of a point-to-point link IFA_ADDRESS is the other end.
        packed = known.get(IFA_LOCAL, known.get(IFA_ADDRESS))
        if packed is not None and family in (_socket.AF_INET, _socket.AF_INET6) and index in found:
            found[index]["addresses"].append(_socket.inet_ntop(family, packed) + "/" + str(length))
    emit(interfaces=[found[index] for index in sorted(found)])


def asked(question, answer):
    """The bodies of the kernel's answers of one kind."""
    kernel = _socket.socket(_socket.AF_NETLINK, _socket.SOCK_RAW, NETLINK_ROUTE)
    try:
        kernel.settimeout(1.0)
        kernel.send(struct.pack("=IHHIIB15x", 32, question, REQUEST_DUMP, 1, 0, _socket.AF_UNSPEC))
        kind = None
        while kind != DONE:
            data = kernel.recv(1 << 16)
            while len(data) >= 16:
                size, kind = struct.unpack_from("=IH", data)
                if kind == ERROR:
                    raise OSError(-struct.unpack_from("=i", data, 16)[0], "rtnetlink")
                if kind == answer:
                    yield data[16:size]
                data = data[max(size + 3 & ~3, 16) :]
    finally:
        kernel.close()


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


SOURCES = {"interfaces": interfaces}
