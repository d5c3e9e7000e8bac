"""The keys by which nginx knows its clients: read from a file with one `NAME KEY` per line, written as nginx's maps.

nginx compares the strings of a map without regard to case, and regular expressions with it: a key is one of those.
"""

from __future__ import annotations

import hashlib
import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from onecat.errors import OnecatError
from onecat.resources import render_template

if TYPE_CHECKING:
    from onecat.config import Deployment

# What a bearer token may consist of: RFC 6750, section 2.1 (b64token). None of it means anything to nginx.
_KEY = re.compile(r"[A-Za-z0-9._~+/-]+=*")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")
LEAST_KEY_LENGTH = 16
_LONGEST_KEY = 512


class ClientKeys:
    """Who may ask. clients: (name, key); server_key: what the server itself wants to hear, None where it has none.

    No dataclass: what turns a record that holds it into a document shall not find the keys.
    """

    __slots__ = ("clients", "server_key")

    def __init__(self, clients: tuple[tuple[str, str], ...], server_key: str | None = None) -> None:
        self.clients = clients
        self.server_key = server_key

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ClientKeys):
            return NotImplemented
        return (self.clients, self.server_key) == (other.clients, other.server_key)

    def __hash__(self) -> int:
        return hash((self.clients, self.server_key))

    def __repr__(self) -> str:
        return f"<keys of {len(self.clients)} clients>"


def read_client_keys(deployment: Deployment, server_key: str | None) -> ClientKeys | None:
    """The keys that the deployment's proxy.keys_file holds on this machine; None where it names none.

    Parameters:
        server_key: the server's own API key; nginx sends it in place of the client's.

    Raises OnecatError (usage), never with a key in it.
    """
    configured = deployment.proxy.keys_file
    if configured is None:
        return None
    path = Path(configured).expanduser().absolute()
    try:
        mode, content = path.stat().st_mode, path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not text"
        raise OnecatError(
            f"the clients' keys cannot be read: {reason}", where=str(path), next_steps=[_how_to_make_one(str(path))]
        ) from error
    if mode & 0o007:
        raise OnecatError(
            "everybody on this machine may read the clients' keys",
            expected="a file for its owner alone",
            where=str(path),
            next_steps=[f"chmod 600 {path}"],
        )
    if server_key is not None and not _KEY.fullmatch(server_key):
        raise OnecatError(
            "the server's API key has a character that nginx cannot send",
            expected="letters, digits and - . _ ~ + / only, and = at the end",
            where="secrets.api_key",
            next_steps=["make another one: openssl rand -hex 32"],
        )
    return ClientKeys(parse_keys(content, str(path)), server_key)


def mark_of(keys: ClientKeys, salt: str) -> str:
    """A hash of the keys that may be written down: it goes through scrypt (RFC 7914)."""
    text = "\n".join(f"{name} {key}" for name, key in keys.clients) + f"\n{keys.server_key or ''}"
    return hashlib.scrypt(text.encode(), salt=salt.encode(), n=2**14, r=8, p=1, dklen=16).hex()


def parse_keys(text: str, where: str) -> tuple[tuple[str, str], ...]:
    """The (name, key) of each line; empty lines and those that begin with # say nothing.

    A name may stand in several lines: so a client changes its key without a gap. Raises OnecatError with the line.
    """
    found: list[tuple[str, str]] = []
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        problem = _problem(words, found)
        if problem is not None:
            raise OnecatError(
                problem,
                expected=f"NAME KEY; the key: {LEAST_KEY_LENGTH} or more letters, digits and - . _ ~ + /, = at its end",
                where=f"{where}:{number}",
                next_steps=[_how_to_make_one(where)],
            )
        found.append((words[0], words[1]))
    if not found:
        raise OnecatError(
            "there is no key in it: nobody could ask the server anything",
            where=where,
            next_steps=[_how_to_make_one(where)],
        )
    return tuple(found)


def _how_to_make_one(where: str) -> str:
    path = shlex.quote(where)
    return f"make a key: printf 'NAME %s\\n' \"$(openssl rand -hex 32)\" >> {path}; chmod 600 {path}"


def _problem(words: Sequence[str], before: Sequence[tuple[str, str]]) -> str | None:
    if len(words) != 2:
        return f"a line has {len(words)} words in place of a name and a key"
    name, key = words
    if not _NAME.fullmatch(name):
        return "a client's name has a character that it must not have"
    if not _KEY.fullmatch(key):
        return f"the key of {_told(name)} has a character that it must not have"
    if not LEAST_KEY_LENGTH <= len(key) <= _LONGEST_KEY:
        return f"the key of {_told(name)} has {len(key)} characters"
    other = next((each for each, known in before if known == key), None)
    return None if other is None else f"{_told(name)} and {_told(other)} have the same key"


def _told(name: str) -> str:
    """A client's name for a person; not one that could be a key, as where both were exchanged."""
    return name if len(name) < LEAST_KEY_LENGTH else "a client with a long name"


def render_keys(identifier: str, keys: ClientKeys) -> str:
    """The file that a site with keys includes, for nginx's http context. It is for the eyes of nginx alone."""
    return render_template(
        "nginx/keys.conf.j2",
        identifier=identifier,
        clients=[(name, _pattern(key)) for name, key in keys.clients],
        server_key=keys.server_key,
    )


def _pattern(key: str) -> str:
    """A regular expression for exactly this key; the name of the scheme is written in any case (RFC 7235, 2.1)."""
    literal = "".join(f"[{each}]" if each in ".+" else each for each in key)
    return rf"~^(?i:bearer) +{literal}\z"
