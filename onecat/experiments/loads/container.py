"""The program that sends load in a container of an engine's image: for engines that this machine does not have itself.

The container has the host's network, so that it reaches the server as clients on the host do; it gets no GPU, no root,
no files but the tokenizer's, read-only, and is gone when its standard input ends.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import time
from collections.abc import Sequence
from typing import Any

from onecat.deploy.container import connect, translated
from onecat.errors import ExitCode, OnecatError
from onecat.hosts import Conversation

LABEL = "io.onecat.load"
KEPT_ERRORS = 1 << 16
_END_SECONDS = 5.0
_LOOK_SECONDS = 0.1
_HEADER = struct.Struct(">BxxxI")
"""What stands before each piece of output: which stream, how many bytes (Docker Engine API, ContainerAttach)."""
_STDERR = 2


def container_body(
    image: str, argv: Sequence[str], *, user: str, tokenizers: Sequence[str], label: str, selinux: bool
) -> dict[str, Any]:
    """The body of POST /containers/create.

    Parameters:
        argv: program and arguments. user: uid:gid. tokenizers: directories of the host, seen at the same
        place. label: whose load it is. selinux: see onecat.deploy.container_spec.security_options.
    """
    mounts = [{"Type": "bind", "Source": each, "Target": each, "ReadOnly": True} for each in tokenizers]
    temporary = {"/tmp": "rw,exec,nosuid,nodev,mode=1777"}  # noqa: S108 - a tmpfs of the container's own
    environment = {"HOME": "/tmp", "USER": "onecat", "XDG_CACHE_HOME": "/tmp/cache", "HF_HUB_OFFLINE": "1"}  # noqa: S108
    return {
        "Image": image,
        "Entrypoint": [argv[0]],
        "Cmd": list(argv[1:]),
        "User": user,
        "Env": [f"{name}={value}" for name, value in environment.items()],
        "Labels": {LABEL: label},
        "OpenStdin": True,
        "StdinOnce": True,
        "AttachStdin": True,
        "AttachStdout": True,
        "AttachStderr": True,
        "Tty": False,
        "Healthcheck": {"Test": ["NONE"]},
        "HostConfig": {
            "AutoRemove": True,
            "Init": True,
            "NetworkMode": "host",
            "ReadonlyRootfs": True,
            "CapDrop": ["ALL"],
            "SecurityOpt": ["no-new-privileges", *(["label=disable"] if selinux else [])],
            "Tmpfs": temporary,
            "Mounts": mounts,
            "LogConfig": {"Type": "none", "Config": {}},
        },
    }


class ContainerConversation(Conversation):
    """A program in a container, talked with through the daemon.

    Parameters:
        docker_host: the daemon's address for this machine; body: what the container is (`container_body`).
        where: the host, for errors.

    Raises OnecatError when it cannot be started.
    """

    def __init__(self, docker_host: str | None, body: dict[str, Any], where: str) -> None:
        super().__init__()
        self._docker_host = docker_host
        self._where = where
        self._errors = b""
        self._raw = b""
        self._output = b""
        self._exit_code: int | None = None
        self._is_closed = False
        self._client = connect(docker_host)
        with translated(docker_host, None):
            self._id = str(self._client.api.create_container_from_config(body)["Id"])
            try:
                parameters = {"stdin": 1, "stdout": 1, "stderr": 1, "stream": 1}
                self._stream = self._client.api.attach_socket(self._id, params=parameters)
                self._socket: socket.socket = getattr(self._stream, "_sock", self._stream)
                self._client.api.start(self._id)
            except BaseException:
                self._client.api.remove_container(self._id, force=True)
                raise

    @property
    def container(self) -> str:
        """The container's id."""
        return self._id

    def receive(self, timeout: float | None = None) -> bytes:
        deadline = None if timeout is None else time.monotonic() + timeout
        while not self._output:
            self._socket.settimeout(None if deadline is None else max(0.001, deadline - time.monotonic()))
            try:
                data = self._socket.recv(1 << 20)
            except TimeoutError as error:
                raise TimeoutError(f"nothing came within {timeout:g} s") from error
            except OSError as error:
                raise OnecatError(
                    f"the connection to the container was lost: {error}", where=self._where, code=ExitCode.UNREACHABLE
                ) from error
            if not data:
                return b""
            self._raw += data
            self._take()
        found, self._output = self._output, b""
        return found

    def send(self, data: bytes) -> None:
        self._socket.settimeout(None)
        try:
            self._socket.sendall(data)
        except OSError as error:
            raise OnecatError(
                "the container has ended",
                where=self._where,
                details=self.errors.decode(errors="replace").splitlines()[-5:],
                code=ExitCode.UNREACHABLE,
            ) from error

    def close_input(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)

    @property
    def errors(self) -> bytes:
        return self._errors

    @property
    def exit_code(self) -> int | None:
        """None while it runs, and where the daemon has removed it before anybody asked."""
        from docker.errors import NotFound

        if self._exit_code is None:
            with contextlib.suppress(NotFound), translated(self._docker_host, None):
                state = self._client.api.inspect_container(self._id)["State"]
                if state["Status"] == "exited":
                    self._exit_code = int(state["ExitCode"])
        return self._exit_code

    def close(self) -> None:
        if self._is_closed:
            return
        self.close_input()
        deadline = time.monotonic() + _END_SECONDS
        # Where the daemon cannot be reached any more, the program has lost its standard input too, and ends by itself.
        with contextlib.suppress(TimeoutError, OnecatError):
            while self.receive(max(0.001, deadline - time.monotonic())):
                pass
        with contextlib.suppress(OnecatError), translated(self._docker_host, None):
            self._remove()
        self._stream.close()
        self._client.close()
        self._is_closed = True

    def _remove(self) -> None:
        """Remove the container, unless the daemon does it just now; returns when it is gone."""
        from docker.errors import APIError, NotFound

        deadline = time.monotonic() + _END_SECONDS
        with contextlib.suppress(NotFound):
            try:
                self._client.api.remove_container(self._id, force=True)
            except APIError as error:
                if "already in progress" not in str(error):
                    raise
            while time.monotonic() < deadline:
                self._client.api.inspect_container(self._id)
                time.sleep(_LOOK_SECONDS)

    def _take(self) -> None:
        """Sort whole pieces into output and errors."""
        while len(self._raw) >= _HEADER.size:
            stream, size = _HEADER.unpack_from(self._raw)
            if len(self._raw) < _HEADER.size + size:
                return
            piece, self._raw = self._raw[_HEADER.size : _HEADER.size + size], self._raw[_HEADER.size + size :]
            if stream == _STDERR:
                self._errors = (self._errors + piece)[-KEPT_ERRORS:]
            else:
                self._output += piece
