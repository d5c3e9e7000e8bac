"""Files of SHA-256 checksums, as sha256sum(1) writes and reads them. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping

from onecat.errors import ExitCode, OnecatError

NAME = "SHA256SUMS"
_NAMES = re.compile(r"(?i)^(sha256sums?|checksums?|manifest)(\.(txt|sha256))?$|\.sha256(sums?)?$")
_GNU = re.compile(r"^\\?([0-9A-Za-z]+)[ \t]+\*?(.+)$")
_BSD = re.compile(r"^SHA256 ?\((.+)\) ?= ?([0-9A-Za-z]+)$")


def is_manifest(name: str) -> bool:
    """Whether a file of this name holds checksums, as SHA256SUMS or model.sha256."""
    return _NAMES.search(name) is not None


def parse(text: str, where: str) -> dict[str, str]:
    """The checksums (hex, lower case) by file name.

    Raises OnecatError (exit code 2) for a line that is none, or whose checksum is not 64 hexadecimal digits.
    """
    found: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        line = line.strip()
        if not line or line.startswith("#"):
            continue
        bsd = _BSD.match(line)
        gnu = _GNU.match(line)
        if bsd is not None:
            name, digest = bsd[1], bsd[2]
        elif gnu is not None:
            name, digest = gnu[2], gnu[1]
        else:
            raise _malformed(f"line {number} is no checksum and file name", where, number)
        if not re.fullmatch(r"[0-9a-fA-F]{64}", digest):
            digits = (
                f"{len(digest)} characters" if not re.fullmatch("[0-9a-fA-F]+", digest) else f"{len(digest)} digits"
            )
            raise _malformed(f"the checksum of {name} has {digits}, which is no SHA-256", where, number)
        found[name.removeprefix("./")] = digest.lower()
    if not found:
        raise _malformed("the manifest holds no checksum", where, 1)
    return found


def _malformed(found: str, where: str, line: int) -> OnecatError:
    return OnecatError(
        found,
        expected="lines of 64 hexadecimal digits, two blanks and a file name, as sha256sum writes them",
        where=f"{where}:{line}",
        next_steps=["ask the publisher for the right one; do not trust files that it was made for"],
        code=ExitCode.USAGE,
    )


def text_of(checksums: Mapping[str, str]) -> str:
    """The manifest as sha256sum(1) writes it, in the order of names; `sha256sum --check` reads it."""
    return "".join(f"{checksums[name]}  {name}\n" for name in sorted(checksums))
