"""A host over SSH as a Machine: files, programs, locks, servers and the Docker daemon, all through one connection."""

from __future__ import annotations

import contextlib
import errno
import gc
import os
import re
import socket
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING
from urllib.parse import urlsplit, urlunsplit

from onecat.errors import ExitCode, OnecatError
from onecat.hosts.bridge import Bridge, channel_bridge
from onecat.hosts.conversation import ChannelConversation, Conversation
from onecat.hosts.docker_dial import ASK_SECONDS, PING, check_answer, dial_argv, endpoint_argv
from onecat.hosts.machine import RUN_SECONDS, FileStatus, Machine
from onecat.hosts.remote_lock import RemoteLock, lock_argv
from onecat.hosts.sftp_files import SftpFiles
from onecat.hosts.streamlocal import open_streamlocal
from onecat.hosts.sudo import SudoPasswords, SudoRefusedError, SudoTransport
from onecat.hosts.transport import Completed, ConnectionLostError, Transport

if TYPE_CHECKING:
    from paramiko import Channel

    from onecat.hosts.ssh import SshTransport

_VARIABLES = ("HOME", "ONECAT_HOME", "XDG_DATA_HOME", "DOCKER_HOST")
_ASK_WHO = r"""printf '%s\0' "$(id -u)" "$(id -g)" "$HOME" "$ONECAT_HOME" "$XDG_DATA_HOME" "$DOCKER_HOST" """
# Where distributions keep the program behind `Subsystem sftp`: Debian, Red Hat, SUSE and Arch, Alpine, hand-made.
_SFTP_SERVERS = (
    "/usr/lib/openssh/sftp-server",
    "/usr/libexec/openssh/sftp-server",
    "/usr/lib/ssh/sftp-server",
    "/usr/libexec/sftp-server",
    "/usr/local/libexec/sftp-server",
)
_START_SFTP = f'for each in {" ".join(_SFTP_SERVERS)}; do [ -x "$each" ] && exec "$each"; done; exit 127'
_SESSION_ATTEMPTS, _SESSION_SECONDS = 10, 0.2
_PROHIBITED = 1
"""SSH_OPEN_ADMINISTRATIVELY_PROHIBITED: RFC 4254, section 5.1."""


def data_directory_of(environment: Mapping[str, str]) -> str:
    """Where onecat keeps its data on a host with these variables: as onecat.paths.home on this machine.

    environment: HOME, ONECAT_HOME and XDG_DATA_HOME; an empty one counts as not set.
    """
    home = environment["HOME"]
    chosen = environment.get("ONECAT_HOME", "")
    if chosen:
        expanded = home + chosen[1:] if chosen == "~" or chosen.startswith("~/") else chosen
        return str(PurePosixPath(home, expanded))
    shared = environment.get("XDG_DATA_HOME", "").strip()
    return f"{shared or home + '/.local/share'}/onecat"


class SshMachine:
    """See Machine.

    Parameters:
        transport: the way to the host; it belongs to the machine from now on.
        passwords: where sudo's password comes from.
    """

    is_local = False

    def __init__(self, transport: SshTransport, passwords: SudoPasswords) -> None:
        transport.reconnects = False
        self._transport = transport
        self._passwords = passwords
        self._opened = contextlib.ExitStack()
        self._lock = threading.RLock()
        self._who: tuple[int, int, dict[str, str]] | None = None
        self._files_are: SftpFiles | None = None
        self._root: Machine | None = None
        self._docker_hosts: dict[str | None, str] = {}
        self._forwards: dict[tuple[str, int], int] = {}

    @property
    def name(self) -> str:
        return self._transport.name

    @property
    def transport(self) -> Transport:
        """The connection as a way to run programs, for what needs no more."""
        return self._transport

    @property
    def is_lost(self) -> bool:
        return self._transport.is_lost

    @property
    def address(self) -> str:
        """The address or name by which ssh reaches the host (HostName)."""
        return self._transport.settings.address

    @property
    def data_directory(self) -> str:
        return data_directory_of(self._identity[2])

    @property
    def user_id(self) -> int:
        return self._identity[0]

    @property
    def group_id(self) -> int:
        return self._identity[1]

    def root(self) -> Machine | None:
        if self.user_id == 0:
            return self
        with self._lock:
            if self._root is None:
                root = SudoTransport(self._transport, self._passwords)
                try:
                    root.run(["true"], timeout=RUN_SECONDS)
                except SudoRefusedError:
                    return None
                self._root = _RootMachine(self, root)
            return self._root

    def run(self, argv: Sequence[str], *, stdin: bytes = b"", timeout: float = RUN_SECONDS) -> Completed:
        return self._transport.run(argv, stdin=stdin, timeout=timeout)

    def start(self, argv: Sequence[str]) -> Conversation:
        return ChannelConversation(self._open(argv), argv[0], self.name)

    def read(self, path: str) -> bytes | None:
        return self._files.read(path)

    def read_part(self, path: str, offset: int, size: int) -> bytes:
        return self._files.read_part(path, offset, size)

    def link_target(self, path: str) -> str:
        return self._files.link_target(path)

    def write(self, path: str, content: bytes, mode: int = 0o600, owner: tuple[int, int] | None = None) -> None:
        self._files.write(path, content, mode, owner)

    def append(self, path: str, content: bytes) -> None:
        self._files.append(path, content)

    def names(self, path: str) -> tuple[str, ...]:
        return self._files.names(path)

    def entries(self, path: str) -> dict[str, FileStatus]:
        return self._files.entries(path)

    def status(self, path: str) -> FileStatus | None:
        return self._files.status(path)

    def make_directory(self, path: str, mode: int = 0o700) -> None:
        self._files.make_directory(path, mode)

    def rename(self, old: str, new: str) -> None:
        self._files.rename(old, new)

    def remove(self, path: str) -> None:
        found = self.status(path)
        if found is None:
            return
        if found.kind != "directory":
            self._files.remove_file(path)
            return
        done = self.run(["rm", "-rf", "--", path])
        if done.exit_code != 0:
            said = done.stderr.decode(errors="replace").strip()
            number = errno.EACCES if "ermi" in said else errno.EIO  # Permission denied, Operation not permitted
            raise OSError(number, said.splitlines()[-1] if said else os.strerror(number), path)

    def free_bytes(self, path: str) -> int:
        return self._files.free_bytes(path)

    @contextlib.contextmanager
    def lock(self, path: str, holder: str) -> Iterator[None]:
        held = RemoteLock(
            self._open(lock_argv(path, holder)),
            path,
            self.name,
            lambda: (self.read(path) or b"").decode(errors="replace"),
            self._give_up,
        )
        try:
            yield
        finally:
            held.release()

    def docker_host(self, given: str | None) -> str | None:
        with self._lock:
            if given not in self._docker_hosts:
                path = self._opened.enter_context(self._bridge_to_docker(given))
                self._docker_hosts[given] = f"unix://{path}"
            return self._docker_hosts[given]

    def reach(self, url: str) -> str:
        parts = urlsplit(url)
        port = self._forwarded(parts.hostname or "127.0.0.1", parts.port or (443 if parts.scheme == "https" else 80))
        return urlunsplit(parts._replace(netloc=f"127.0.0.1:{port}"))

    def close(self) -> None:
        self._opened.close()
        self._transport.close()

    @property
    def _identity(self) -> tuple[int, int, dict[str, str]]:
        with self._lock:
            if self._who is None:
                answer = self.run(["sh", "-c", _ASK_WHO])
                # A login shell may print before.
                found = re.search(rb"(\d+)\0(\d+)\0([^\0]*)\0([^\0]*)\0([^\0]*)\0([^\0]*)\0$", answer.stdout)
                if found is None:
                    raise OnecatError(
                        "the host does not tell who we are there",
                        expected="a shell that runs programs, as sh",
                        where=self.name,
                        details=answer.stderr.decode(errors="replace").splitlines()[-3:],
                        code=ExitCode.UNREACHABLE,
                    )
                words = [part.decode(errors="surrogateescape") for part in found.groups()[2:]]
                self._who = (int(found[1]), int(found[2]), dict(zip(_VARIABLES, words, strict=True)))
            return self._who

    def _bridge_to_docker(self, given: str | None) -> contextlib.AbstractContextManager[Path]:
        """To the engine's socket itself where sshd forwards to it, else through the docker command there.

        Raises OnecatError (exit code 3) when the engine does not answer.
        """
        socket_path = self._docker_socket(given)
        if socket_path is not None:
            return channel_bridge(self.name, lambda: self._open_socket(socket_path))
        argv = dial_argv(given)
        check_answer(self._transport.run(argv, stdin=PING, timeout=ASK_SECONDS), self.name)
        return channel_bridge(self.name, lambda: self._open_session(argv))

    def _open_session(self, argv: Sequence[str]) -> Channel:
        """A program on a channel, of which sshd lets a connection have a few: waits for those that are done with."""
        for attempt in range(_SESSION_ATTEMPTS):
            try:
                return self._transport.open(argv)
            except OnecatError as error:
                if isinstance(error, ConnectionLostError) or attempt == _SESSION_ATTEMPTS - 1:
                    raise
                # Clients of the engine that nobody uses any more hold theirs until they are collected.
                gc.collect()
                time.sleep(_SESSION_SECONDS)
        raise AssertionError

    def _docker_socket(self, given: str | None) -> str | None:
        """The path of the engine's socket there, if it answers through this connection; None: ask docker for it."""
        address = given
        if address is None:
            address = self.run(endpoint_argv()).stdout.decode(errors="replace").strip()
        if not address.startswith("unix:///"):
            return None
        path = address.removeprefix("unix://")
        try:
            channel = self._open_socket(path)
        except OnecatError as error:
            if isinstance(error, ConnectionLostError):
                raise
            return None
        with contextlib.closing(channel):
            channel.settimeout(ASK_SECONDS)
            try:
                channel.sendall(PING)
                return path if channel.recv(1 << 10).startswith(b"HTTP/1.1 200") else None
            except OSError:
                return None

    def _open_socket(self, path: str) -> Channel:
        import paramiko

        connection = self._transport.connected()
        try:
            return open_streamlocal(connection, path, RUN_SECONDS)
        except (paramiko.SSHException, EOFError, OSError) as error:
            if not connection.is_active():
                raise self._transport.lost(error) from error
            raise OnecatError(
                f"sshd does not reach {path}: {error}", where=self.name, code=ExitCode.UNREACHABLE
            ) from error

    @property
    def _files(self) -> SftpFiles:
        with self._lock:
            if self._files_are is None:
                self._files_are = SftpFiles(self._open_files(), self._transport.lost)
            return self._files_are

    def _open_files(self) -> Channel:
        import paramiko

        try:
            channel = self._transport.connected().open_session(timeout=RUN_SECONDS)
            channel.invoke_subsystem("sftp")
        except (paramiko.SSHException, EOFError, OSError) as error:
            if not self._transport.connected().is_active():
                raise self._transport.lost(error) from error
            raise OnecatError(
                "sshd on the host offers no SFTP, by which onecat writes its files there",
                where=self.name,
                details=[str(error)],
                next_steps=["there, in /etc/ssh/sshd_config: Subsystem sftp internal-sftp"],
                code=ExitCode.UNREACHABLE,
            ) from error
        return channel

    def _open(self, argv: Sequence[str]) -> Channel:
        return self._transport.open(argv)

    def _give_up(self, why: str) -> None:
        self._transport.lost(ConnectionError(why))

    def _forwarded(self, host: str, port: int) -> int:
        """The port of this machine that leads to a port as the host reaches it."""
        with self._lock:
            if (host, port) not in self._forwards:
                if not self._forwards:
                    self._check_forwarding(host, port)
                listener = socket.create_server(("127.0.0.1", 0))
                bridge = Bridge(listener, lambda: self._connect(host, port))
                self._opened.callback(bridge.stop)
                bridge.start()
                self._forwards[host, port] = int(listener.getsockname()[1])
            return self._forwards[host, port]

    def _connect(self, host: str, port: int) -> Channel:
        """A connection to a port as the host reaches it. Raises OnecatError when there is none."""
        import paramiko

        try:
            return self._transport.connected().open_channel(
                "direct-tcpip", (host, port), ("127.0.0.1", 0), timeout=RUN_SECONDS
            )
        except (paramiko.SSHException, EOFError, OSError) as error:
            raise OnecatError(
                f"nothing answers at {host} port {port}: {error}", where=self.name, code=ExitCode.UNREACHABLE
            ) from error

    def _check_forwarding(self, host: str, port: int) -> None:
        """Raises OnecatError when sshd forbids it; that nothing listens there yet does not matter."""
        import paramiko

        try:
            self._connect(host, port).close()
        except OnecatError as error:
            why = error.__cause__
            if isinstance(why, paramiko.ChannelException) and why.code == _PROHIBITED:
                raise OnecatError(
                    "sshd on the host forbids TCP forwarding, by which onecat asks the server whether it is ready",
                    where=self.name,
                    details=[str(why)],
                    next_steps=[
                        "there, in /etc/ssh/sshd_config: AllowTcpForwarding local",
                        "then: systemctl reload ssh",
                    ],
                    code=ExitCode.UNREACHABLE,
                ) from error
            if not self._transport.connected().is_active():
                raise self._transport.lost(error) from error


class _RootMachine(SshMachine):
    """The same host with root's rights: programs through sudo, files through an SFTP server that sudo has started."""

    def __init__(self, user: SshMachine, root: SudoTransport) -> None:
        super().__init__(user._transport, user._passwords)
        self._user = user
        self._sudo = root
        self._who = (0, 0, user._identity[2])

    def root(self) -> Machine | None:
        return self

    def run(self, argv: Sequence[str], *, stdin: bytes = b"", timeout: float = RUN_SECONDS) -> Completed:
        return self._sudo.run(argv, stdin=stdin, timeout=timeout)

    def docker_host(self, given: str | None) -> str | None:
        return self._user.docker_host(given)

    def reach(self, url: str) -> str:
        return self._user.reach(url)

    def close(self) -> None:
        """The connection is the user's."""

    def _open_files(self) -> Channel:
        return self._open(["sh", "-c", _START_SFTP])

    def _open(self, argv: Sequence[str]) -> Channel:
        return self._sudo.open(argv)
