"""Files of a host by SFTP, version 3, with few questions: each costs the time that a packet takes there and back.

https://datatracker.ietf.org/doc/html/draft-ietf-secsh-filexfer-02, and OpenSSH's extensions (posix-rename, fsync,
statvfs): https://github.com/openssh/openssh-portable/blob/master/PROTOCOL (section 4)
"""

from __future__ import annotations

import errno
import os
import stat
import struct
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn

from onecat.errors import OnecatError
from onecat.hosts.machine import FileStatus, file_kind

if TYPE_CHECKING:
    from paramiko import Channel

PIECE_BYTES = 32768
"""What every SFTP server takes and gives in one packet."""
SILENT_SECONDS = 60.0
_OPEN, _CLOSE, _READ, _WRITE, _FSTAT, _FSETSTAT, _EXTENDED = 3, 4, 5, 6, 8, 10, 200
_FOR_READING, _FOR_WRITING, _APPEND, _CREATE, _TRUNCATE = 1, 2, 4, 8, 16
_POSIX_RENAME, _FSYNC, _STATVFS = "posix-rename@openssh.com", "fsync@openssh.com", "statvfs@openssh.com"


def extensions_of(data: bytes) -> frozenset[str]:
    """The names of the extensions in a server's VERSION packet: after 4 bytes of version, pairs of name and data."""
    words, rest = [], data[4:]
    while len(rest) >= 4:
        (size,) = struct.unpack(">I", rest[:4])
        words.append(rest[4 : 4 + size].decode("utf-8", "replace"))
        rest = rest[4 + size :]
    return frozenset(words[::2])


class SftpFiles:
    """The files of one host as the user who runs the SFTP server at the other end of a channel.

    Parameters:
        channel: to that server, which has said nothing yet.
        lost: makes the error of a lost connection from its cause.

    Methods are those of Machine; they may be called from several threads.
    """

    def __init__(self, channel: Channel, lost: Callable[[BaseException], OnecatError]) -> None:
        import paramiko

        self._lost = lost
        self._lock = threading.Lock()
        channel.settimeout(SILENT_SECONDS)
        try:
            self._client = _client_class()(channel)
        except (paramiko.SSHException, EOFError, OSError) as error:
            raise lost(error) from error

    def read(self, path: str) -> bytes | None:
        try:
            handle = self._handle(path, _FOR_READING)
        except FileNotFoundError:
            return None
        content = bytearray()
        # Files that the kernel makes up, as those of /proc, may come in any pieces, so only their end ends them.
        made_up = _is_made_up(path)
        while True:
            try:
                piece = self._piece(path, handle, len(content), PIECE_BYTES)
            except OSError:
                if made_up:
                    return None  # the process that it is about has ended meanwhile
                raise
            content += piece
            if not piece or (len(piece) < PIECE_BYTES and not made_up):
                break
        self._close(handle)
        return bytes(content)

    def read_part(self, path: str, offset: int, size: int) -> bytes:
        handle = self._handle(path, _FOR_READING)
        content = bytearray()
        while len(content) < size:
            piece = self._piece(path, handle, offset + len(content), min(PIECE_BYTES, size - len(content)))
            if not piece:
                break
            content += piece
        self._close(handle)
        return bytes(content)

    def write(self, path: str, content: bytes, mode: int, owner: tuple[int, int] | None) -> None:
        from paramiko.sftp_attr import SFTPAttributes

        folder, _, name = path.rpartition("/")
        temporary = f"{folder}/.{name}.{os.urandom(4).hex()}"
        handle = self._handle(temporary, _FOR_WRITING | _CREATE | _TRUNCATE, mode, path)
        attributes = SFTPAttributes()
        attributes.st_mode = mode  # the umask has taken from what `open` was given
        if owner is not None:
            attributes.st_uid, attributes.st_gid = owner
        requests: list[tuple[Any, ...]] = [(_WRITE, handle, *at) for at in _pieces(content)]
        requests.append((_FSETSTAT, handle, attributes))
        if _FSYNC in self._client.extensions:
            requests.append((_EXTENDED, _FSYNC, handle))
        requests.append((_CLOSE, handle))
        try:
            self._ask_all(path, requests)
            self.rename(temporary, path)
        except OSError:
            self.remove_file(temporary)
            raise

    def append(self, path: str, content: bytes) -> None:
        handle = self._handle(path, _FOR_WRITING | _CREATE | _APPEND, 0o600)
        requests = [(_WRITE, handle, *at) for at in _pieces(content)]
        self._ask_all(path, [*requests, (_CLOSE, handle)])

    def link_target(self, path: str) -> str:
        return str(self._ask(path, lambda: self._client.readlink(path)))

    def names(self, path: str) -> tuple[str, ...]:
        return tuple(sorted(each.filename for each in self._list(path)))

    def entries(self, path: str) -> dict[str, FileStatus]:
        found = {each.filename: _status(each) for each in self._list(path)}
        for name, status in found.items():
            if status.kind == "link":
                found[name] = self._followed(f"{path}/{name}") or status
        return dict(sorted(found.items()))

    def status(self, path: str) -> FileStatus | None:
        try:
            return _status(self._ask(path, lambda: self._client.lstat(path)))
        except FileNotFoundError:
            return None

    def make_directory(self, path: str, mode: int) -> None:
        try:
            self._ask(path, lambda: self._client.mkdir(path, mode))
        except FileNotFoundError:
            parent = path.rpartition("/")[0]
            if not parent:
                raise
            self.make_directory(parent, mode)
            self._ask(path, lambda: self._client.mkdir(path, mode))
        except OSError:
            existing = self._followed(path)
            if existing is None:
                raise
            if existing.kind != "directory":
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path) from None

    def rename(self, old: str, new: str) -> None:
        self._ask(new, lambda: self._client.posix_rename(old, new))

    def remove_file(self, path: str) -> None:
        """Remove what is no directory; nothing happens where there is nothing."""
        try:
            self._ask(path, lambda: self._client.remove(path))
        except FileNotFoundError:
            return

    def free_bytes(self, path: str) -> int:
        place = path
        while True:
            try:
                return self._free_bytes(place)
            except FileNotFoundError:
                if place == "/":
                    raise
                place = place.rpartition("/")[0] or "/"

    def _free_bytes(self, path: str) -> int:
        _, answer = self._ask(path, lambda: self._client._request(_EXTENDED, _STATVFS, path))
        _, fragment_size, _, _, available = (answer.get_int64() for _ in range(5))
        return int(fragment_size * available)

    def _followed(self, path: str) -> FileStatus | None:
        try:
            return _status(self._ask(path, lambda: self._client.stat(path)))
        except FileNotFoundError:
            return None

    def _list(self, path: str) -> list[Any]:
        try:
            found: list[Any] = self._ask(path, lambda: self._client.listdir_attr(path))
        except FileNotFoundError:
            return []
        return found

    def _handle(self, path: str, flags: int, mode: int | None = None, told: str | None = None) -> bytes:
        from paramiko.sftp_attr import SFTPAttributes

        attributes = SFTPAttributes()
        attributes.st_mode = mode
        _, answer = self._ask(told or path, lambda: self._client._request(_OPEN, path, flags, attributes))
        return bytes(answer.get_binary())

    def _piece(self, path: str, handle: bytes, offset: int, size: int) -> bytes:
        from paramiko.sftp import int64

        def ask() -> bytes:
            try:
                _, answer = self._client._request(_READ, handle, int64(offset), size)
            except EOFError:
                return b""
            return bytes(answer.get_string())

        piece: bytes = self._ask(path, ask)
        return piece

    def _close(self, handle: bytes) -> None:
        """Close a file that was only read, whose answer nobody need wait for."""
        self._ask("", lambda: self._client._async_request(type(None), _CLOSE, handle))

    def _ask_all(self, path: str, requests: list[tuple[Any, ...]]) -> None:
        """Send requests without waiting between them; raises what the first one that failed was told."""

        def ask() -> None:
            replies = _Replies(self._client)
            for request in requests:
                replies.number = self._client._async_request(replies, *request)
            last = replies.number
            while last in self._client._expecting:
                self._client._read_response()
            if replies.failure is not None:
                raise replies.failure

        self._ask(path, ask)

    def _ask(self, path: str, ask: Callable[[], Any]) -> Any:
        import paramiko

        try:
            with self._lock:
                return ask()
        except (paramiko.SSHException, EOFError, TimeoutError) as error:
            raise self._lost(error) from error
        except OSError as error:
            if self._client.sock.closed or not self._client.sock.get_transport().is_active():
                raise self._lost(error) from error
            self._refused(error, path)

    def _refused(self, error: OSError, path: str) -> NoReturn:
        """Raises what the host's kernel has said, as far as SFTP tells: it has a number for few errors only."""
        if error.errno is None and path and not _is_made_up(path) and _STATVFS in self._client.extensions:
            try:
                full = self.free_bytes(path) < 2 * PIECE_BYTES
            except OSError:
                full = False
            if full:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path) from error
        text = str(error) if error.errno is None else os.strerror(error.errno)
        raise OSError(error.errno or errno.EIO, text, path) from error


class _Replies:
    """Answers to requests that were sent one after another."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self.number = 0
        self.failure: OSError | None = None

    def _async_response(self, kind: int, message: Any, number: int) -> None:
        try:
            self._client._convert_status(message)
        except OSError as error:
            self.failure = self.failure or error


def _client_class() -> Any:
    from paramiko import SFTPClient

    class Client(SFTPClient):
        """Knows which extensions the server has told."""

        extensions: frozenset[str] = frozenset()

        def _read_packet(self) -> tuple[int, bytes]:
            kind, data = super()._read_packet()  # type: ignore[misc]
            if kind == 2:  # VERSION, the first packet of all
                self.extensions = extensions_of(data)
            return kind, data

    return Client


def _is_made_up(path: str) -> bool:
    """Whether the kernel makes a file up when it is read."""
    return path.startswith(("/proc/", "/sys/"))


def _pieces(content: bytes) -> list[tuple[Any, bytes]]:
    from paramiko.sftp import int64

    return [(int64(at), content[at : at + PIECE_BYTES]) for at in range(0, len(content), PIECE_BYTES)]


def _status(found: Any) -> FileStatus:
    mode = found.st_mode or 0
    owner = (found.st_uid or 0, found.st_gid or 0)
    return FileStatus(file_kind(mode), stat.S_IMODE(mode), *owner, found.st_size or 0, found.st_mtime or 0)
