"""Private keys for logging in: of the SSH agent and from files, each read once for a whole run."""

from __future__ import annotations

import base64
import binascii
import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from onecat.hosts.asking import Desk

if TYPE_CHECKING:
    from paramiko import PKey

    from onecat.hosts.ssh_config import SshSettings

_OPENSSH = b"openssh-key-v1\0"
AGENT_SECONDS = 60.0
"""How long an agent may take: it may ask the person to confirm."""


class Identities:
    """Keys to offer to hosts."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._lock = threading.Lock()
        self._keys: dict[Path, PKey | None] = {}
        self.problems: dict[Path, str] = {}

    def for_host(self, settings: SshSettings) -> Iterator[PKey]:
        """Keys for one host: those of the agent, then those in files.

        Encrypted files come last, for then the person must be asked. With IdentitiesOnly the agent is asked only for
        keys that the configuration names.
        """
        files = [file for file in settings.identities if os.access(file, os.R_OK) and file.is_file()]
        public = {file: _public_part(file) for file in files}
        agent_keys = _agent_keys(settings.agent)
        if settings.identities_only:
            agent_keys = [key for key in agent_keys if key.asbytes() in public.values()]
        yield from sorted(agent_keys, key=lambda key: key.asbytes() not in public.values())
        in_agent = {key.asbytes() for key in agent_keys}
        missing = [file for file in files if public[file] is None or public[file] not in in_agent]
        for file in sorted(missing, key=lambda each: _is_encrypted(each.read_bytes())):
            key = self._key(file)
            if key is not None:
                yield key

    def _key(self, file: Path) -> PKey | None:
        """The key in a file; None when it cannot be had, and `problems` says why."""
        with self._desk.waiting(), self._lock:
            if file not in self._keys:
                self._keys[file] = self._read(file)
            return self._keys[file]

    def _read(self, file: Path) -> PKey | None:
        from paramiko import SSHException

        try:
            text = file.read_bytes()
            passphrase = None
            if _is_encrypted(text):
                passphrase = self._desk.ask(f"passphrase of {file}: ") if self._desk.is_attended else None
                if not passphrase:
                    self.problems[file] = "it is encrypted, no agent has it, and nobody gave its passphrase"
                    return None
            key = _key_class(file, text).from_private_key_file(str(file), passphrase)
            certificate = file.with_name(f"{file.name}-cert.pub")
            if certificate.exists():
                key.load_certificate(str(certificate))
            return key
        except (SSHException, OSError, ValueError) as error:
            self.problems[file] = str(error)
            return None


def _key_class(file: Path, text: bytes) -> type[PKey]:
    from paramiko import ECDSAKey, Ed25519Key, RSAKey, SSHException

    public = _public_part(file)
    kind = next(_fields(public), b"") if public else text.partition(b"\n")[0]
    for part, kind_class in ((b"ed25519", Ed25519Key), (b"ecdsa", ECDSAKey), (b"EC ", ECDSAKey), (b"rsa", RSAKey)):
        if part in kind and not kind.startswith(b"sk-"):
            return kind_class
    if b"RSA" in kind:
        return RSAKey
    raise SSHException(f"a key of this kind must come from an agent: ssh-add {file}")


def _agent_keys(address: str | None) -> list[PKey]:
    """The keys of the SSH agent at a socket ("": that of SSH_AUTH_SOCK); none when there is no agent."""
    from paramiko import SSHException
    from paramiko.agent import AgentSSH

    address = os.environ.get("SSH_AUTH_SOCK") if address == "" else address
    if not address:
        return []
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.settimeout(AGENT_SECONDS)
    try:
        connection.connect(address)
        agent = AgentSSH()
        agent._connect(connection)  # type: ignore[attr-defined] # its own class takes no other socket than that of SSH_AUTH_SOCK
    except (SSHException, OSError):
        connection.close()
        return []
    return list(agent.get_keys())


def _is_encrypted(text: bytes) -> bool:
    content = _openssh_content(text)
    return b"ENCRYPTED" in text or (content is not None and not content.startswith(_OPENSSH + b"\0\0\0\4none"))


def _public_part(file: Path) -> bytes | None:
    """The public key that belongs to a private one, from the file beside it or from its own unencrypted head."""
    try:
        words = file.with_name(f"{file.name}.pub").read_text().split()
        return base64.b64decode(words[1])
    except (OSError, ValueError, IndexError, binascii.Error):
        content = _openssh_content(file.read_bytes())
    # After the cipher, the function that makes its key, and that one's options stand a number and the public key.
    rest = content[len(_OPENSSH) :] if content else b""
    for _ in range(3):
        rest = rest[4 + int.from_bytes(rest[:4], "big") :]
    return next(_fields(rest[4:]), None)


def _fields(data: bytes) -> Iterator[bytes]:
    """The strings in a piece of the SSH protocol (RFC 4251, section 5)."""
    while len(data) >= 4:
        length = int.from_bytes(data[:4], "big")
        yield data[4 : 4 + length]
        data = data[4 + length :]


def _openssh_content(text: bytes) -> bytes | None:
    """What is inside of OpenSSH's own form of a private key, its PROTOCOL.key; None for other forms."""
    lines = text.strip().splitlines()
    if not lines or b"OPENSSH PRIVATE KEY" not in lines[0]:
        return None
    try:
        content = base64.b64decode(b"".join(lines[1:-1]))
    except binascii.Error:
        return None
    return content if content.startswith(_OPENSSH) else None
