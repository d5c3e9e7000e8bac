"""Who listens on a host, and which addresses it has: pure functions of what its kernel tells.

proc(5): /proc/net/tcp and tcp6, one line for each socket with the local address as hexadecimal words of the host's
byte order, state 0A for one that listens; /proc/net/fib_trie; /proc/net/if_inet6.
"""

from __future__ import annotations

import ipaddress
import re

_LISTENS = "0A"
Address = ipaddress.IPv4Address | ipaddress.IPv6Address


def listeners(tcp: str) -> frozenset[tuple[Address, int]]:
    """Addresses and ports that somebody listens on, from /proc/net/tcp or tcp6 of a little-endian host."""
    found = set()
    for line in tcp.splitlines()[1:]:
        words = line.split()
        if len(words) > 3 and words[3] == _LISTENS:
            address, _, port = words[1].partition(":")
            found.add((_address(address), int(port, 16)))
    return frozenset(found)


def local_addresses(fib_trie: str, if_inet6: str) -> frozenset[Address]:
    """The addresses of a host's interfaces. The whole of 127.0.0.0/8 is a host's own, too, and not listed."""
    four = re.findall(r"\|-- ([0-9.]+)\n\s+/32 host LOCAL", fib_trie)
    six = [line.split()[0] for line in if_inet6.splitlines() if line.split()]
    return frozenset(
        [*(ipaddress.ip_address(each) for each in four), *(ipaddress.IPv6Address(int(each, 16)) for each in six)]
    )


def is_taken(host: str, port: int, listening: frozenset[tuple[Address, int]]) -> bool:
    """Whether nobody else may listen on an address and port any more."""
    wanted = _numeric(host)
    for address, used in listening:
        if used != port:
            continue
        # [::] takes the port for IPv4, too, unless it says otherwise, which the kernel does not tell.
        if address.is_unspecified and (address.version == 6 or wanted is None or wanted.version == 4):
            return True
        if wanted is None or wanted == address or (wanted.is_unspecified and wanted.version == address.version):
            return True
        if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped == wanted:
            return True
    return False


def has_address(host: str, addresses: frozenset[Address]) -> bool:
    """Whether a server of that host can listen on an address. A name is left to the host."""
    wanted = _numeric(host)
    return wanted is None or wanted.is_unspecified or wanted.is_loopback or wanted in addresses


def _numeric(host: str) -> Address | None:
    try:
        return ipaddress.ip_address(host or "0.0.0.0")  # noqa: S104 - compared, not bound
    except ValueError:
        return None


def _address(text: str) -> Address:
    data = bytes.fromhex(text)
    words = [data[at : at + 4][::-1] for at in range(0, len(data), 4)]
    return ipaddress.ip_address(b"".join(words))
