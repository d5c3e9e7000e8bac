"""TCP ports in use."""

# os.path spares every host the import of pathlib; one broken source must not cost the others.
# ruff: noqa: PTH100, PTH110, PTH118, PTH119, PTH120, PTH123, PTH208, BLE001
# mypy: disallow-untyped-defs=False, disallow-untyped-calls=False

import socket
import sys

from onecat.probe.agent.core import Unknown


def listeners(machine, emit):
    found = set()
    tables = [name for name in ("/proc/net/tcp", "/proc/net/tcp6") if machine.exists(name)]
    if not tables:
        raise Unknown("absent", "/proc/net/tcp cannot be read")
    for name in tables:
        for line in machine.read(name).splitlines()[1:]:
            fields = line.split()
            if len(fields) > 3 and fields[3] == "0A":
                address, _, port = fields[1].partition(":")
                found.add((decode_address(address), int(port, 16)))
    emit(listeners=[{"address": address, "port": port} for address, port in sorted(found, key=lambda each: each[::-1])])


def decode_address(text):
    """An address of /proc/net/tcp: 32-bit words in the byte order of the machine."""
    words = [bytes.fromhex(text[start : start + 8]) for start in range(0, len(text), 8)]
    packed = b"".join(word[::-1] if sys.byteorder == "little" else word for word in words)
    return socket.inet_ntop(socket.AF_INET if len(packed) == 4 else socket.AF_INET6, packed)


SOURCES = {"listeners": listeners}
