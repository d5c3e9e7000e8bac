"""Hosts over SSH."""

from __future__ import annotations

import logging
import selectors
import shlex
import socket
import subprocess
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from onecat.errors import ExitCode, OnecatError
from onecat.hosts import login
from onecat.hosts.asking import Desk
from onecat.hosts.host_keys import check_host_key
from onecat.hosts.identities import Identities
from onecat.hosts.known_hosts import KnownHosts, KnownKey, read_known_hosts
from onecat.hosts.reach import CONNECT_SECONDS, DEFAULT_PARALLEL
from onecat.hosts.ssh_config import SshConfiguration, SshSettings
from onecat.hosts.target import Target
from onecat.hosts.transport import Completed, ConnectionLostError, EndOfInput, Preface

if TYPE_CHECKING:
    from paramiko import Channel
    from paramiko import Transport as Connection


MOST_JUMPS = 8
KEEPALIVE_SECONDS = 5
SILENT_SECONDS = 15
"""After this time without an answer of the host's kernel a connection counts as lost."""


class SshAccess:
    """What all connections of one run share: configuration, host keys, private keys, jump hosts, the person asked.

    Parameters:
        desk: where to ask for passwords and passphrases.
        connect_timeout: seconds for reaching a host and for logging in, each; ConnectTimeout of the configuration
            stands before it.
        parallel: how many hosts may be logged in on at the same time.
        configuration: of ssh; None reads that of this machine's user.
    """

    def __init__(
        self,
        desk: Desk,
        connect_timeout: float = CONNECT_SECONDS,
        parallel: int = DEFAULT_PARALLEL,
        configuration: SshConfiguration | None = None,
    ) -> None:
        # Without a handler Python would write paramiko's warnings, with tracebacks, on standard error.
        logging.getLogger("paramiko").addHandler(logging.NullHandler())
        logging.getLogger("paramiko").propagate = False
        self.desk = desk
        self.identities = Identities(desk)
        self._turns = threading.Semaphore(parallel)
        self._connect_timeout = connect_timeout
        self._configuration = configuration or SshConfiguration.of_this_user()
        self._known_hosts: dict[tuple[Path, ...], KnownHosts] = {}
        self._jumps: dict[Target, Connection] = {}
        self._locks: dict[Target, threading.Lock] = {}
        self._lock = threading.Lock()

    def transport(self, target: Target) -> SshTransport:
        """The host as a Transport; connects at its first run. Raises OnecatError when it cannot be meant."""
        return SshTransport(self, target, self.settings(target))

    def settings(self, target: Target) -> SshSettings:
        """How a host is reached."""
        return self._configuration.settings(target)

    def timeout(self, settings: SshSettings) -> float:
        """Seconds for reaching a host, and again for logging in."""
        return settings.connect_timeout or self._connect_timeout

    def seconds_to_reach(self, settings: SshSettings, depth: int = 0) -> float:
        """The longest time until one is logged in, jump hosts and the look-up of names included."""
        jumps = [self.settings(jump) for jump in settings.jumps] if depth < MOST_JUMPS else []
        return 3 * self.timeout(settings) + sum(self.seconds_to_reach(jump, depth + 1) for jump in jumps)

    def take_turn(self, target: Target, settings: SshSettings) -> Connection:
        """A connection as connect makes it, when it is this host's turn; to be given up by end_turn."""
        opened = self._open(target, settings, 0)
        with self.desk.waiting():
            self._turns.acquire()
        try:
            return self._log_in(opened, target, settings)
        except BaseException:
            self._turns.release()
            raise

    def end_turn(self, connection: Connection) -> None:
        """Close a connection that take_turn made."""
        connection.close()
        self._turns.release()

    def connect(self, target: Target, settings: SshSettings, depth: int = 0) -> Connection:
        """A connection on which one is logged in. Raises OnecatError (exit code 3) that says why there is none."""
        return self._log_in(self._open(target, settings, depth), target, settings)

    def _open(self, target: Target, settings: SshSettings, depth: int) -> socket.socket | Channel:
        if depth > MOST_JUMPS:
            raise _unreachable(target, f"more than {MOST_JUMPS} jump hosts, perhaps in a circle")
        return self._socket(target, settings, self.timeout(settings), depth)

    def _log_in(self, opened: socket.socket | Channel, target: Target, settings: SshSettings) -> Connection:
        import paramiko

        timeout = self.timeout(settings)
        known_hosts = self._known_hosts_of(settings)
        connection = paramiko.Transport(opened)
        connection.daemon = True
        try:
            _choose_algorithms(connection, known_hosts, settings)
            _shake_hands(connection, target, settings, timeout)
            check_host_key(connection.get_remote_server_key(), target, settings, known_hosts)
            login.log_in(connection, target, settings, self.identities, self.desk, timeout)
        except BaseException:
            connection.close()
            raise
        return connection

    def close(self) -> None:
        """Close the connections to jump hosts."""
        with self._lock:
            jumps, self._jumps = list(self._jumps.values()), {}
        for connection in reversed(jumps):
            connection.close()

    def _socket(self, target: Target, settings: SshSettings, timeout: float, depth: int) -> socket.socket | Channel:
        if settings.jumps:
            return self._through(target, settings, timeout, depth)
        if settings.proxy_command:
            return _piped(settings.proxy_command, target)
        try:
            connected = socket.create_connection((settings.address, settings.port), timeout)
        except socket.gaierror as error:
            steps = [f"getent hosts {settings.address}", "write its address as HostName into ~/.ssh/config"]
            raise _unreachable(target, f"the name is not known ({error.strerror})", steps) from error
        except TimeoutError as error:
            found = f"no answer from {settings.address} port {settings.port} within {timeout:g} s"
            raise _unreachable(target, found, [f"ping {settings.address}"]) from error
        except OSError as error:
            found = f"{settings.address} port {settings.port}: {error.strerror or error}"
            steps = [f"is sshd running there? ssh {target.ssh_words}"]
            raise _unreachable(target, found, steps) from error
        _notice_when_lost(connected)
        return connected

    def _through(self, target: Target, settings: SshSettings, timeout: float, depth: int) -> Channel:
        import paramiko

        previous: Connection | None = None
        for number, jump in enumerate(settings.jumps):
            previous = self._jump(jump, settings.jumps[:number], previous, depth + 1)
        assert previous is not None
        place = (settings.address, settings.port)
        try:
            return previous.open_channel("direct-tcpip", place, ("127.0.0.1", 0), timeout=timeout)
        except (paramiko.SSHException, EOFError, OSError) as error:
            found = f"{settings.jumps[-1].text} cannot connect to {place[0]} port {place[1]}: {error or 'no answer'}"
            raise _unreachable(target, found) from error

    def _jump(self, jump: Target, before: tuple[Target, ...], previous: Connection | None, depth: int) -> Connection:
        """The connection to a jump host, which all hosts behind it share."""
        from dataclasses import replace

        with self._lock:
            lock = self._locks.setdefault(jump, threading.Lock())
        with self.desk.waiting(), lock:
            known = self._jumps.get(jump)
            if known is not None and known.is_active():
                return known
            settings = self.settings(jump)
            if previous is not None:
                settings = replace(settings, jumps=before, proxy_command=())
            connection = self.connect(jump, settings, depth)
            with self._lock:
                self._jumps[jump] = connection
            return connection

    def _known_hosts_of(self, settings: SshSettings) -> KnownHosts:
        files = settings.known_hosts_files
        with self._lock:
            if files not in self._known_hosts:
                self._known_hosts[files] = KnownHosts(key for file in files for key in _keys_in(file))
            return self._known_hosts[files]


class SshTransport:
    """One host over SSH; see Transport.

    reconnects: whether a lost connection is made again by the next run; False for work that counts on what it holds on
    the host, as a lock: then everything after the loss raises ConnectionLostError.
    """

    python = None

    def __init__(self, access: SshAccess, target: Target, settings: SshSettings) -> None:
        self._access = access
        self._target = target
        self._settings = settings
        self._connection: Connection | None = None
        self._connecting = threading.Lock()
        self._lost_by: str | None = None
        self._failed: OnecatError | None = None
        self.reconnects = True

    @property
    def name(self) -> str:
        return self._target.text

    @property
    def seconds_to_reach(self) -> float:
        return self._access.seconds_to_reach(self._settings)

    def run(
        self, argv: Sequence[str], *, stdin: bytes = b"", timeout: float, preface: Preface | None = None
    ) -> Completed:
        """See Transport.run."""
        import paramiko

        connection = self.connected()
        started = time.monotonic()
        try:
            channel = connection.open_session(timeout=timeout)
            channel.settimeout(timeout)
            channel.exec_command(shlex.join(argv))
            output, errors, is_whole = _Exchange(channel, stdin, preface, started + timeout).hold()
            exit_code = channel.recv_exit_status() if is_whole and channel.exit_status_ready() else -1
            if connection.is_active():
                channel.close()
        except paramiko.ChannelException as error:
            raise self._no_channel(argv[0], error) from error
        except (paramiko.SSHException, EOFError, OSError) as error:
            raise self.lost(error) from error
        except BaseException:
            self.close()  # what runs there ends with its connection
            raise
        if not is_whole:
            self.close()
            found = f"{argv[0]} did not end within {timeout:g} s"
            raise _unreachable(self._target, found, details=_last_lines(errors))
        if exit_code == -1 and not connection.is_active():
            raise self.lost(connection.get_exception() or EOFError(), errors)
        return Completed(tuple(argv), exit_code, output, errors, time.monotonic() - started)

    def open(self, argv: Sequence[str]) -> Channel:
        """Start a program and leave it to the caller to talk with it: the channel is its input and output.

        Raises OnecatError (exit code 3) when it cannot be started.
        """
        import paramiko

        connection = self.connected()
        try:
            channel = connection.open_session(timeout=self._access.timeout(self._settings))
            channel.exec_command(shlex.join(argv))
        except paramiko.ChannelException as error:
            raise self._no_channel(argv[0], error) from error
        except (paramiko.SSHException, EOFError, OSError) as error:
            if not connection.is_active():
                raise self.lost(error) from error
            raise _unreachable(self._target, f"{argv[0]} could not be started there: {error}") from error
        return channel

    def connected(self) -> Connection:
        """The connection, made where there is none yet. Raises OnecatError (exit code 3)."""
        with self._connecting:
            if self._lost_by is not None and not self.reconnects:
                raise ConnectionLostError(self._lost_by, where=self.name, code=ExitCode.UNREACHABLE)
            if self._failed is not None and not self.reconnects:
                raise self._failed  # who was asked for a password once is not asked again
            if self._connection is None:
                try:
                    self._connection = self._access.take_turn(self._target, self._settings)
                except OnecatError as error:
                    self._failed = error
                    raise
            return self._connection

    @property
    def is_lost(self) -> bool:
        """Whether there was a connection that has ended by itself."""
        connection = self._connection
        return self._lost_by is not None or (connection is not None and not connection.is_active())

    @property
    def settings(self) -> SshSettings:
        """How the host is reached."""
        return self._settings

    def close(self) -> None:
        """See Transport.close."""
        connection, self._connection = self._connection, None
        if connection is not None:
            self._lost_by = self._lost_by or "the connection was closed"
            self._access.end_turn(connection)

    def lost(self, error: BaseException, errors: bytes = b"") -> ConnectionLostError:
        """What to tell when the connection has ended by itself; from now on it counts as lost."""
        why = str(error)
        self._lost_by = self._lost_by or "the connection was lost" + (f": {why}" if why else "")
        self.close()
        return ConnectionLostError(
            self._lost_by, where=self.name, details=_last_lines(errors), code=ExitCode.UNREACHABLE
        )

    def _no_channel(self, program: str, error: BaseException) -> OnecatError:
        return _unreachable(
            self._target,
            f"sshd does not let {program} start: {error}",
            ["raise MaxSessions in the host's sshd_config (10 by default)"],
        )


class _Exchange:
    """What is sent to a program on a channel and what it answers."""

    def __init__(self, channel: Channel, stdin: bytes, preface: Preface | None, deadline: float) -> None:
        self._channel = channel
        self._stdin = stdin
        self._preface = preface
        self._deadline = deadline
        self._output = bytearray()
        self._errors = bytearray()

    def hold(self) -> tuple[bytes, bytes, bool]:
        """Standard output and error, and whether the program came to its end."""
        if self._preface is None:
            self._send_input()
        with selectors.DefaultSelector() as selector:
            selector.register(self._channel, selectors.EVENT_READ)
            while not self._is_over():
                remaining = self._deadline - time.monotonic()
                if remaining <= 0:
                    return bytes(self._output), bytes(self._errors), False
                selector.select(remaining)
                self._receive()
                if self._preface is not None:
                    self._reply(self._preface)
        self._receive()
        return bytes(self._output), bytes(self._errors), True

    def _is_over(self) -> bool:
        # The end of output is not yet the end: the exit code follows, unless the connection is lost.
        channel = self._channel
        no_more = bool(channel.eof_received) and not channel.recv_ready() and not channel.recv_stderr_ready()
        return bool(channel.closed) or (
            no_more and channel.status_event.wait(max(0.0, self._deadline - time.monotonic()))
        )

    def _receive(self) -> None:
        while self._channel.recv_ready():
            self._output += self._channel.recv(1 << 20)
        while self._channel.recv_stderr_ready():
            self._errors += self._channel.recv_stderr(1 << 20)

    def _reply(self, preface: Preface) -> None:
        asked = time.monotonic()
        try:
            reply = preface.reply(bytes(self._output), bytes(self._errors))
        except EndOfInput:
            self._preface = None
            self._channel.shutdown_write()
            return
        self._deadline += time.monotonic() - asked
        if reply is None:
            self._preface = None
            self._send_input()
        elif reply:
            self._channel.sendall(reply)

    def _send_input(self) -> None:
        with suppress(OSError):  # a program that reads nothing may end before: its exit code tells
            self._channel.sendall(self._stdin)
        self._channel.shutdown_write()


def _keys_in(file: Path) -> tuple[KnownKey, ...]:
    try:
        return read_known_hosts(file.read_text(encoding="utf-8", errors="replace"), file)
    except FileNotFoundError:
        return ()
    except OSError as error:
        raise OnecatError(f"the known host keys cannot be read: {error.strerror}", where=str(file)) from error


def _choose_algorithms(connection: Connection, known_hosts: KnownHosts, settings: SshSettings) -> None:
    options = connection.get_security_options()
    # These encrypt and authenticate in one pass; with the others paramiko compares every packet's code in Python.
    options.ciphers = sorted(options.ciphers, key=lambda each: not each.endswith("gcm@openssh.com"))
    known = set(known_hosts.key_types(*settings.known_as))
    if "ssh-rsa" in known:  # the type of the key; its signatures have names of their own (RFC 8332)
        known |= {"rsa-sha2-512", "rsa-sha2-256"}
    options.key_types = sorted(options.key_types, key=lambda each: each not in known)


def _shake_hands(connection: Connection, target: Target, settings: SshSettings, timeout: float) -> None:
    import paramiko

    connection.banner_timeout = connection.handshake_timeout = timeout
    done = threading.Event()
    try:
        connection.start_client(event=done)
        in_time = done.wait(timeout)
        if not connection.is_active():
            raise connection.get_exception() or paramiko.SSHException("it closed the connection")
    except (paramiko.SSHException, EOFError, OSError) as error:
        what = str(error) or "it closed the connection"
        steps = [f"see what ssh says: ssh -v {target.ssh_words} true"]
        raise _unreachable(target, f"no SSH session with {settings.address}: {what}", steps) from error
    if not in_time:
        found = f"{settings.address} port {settings.port} accepts connections but sshd does not answer within"
        raise _unreachable(target, f"{found} {timeout:g} s", ["is the host overloaded or suspended?"])


def _piped(argv: tuple[str, ...], target: Target) -> socket.socket:
    """A socket whose other end is the standard input and output of a program."""
    ours, theirs = socket.socketpair()
    with theirs:
        try:
            subprocess.Popen(argv, stdin=theirs.fileno(), stdout=theirs.fileno(), start_new_session=True)
        except OSError as error:
            ours.close()
            raise OnecatError(
                f"the ProxyCommand {argv[0]} cannot be started: {error.strerror}",
                where=target.text,
                code=ExitCode.UNREACHABLE,
            ) from error
    return ours


def _notice_when_lost(connected: socket.socket) -> None:
    """Let the kernel give up a connection whose other side is gone without a word."""
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for name, value in (
        ("TCP_KEEPIDLE", KEEPALIVE_SECONDS),
        ("TCP_KEEPINTVL", KEEPALIVE_SECONDS),
        ("TCP_KEEPCNT", SILENT_SECONDS // KEEPALIVE_SECONDS),
        ("TCP_USER_TIMEOUT", SILENT_SECONDS * 1000),
    ):
        if hasattr(socket, name):  # other systems have only some of them
            connected.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def _last_lines(text: bytes) -> list[str]:
    return text.decode(errors="replace").splitlines()[-5:]


def _unreachable(target: Target, found: str, steps: Sequence[str] = (), details: Sequence[str] = ()) -> OnecatError:
    return OnecatError(found, where=target.text, next_steps=steps, details=details, code=ExitCode.UNREACHABLE)
