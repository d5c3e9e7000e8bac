"""Who listens on a host is read from what its kernel tells, and agrees with what this kernel lets us bind."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onecat.deploy.host_network import has_address, is_taken, listeners, local_addresses

HEADER = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
TCP = HEADER + (
    "   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 1 1\n"
    "   1: 00000000:0016 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 2 1\n"
    "   2: 0100007F:2328 0100007F:A1B2 01 00000000:00000000 00:00000000 00000000     0        0 3 1\n"
)
TCP6 = HEADER + (
    "   0: 00000000000000000000000000000000:1F99 00000000000000000000000000000000:0000 0A 0:0 00:0 0 0 0 4 1\n"
    "   1: 00000000000000000000000001000000:1F98 00000000000000000000000000000000:0000 0A 0:0 00:0 0 0 0 5 1\n"
)
FIB_TRIE = """Main:
  +-- 0.0.0.0/0 3 0 5
     |-- 0.0.0.0
        /0 universe UNICAST
     |-- 10.0.0.0
        /24 link UNICAST
     |-- 10.0.0.17
        /32 host LOCAL
     |-- 10.0.0.255
        /32 link BROADCAST
"""


@pytest.mark.parametrize(
    ("host", "port", "taken"),
    [
        ("127.0.0.1", 8080, True),
        ("127.0.0.2", 8080, False),
        ("0.0.0.0", 8080, True),
        ("10.0.0.17", 22, True),
        ("127.0.0.1", 9000, False),  # a connection, nobody listens
        ("127.0.0.1", 8089, True),  # [::] has it
        ("::1", 8088, True),
        ("127.0.0.1", 8088, False),
        ("::1", 8080, False),
    ],
)
def test_a_port_is_taken_where_somebody_listens_on_the_same_or_every_address(host: str, port: int, taken: bool) -> None:
    assert is_taken(host, port, listeners(TCP) | listeners(TCP6)) is taken


def test_the_addresses_of_a_host_are_those_of_its_interfaces() -> None:
    addresses = local_addresses(FIB_TRIE, "fe800000000000000000000000000001 02 40 20 80 eth0\n")
    assert sorted(map(str, addresses)) == ["10.0.0.17", "fe80::1"]
    assert has_address("10.0.0.17", addresses) and has_address("0.0.0.0", addresses) and has_address("::", addresses)
    assert has_address("127.0.0.5", addresses) and has_address("gpu1.lan", addresses)
    assert not has_address("10.0.0.18", addresses) and not has_address("10.0.0.255", addresses)


@given(address=st.sampled_from(["127.0.0.1", "127.0.0.2", "0.0.0.0"]), asked=st.sampled_from(["127.0.0.1", "0.0.0.0"]))
def test_it_agrees_with_this_kernel(address: str, asked: str) -> None:
    with socket.socket() as server, socket.socket() as second:
        server.bind((address, 0))
        server.listen()
        port = server.getsockname()[1]
        try:
            second.bind((asked, port))
            free = True
        except OSError:
            free = False
        told = listeners(Path("/proc/net/tcp").read_text())
        assert is_taken(asked, port, told) is not free
