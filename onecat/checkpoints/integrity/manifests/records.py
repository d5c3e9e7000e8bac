"""Checksums by file, wherever they come from."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from onecat.checkpoints.integrity.records import Fault

Algorithm = Literal["sha256", "git-blob"]
"""git-blob: SHA-1 over `blob LENGTH NUL CONTENT`, by which git, and hubs, know a file that is not in LFS.
Source: https://git-scm.com/book/en/v2/Git-Internals-Git-Objects"""

DIGITS: dict[Algorithm, int] = {"sha256": 64, "git-blob": 40}


@dataclass(frozen=True)
class Entry:
    """The checksum of one file. path: below the model directory. digest: hex, lower case. size: bytes, if stated."""

    path: str
    algorithm: Algorithm
    digest: str
    size: int | None = None


@dataclass(frozen=True)
class Manifest:
    """A list of checksums. name: of its file, or what stands in for one; faults: lines that are no checksum."""

    name: str
    form: str
    entries: tuple[Entry, ...]
    faults: tuple[Fault, ...] = ()


def wrong_digest(digest: str) -> str | None:
    """Why a text is no SHA-256 in hex, as what it is instead; None when it is one."""
    if re.fullmatch(r"[0-9a-fA-F]{64}", digest):
        return None
    if re.fullmatch(r"[0-9a-fA-F]+", digest):
        known = {
            32: " (an MD5?)",
            40: " (a SHA-1 or git id?)",
            56: " (a SHA-224?)",
            96: " (a SHA-384?)",
            128: " (a SHA-512?)",
        }
        return f"has {len(digest)} hex digits{known.get(len(digest), '')}; a SHA-256 has 64"
    odd = next(letter for letter in digest if letter not in "0123456789abcdefABCDEF")
    return f"has {len(digest)} characters and {odd!a} among them; a SHA-256 has 64 hex digits"


def bad_checksum(where: str, path: str, reason: str) -> Fault:
    """The fault of a checksum that can be none."""
    return Fault(
        "bad-checksum",
        "fail",
        f"the checksum of {path} {reason}",
        where,
        "get the list again from its publisher; no file can be verified with this line",
        "A checksum of another length was never computed from a file: it was cut, retyped or made up.",
        "https://csrc.nist.gov/pubs/fips/180-4/upd1/final",
    )
