"""A token for a hub: from a file that only its owner can read, or from the environment, and never shown."""

from __future__ import annotations

import stat
from collections.abc import Mapping
from pathlib import Path

from onecat.errors import OnecatError


class Token:
    """A secret. Its text is only in `header`, so that no message, log or traceback shows it."""

    __slots__ = ("_secret",)

    def __init__(self, secret: str) -> None:
        self._secret = secret

    @property
    def header(self) -> str:
        """The value of the header Authorization (RFC 6750)."""
        return f"Bearer {self._secret}"

    def __repr__(self) -> str:
        return "Token(...)"


def read_token(path: Path) -> Token:
    """The token in a file. Raises OnecatError for a file that others can read, or that holds no single token."""
    try:
        with path.open("rb") as stream:
            mode = stat.S_IMODE(path.stat().st_mode)
            content = stream.read(65537)
    except OSError as error:
        raise OnecatError(
            f"the token cannot be read: {error.strerror}", where=str(path), expected="a file that holds the token"
        ) from error
    if mode & 0o077:
        raise OnecatError(
            f"others than you may read the token: its file has mode {mode:04o}",
            where=str(path),
            expected="mode 0600",
            next_steps=[f"chmod 600 {path}", "and make a new token if others use this machine"],
        )
    return _only_token(content, "the token file", str(path))


def environment_token(environment: Mapping[str, str]) -> Token | None:
    """The token in HF_TOKEN, None where it is not set, empty, or HF_HUB_DISABLE_IMPLICIT_TOKEN says to leave it.

    Source: https://huggingface.co/docs/huggingface_hub/package_reference/environment_variables.

    Raises OnecatError when it holds no single token; its text is not told.
    """
    stated = environment.get("HF_TOKEN", "").strip()
    if not stated or environment.get("HF_HUB_DISABLE_IMPLICIT_TOKEN", "").upper() in ("1", "ON", "YES", "TRUE"):
        return None
    return _only_token(stated.encode("utf-8", "surrogateescape"), "HF_TOKEN", None)


def _only_token(content: bytes, place: str, where: str | None) -> Token:
    words = content.split()
    if len(words) != 1 or len(content) > 65536 or not words[0].isascii() or not words[0].decode("ascii").isprintable():
        raise OnecatError(
            f"{place} does not hold one token", where=where, expected="one line of printable ASCII without blanks"
        )
    return Token(words[0].decode("ascii"))
