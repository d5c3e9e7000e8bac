"""Which servers may be loaded; what the kernel says of processes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from onecat.errors import ExitCode, OnecatError
from onecat.experiments.server_processes import cores_of_machine, look_at
from onecat.experiments.targets import NativeSender, Target, check_own, is_own_address, url_target
from onecat.hosts import LocalMachine


@pytest.fixture
def machine(tmp_path: Path) -> LocalMachine:
    return LocalMachine(tmp_path)


def target(url: str, machine: LocalMachine, **options: object) -> Target:
    return url_target(url, "m", machine=machine, sender=NativeSender("python"), tokenizer="/t", **options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("url", "base"),
    [
        ("http://127.0.0.1:8000", "http://127.0.0.1:8000"),
        ("http://127.0.0.1:8000/v1/", "http://127.0.0.1:8000"),
        ("localhost:8000/v1", "http://localhost:8000"),
        ("http://[::1]:8000/models/a/v1", "http://[::1]:8000/models/a"),
    ],
)
def test_a_server_of_this_machine(url: str, base: str, machine: LocalMachine) -> None:
    assert target(url, machine).endpoint.base_url == base


@pytest.mark.parametrize("url", ["ftp://127.0.0.1", "http://", "http://user:word@127.0.0.1:8000", "file:///etc/passwd"])
def test_what_is_no_address(url: str, machine: LocalMachine) -> None:
    with pytest.raises(OnecatError) as refused:
        target(url, machine)
    assert "is no address" in refused.value.found


def test_a_strangers_server_is_refused_unless_it_is_asked_for_in_so_many_words(machine: LocalMachine) -> None:
    for address in ("http://192.0.2.7:8000", "http://[2001:db8::1]:8000"):  # for documentation: RFC 5737, RFC 3849
        with pytest.raises(OnecatError) as refused:
            target(address, machine)
        assert "--load-foreign-server" in " ".join(refused.value.next_steps)
        assert target(address, machine, foreign=True).endpoint.base_url == address
    assert target("http://192.0.2.7:8000", machine, allowed_hosts=["192.0.2.7"]).endpoint.label


def test_loopback_is_the_own_of_whichever_machine_sends_the_load() -> None:
    class Elsewhere:
        is_local = False

    for host in ("127.0.0.1", "::1", "localhost"):
        check_own(host, Elsewhere())  # type: ignore[arg-type]
    for host in ("192.0.2.7", "0.0.0.0"):  # noqa: S104 - not bound
        with pytest.raises(OnecatError, match="is not this machine"):
            check_own(host, Elsewhere())  # type: ignore[arg-type]


def test_a_name_that_is_not_known(machine: LocalMachine) -> None:
    with pytest.raises(OnecatError) as refused:
        check_own("no-such-name.invalid", machine)
    assert refused.value.code == ExitCode.UNREACHABLE


def test_own_addresses() -> None:
    assert is_own_address("127.0.0.1") and is_own_address("127.8.9.1") and is_own_address("::1")
    assert not is_own_address("0.0.0.0")  # noqa: S104 - not bound
    assert not is_own_address("224.0.0.1")
    assert not is_own_address("192.0.2.7")


def test_what_the_kernel_says_of_a_process_and_its_children(machine: LocalMachine) -> None:
    held = bytearray(64 * 2**20)
    held[::4096] = b"x" * len(held[::4096])
    with machine.start(["sleep", "60"]):
        found = {each.name: each for each in look_at(machine, os.getpid())}
    me = next(each for each in found.values() if each.pid == os.getpid())
    assert me.private_bytes > len(held)
    assert me.rss_bytes >= me.private_bytes
    assert me.cores == cores_of_machine(machine) == tuple(sorted(os.sched_getaffinity(0)))
    assert "sleep" in found
    assert look_at(machine, 2**22 - 1) == ()
