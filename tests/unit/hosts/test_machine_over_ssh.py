"""What is decided without a host: where its data lies, what its SFTP server offers, how its engine is dialled."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onecat import paths
from onecat.hosts.docker_dial import dial_argv
from onecat.hosts.sftp_files import extensions_of
from onecat.hosts.ssh_machine import data_directory_of

PATHS = st.sampled_from(["", "/srv/onecat", "~", "~/onecat", "/a b/c", "relative/to/home"])


@given(chosen=PATHS, shared=st.sampled_from(["", "/srv/share", "/a b"]))
def test_the_data_lies_where_it_would_on_this_machine(chosen: str, shared: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        home = str(Path.home())
        patch.chdir(home)  # where programs start that sshd runs
        patch.setenv("HOME", home)
        for name, value in (("ONECAT_HOME", chosen), ("XDG_DATA_HOME", shared)):
            patch.setenv(name, value)
        expected = paths.home().data
        assert Path(data_directory_of({"HOME": home, "ONECAT_HOME": chosen, "XDG_DATA_HOME": shared})) == expected


@given(st.dictionaries(st.text(min_size=1), st.text(), max_size=5))
def test_the_extensions_of_an_sftp_server_are_read_from_its_first_packet(offered: dict[str, str]) -> None:
    def word(text: str) -> bytes:
        data = text.encode("utf-8", "replace")
        return struct.pack(">I", len(data)) + data

    packet = struct.pack(">I", 3) + b"".join(word(name) + word(data) for name, data in offered.items())
    assert extensions_of(packet) == {name.encode("utf-8", "replace").decode() for name in offered}


@given(st.binary(max_size=64))
def test_no_first_packet_is_a_fault(data: bytes) -> None:
    extensions_of(data)


def test_the_engine_is_dialled_at_the_address_that_was_named() -> None:
    assert dial_argv(None) == ("docker", "system", "dial-stdio")
    assert dial_argv("tcp://10.0.0.1:2375") == ("docker", "--host", "tcp://10.0.0.1:2375", "system", "dial-stdio")
