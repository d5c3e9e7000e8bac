"""Host keys: what known_hosts files say about a host, and what to tell when a key is not the one they have.

The form of the files is sshd(8)'s "SSH_KNOWN_HOSTS FILE FORMAT", https://man.openbsd.org/sshd#SSH_KNOWN_HOSTS_FILE_FORMAT
"""

from __future__ import annotations

import base64
import binascii
import fnmatch
import hashlib
import hmac
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

DEFAULT_PORT = 22
Verdict = Literal["known", "unknown", "changed", "revoked"]


@dataclass(frozen=True)
class KnownKey:
    """One line of a known_hosts file. marker: `@revoked`, `@cert-authority` or "". key: as on the wire."""

    marker: str
    names: tuple[str, ...]
    key_type: str
    key: bytes
    file: Path
    line: int

    def is_for(self, name: str) -> bool:
        """Whether the line is about a host of this name (`[NAME]:PORT` for a port other than 22)."""
        found = False
        for pattern in self.names:
            if pattern.startswith("|1|"):
                found = found or _is_hash_of(pattern, name)
            elif pattern.startswith("!"):
                if _fits(pattern[1:], name):
                    return False
            else:
                found = found or _fits(pattern, name)
        return found

    @property
    def place(self) -> str:
        """Where a person finds it."""
        return f"{self.file}:{self.line}"


@dataclass(frozen=True)
class Judgement:
    """What is known of a key.

    lines: those that it was judged by. has_authority: of its host only a certificate authority is known.
    """

    verdict: Verdict
    lines: tuple[KnownKey, ...] = ()
    has_authority: bool = False


def read_known_hosts(text: str, file: Path) -> tuple[KnownKey, ...]:
    """The lines of a known_hosts file; those that are no key (comments, broken or unknown ones) are left out."""
    return tuple(key for number, line in enumerate(text.splitlines(), 1) if (key := _read_line(line, file, number)))


def fingerprint(key: bytes) -> str:
    """The fingerprint of a key as OpenSSH prints it."""
    return "SHA256:" + base64.b64encode(hashlib.sha256(key).digest()).decode().rstrip("=")


def name_in_file(host: str, port: int) -> str:
    """How known_hosts names a host."""
    return host if port == DEFAULT_PORT else f"[{host}]:{port}"


class KnownHosts:
    """All lines of some known_hosts files, read once for a whole run."""

    def __init__(self, keys: Iterable[KnownKey]) -> None:
        self._keys = tuple(keys)

    def about(self, host: str, port: int) -> tuple[KnownKey, ...]:
        """The lines about a host, those for its port first.

        As in OpenSSH, a key that is known for the host without its port is as good, but proves nothing when it differs.
        """
        name = name_in_file(host, port)
        return tuple(key for key in self._keys if key.is_for(name))

    def key_types(self, host: str, port: int) -> tuple[str, ...]:
        """The types of key that are known of a host: it is asked for one of these, so that there is one to compare."""
        lines = self.about(host, port) or self.about(host, DEFAULT_PORT)
        return tuple(dict.fromkeys(line.key_type for line in lines if not line.marker))

    def judge(self, host: str, port: int, key_type: str, key: bytes) -> Judgement:
        """What the files say about a key that a host has shown."""
        lines = self.about(host, port)
        without_port = self.about(host, DEFAULT_PORT) if port != DEFAULT_PORT else ()
        revoked = tuple(each for each in (*lines, *without_port) if each.marker == "@revoked" and each.key == key)
        if revoked:
            return Judgement("revoked", revoked)
        same = tuple(each for each in (*lines, *without_port) if not each.marker and each.key == key)
        if same:
            return Judgement("known", same)
        other = tuple(each for each in lines if not each.marker)
        if other:
            of_this_type = tuple(each for each in other if each.key_type == key_type)
            return Judgement("changed", of_this_type or other)
        return Judgement("unknown", has_authority=any(each.marker == "@cert-authority" for each in lines))


def _read_line(line: str, file: Path, number: int) -> KnownKey | None:
    words = line.split()
    marker = words.pop(0) if words and words[0].startswith("@") else ""
    if len(words) < 3 or words[0].startswith("#") or marker not in ("", "@revoked", "@cert-authority"):
        return None
    try:
        key = base64.b64decode(words[2], validate=True)
    except (binascii.Error, ValueError):
        return None
    return KnownKey(marker, tuple(words[0].split(",")), words[1], key, file, number)


def _fits(pattern: str, name: str) -> bool:
    # Brackets stand for themselves in known_hosts: only * and ? are wild.
    escaped = pattern.lower().replace("[", "[[]")
    return fnmatch.fnmatchcase(name.lower(), escaped)


def _is_hash_of(pattern: str, name: str) -> bool:
    try:
        salt, digest = (base64.b64decode(part) for part in pattern[3:].split("|"))
    except (binascii.Error, ValueError):
        return False
    return hmac.compare_digest(hmac.new(salt, name.lower().encode(), hashlib.sha1).digest(), digest)
