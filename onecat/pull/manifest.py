"""Files of SHA-256 checksums that a pull follows or writes: all of one, or nothing. Pure."""

from __future__ import annotations

from onecat.checkpoints.integrity.manifests.text import is_text_manifest as is_manifest
from onecat.checkpoints.integrity.manifests.text import parse_text, text_of
from onecat.errors import ExitCode, OnecatError

__all__ = ["NAME", "is_manifest", "parse", "text_of"]

NAME = "SHA256SUMS"


def parse(text: str, where: str) -> dict[str, str]:
    """The checksums (hex, lower case) by file name.

    Parameters:
        where: the path or the URL of the file that holds them.

    Raises OnecatError (exit code 2) for the first line that is none: what a pull fetches by a list is all of it.
    """
    folder, slash, name = where.rpartition("/")
    found = parse_text(text, name)
    if found.faults:
        first = found.faults[0]
        raise OnecatError(
            f"the manifest {first.text}" if first.code == "bad-manifest" else first.text,
            expected="lines of 64 hexadecimal digits, two blanks and a file name, as sha256sum writes them",
            where=f"{folder}{slash}{first.where}",
            next_steps=["ask the publisher for the right one; do not trust files that it was made for"],
            code=ExitCode.USAGE,
        )
    return {each.path: each.digest for each in found.entries}
