"""Host keys against known_hosts files, in every form that these files have."""

from __future__ import annotations

import base64
import hashlib
import hmac
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onecat.hosts.known_hosts import KnownHosts, fingerprint, read_known_hosts

FILE = Path("/home/ops/.ssh/known_hosts")
KEY, OTHER = b"\0\0\0\x0bssh-ed25519one", b"\0\0\0\x0bssh-ed25519two"


def line(names: str, key: bytes = KEY, kind: str = "ssh-ed25519", marker: str = "") -> str:
    return f"{marker} {names} {kind} {base64.b64encode(key).decode()} a comment".strip()


def hashed(name: str) -> str:
    salt = b"0123456789abcdefghij"
    digest = hmac.new(salt, name.encode(), hashlib.sha1).digest()
    return f"|1|{base64.b64encode(salt).decode()}|{base64.b64encode(digest).decode()}"


def known(*lines: str) -> KnownHosts:
    return KnownHosts(read_known_hosts("\n".join(lines), FILE))


@pytest.mark.parametrize(
    "names",
    [
        *("gpu1", "GPU1", "other,gpu1", "gpu?", "*", "gpu*,!gpu2", hashed("gpu1")),
        *(f"{hashed('other')},gpu1", "gpu1,192.0.2.7"),
    ],
)
def test_a_key_that_a_line_has_for_the_host_is_known(names: str) -> None:
    assert known(line(names)).judge("gpu1", 22, "ssh-ed25519", KEY).verdict == "known"


@pytest.mark.parametrize(
    "names", ["gpu10", "gpu", "[gpu1]:2222", "!gpu1,*", hashed("gpu2"), "|1|broken", "|1|a|b|c", "[gpu1]"]
)
def test_a_key_of_another_host_says_nothing(names: str) -> None:
    assert known(line(names)).judge("gpu1", 22, "ssh-ed25519", KEY).verdict == "unknown"


@pytest.mark.parametrize("names", ["[gpu1]:2222", hashed("[gpu1]:2222"), "[gpu1]:*"])
def test_another_port_stands_in_brackets(names: str) -> None:
    assert known(line(names)).judge("gpu1", 2222, "ssh-ed25519", KEY).verdict == "known"
    assert known(line(names)).judge("gpu1", 2222, "ssh-ed25519", OTHER).verdict == "changed"


def test_a_line_without_port_vouches_for_any_port_and_accuses_none() -> None:
    assert known(line("gpu1")).judge("gpu1", 2222, "ssh-ed25519", KEY).verdict == "known"
    assert known(line("gpu1")).judge("gpu1", 2222, "ssh-ed25519", OTHER).verdict == "unknown"


def test_a_changed_key_is_told_with_the_line_that_has_the_old_one() -> None:
    judgement = known("# gpu1", "", line("gpu2"), line("gpu1", OTHER)).judge("gpu1", 22, "ssh-ed25519", KEY)
    assert judgement.verdict == "changed"
    assert [each.place for each in judgement.lines] == [f"{FILE}:4"]


def test_a_key_of_another_type_than_the_known_ones_is_no_proof() -> None:
    judgement = known(line("gpu1", OTHER, "ssh-rsa")).judge("gpu1", 22, "ssh-ed25519", KEY)
    assert judgement.verdict == "changed"
    assert [each.key_type for each in judgement.lines] == ["ssh-rsa"]


def test_one_of_several_keys_is_enough() -> None:
    assert known(line("gpu1", OTHER), line("gpu1")).judge("gpu1", 22, "ssh-ed25519", KEY).verdict == "known"


def test_a_revoked_key_is_refused_though_another_line_has_it() -> None:
    lines = known(line("gpu1"), line("*", marker="@revoked"))
    assert lines.judge("gpu1", 22, "ssh-ed25519", KEY).verdict == "revoked"
    assert lines.judge("gpu1", 22, "ssh-ed25519", OTHER).verdict == "changed"


def test_a_certificate_authority_is_no_host_key() -> None:
    judgement = known(line("*", marker="@cert-authority")).judge("gpu1", 22, "ssh-ed25519", KEY)
    assert (judgement.verdict, judgement.has_authority) == ("unknown", True)


def test_the_types_of_known_keys_come_first_in_the_handshake() -> None:
    lines = known(line("gpu1", OTHER, "ssh-rsa"), line("gpu1"), line("gpu2", kind="ecdsa-sha2-nistp256"))
    assert lines.key_types("gpu1", 22) == ("ssh-rsa", "ssh-ed25519")
    assert lines.key_types("gpu1", 2222) == ("ssh-rsa", "ssh-ed25519")
    assert lines.key_types("gpu3", 22) == ()


def test_the_fingerprint_is_the_one_that_openssh_prints() -> None:
    assert fingerprint(b"") == "SHA256:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU"


@given(st.text(max_size=200), st.text(max_size=30))
def test_any_text_is_read_without_a_failure(text: str, name: str) -> None:
    assert KnownHosts(read_known_hosts(text, FILE)).judge(name, 22, "ssh-ed25519", KEY).verdict == "unknown"
