"""What is told when a host lets nobody in."""

from __future__ import annotations

from pathlib import Path

from onecat.hosts.asking import Desk
from onecat.hosts.identities import Identities
from onecat.hosts.login import refusal
from onecat.hosts.ssh_config import SshSettings
from onecat.hosts.target import parse_target


def settings(*identities: Path, given: bool) -> SshSettings:
    return SshSettings(
        address="192.0.2.1",
        port=22,
        user="amelie",
        identities=identities,
        are_identities_given=given,
        identities_only=False,
        agent=None,
        jumps=(),
        proxy_command=(),
        known_hosts_files=(),
        known_as=("192.0.2.1", 22),
        strict="yes",
        connect_timeout=None,
        password=True,
    )


def details(asked: SshSettings, identities: Identities) -> tuple[str, ...]:
    return refusal(parse_target("gpu1"), asked, identities, ("publickey",), "the host took none of the keys").details


def test_what_is_wrong_with_a_key_comes_before_what_is_not(tmp_path: Path) -> None:
    identities = Identities(Desk())
    good, bad, missing = tmp_path / "good", tmp_path / "bad", tmp_path / "missing"
    good.touch()
    bad.touch()
    identities.problems[bad] = "not a private key"
    assert details(settings(good, bad, missing, given=True), identities) == (
        f"key: {bad} (not a private key)",
        f"key: {missing} (does not exist)",
        "user: amelie",
        f"key: {good}",
        "the host accepts: publickey",
    )


def test_keys_that_ssh_would_try_by_itself_need_not_exist(tmp_path: Path) -> None:
    identities = Identities(Desk())
    assert details(settings(tmp_path / "id_rsa", given=False), identities) == (
        "user: amelie",
        "no key in a file",
        "the host accepts: publickey",
    )
