"""What a person writes to name a host."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from onecat.errors import OnecatError

LOCAL = "local"
EXPECTED = "local, NAME, USER@NAME, USER@NAME:PORT, [IPV6]:PORT or ssh://USER@NAME:PORT"

_HOST = re.compile(r"[A-Za-z0-9_.:%-]+")
# As OpenSSH's valid_ruser: nothing that a shell or an option parser could take for something else.
_USER = re.compile(r"[^\s'\"`$&;<>|(){}\\@-][^\s'\"`$&;<>|(){}\\]*")


@dataclass(frozen=True)
class Target:
    """A host as it was asked for.

    text: as the person wrote it, which names the host everywhere in the output. host: a name, an alias of
    ~/.ssh/config or an address. user, port: None leaves them to ~/.ssh/config.
    """

    text: str
    host: str
    user: str | None = None
    port: int | None = None

    @property
    def is_local(self) -> bool:
        """Whether it is this machine, reached without SSH."""
        return self.text == LOCAL

    @property
    def ssh_words(self) -> str:
        """What to type after `ssh` to reach it."""
        port = f"-p {self.port} " if self.port is not None else ""
        return f"{port}{self.user}@{self.host}" if self.user is not None else f"{port}{self.host}"


def parse_target(text: str) -> Target:
    """Read one word of `--host`, `hosts:` or ProxyJump. Raises OnecatError (exit code 2) when it names no host."""
    if text.startswith("ssh://"):
        return _from_address(text)
    user, at, place = text.rpartition("@")
    host, port = _split_port(place)
    return _target(text, host, user if at else None, port)


def _from_address(text: str) -> Target:
    try:
        parts = urlsplit(text)
        user = unquote(parts.username) if parts.username is not None else None
        host, port = parts.hostname or "", parts.port
    except ValueError as error:
        raise _refusal(text) from error
    if parts.path not in ("", "/") or parts.query or parts.fragment:
        raise _refusal(text)
    if parts.password is not None:
        raise OnecatError(
            "a password has no place in the name of a host: other users of this machine can read it",
            expected=EXPECTED,
            next_steps=["onecat asks for the password when a host needs one"],
        )
    # urlsplit gives the name in small letters; aliases of ~/.ssh/config are told apart by them.
    start = text.lower().rindex(host) if host else 0
    return _target(text, text[start : start + len(host)], user, str(port) if port is not None else None)


def _split_port(place: str) -> tuple[str, str | None]:
    bracketed = re.fullmatch(r"\[([^\]]*)\](?::(.*))?", place)
    if bracketed:
        return bracketed[1], bracketed[2]
    host, colon, port = place.partition(":")
    # More than one colon without brackets is an IPv6 address alone.
    return (host, port) if colon and ":" not in port else (place, None)


def _target(text: str, host: str, user: str | None, port: str | None) -> Target:
    number = int(port) if port is not None and re.fullmatch(r"[0-9]{1,5}", port) else None
    is_wrong_port = port is not None and (number is None or not 1 <= number <= 65535)
    is_wrong_user = user is not None and not _USER.fullmatch(user)
    if is_wrong_port or is_wrong_user or not _HOST.fullmatch(host) or host.startswith("-"):
        raise _refusal(text)
    return Target(text, host, user, number)


def _refusal(text: str) -> OnecatError:
    return OnecatError(f"{text!r} names no host", expected=EXPECTED, next_steps=["onecat doctor --host USER@NAME"])
