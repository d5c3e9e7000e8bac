"""The Docker engine of another host, over SSH, as if it were behind a socket of this machine."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from onecat.errors import ExitCode, OnecatError

if TYPE_CHECKING:
    from onecat.hosts import Completed, Transport

DIAL = ("docker", "system", "dial-stdio")
"""The docker command's own way to its engine: https://docs.docker.com/engine/security/protect-access/ (SSH)"""
_PING = b"GET /_ping HTTP/1.1\r\nHost: docker\r\nConnection: close\r\n\r\n"
ASK_SECONDS = 30.0


@dataclass(frozen=True)
class EngineAccess:
    """A Docker engine to work with.

    docker_host: its address; None for this machine's choice. free_space: asks for the bytes that are free at a path
    there; None: the engine is this machine's. name: what people call it; None: its address.
    """

    docker_host: str | None
    free_space: Callable[[str], int | None] | None = None
    name: str | None = None


@contextlib.contextmanager
def engine_on(host: str) -> Iterator[EngineAccess]:
    """The engine of a host (as onecat.hosts.parse_target reads its name) while the block runs.

    Raises OnecatError (exit code 3) when the host, its docker command or its engine cannot be reached.
    """
    from onecat.hosts import Desk, Reach, parse_target, socket_bridge
    from onecat.hosts.ssh import SshTransport

    target = parse_target(host)
    with contextlib.closing(Reach(Desk())) as reach, contextlib.closing(reach.transport(target)) as transport:
        if not isinstance(transport, SshTransport):
            yield EngineAccess(None)
            return
        check_answer(transport.run(DIAL, stdin=_PING, timeout=ASK_SECONDS), transport.name)
        with socket_bridge(transport, DIAL) as path:
            yield EngineAccess(f"unix://{path}", lambda place: _free_space(transport, place), f"ssh://{transport.name}")


def check_answer(done: Completed, host: str) -> None:
    """Raises OnecatError (exit code 3) unless the engine has answered the ping."""
    if done.stdout.startswith(b"HTTP/1.1 200"):
        return
    said = done.stderr.decode(errors="replace").strip()
    if done.exit_code in (126, 127) or "not found" in said:
        found, steps = "there is no docker command on the host", ["install Docker there: apt-get install docker.io"]
    elif "permission denied" in said.lower():
        found = "this user may not talk to the Docker engine on the host"
        steps = ["there: sudo usermod -aG docker $USER, then log in again", "or log in as another user: --on USER@HOST"]
    else:
        found, steps = "the Docker engine on the host does not answer", ["there: systemctl status docker"]
    raise OnecatError(found, where=host, details=said.splitlines()[-3:], next_steps=steps, code=ExitCode.UNREACHABLE)


def _free_space(transport: Transport, path: str) -> int | None:
    return parse_df(transport.run(["df", "-P", "-k", "--", path], timeout=ASK_SECONDS).stdout)


def parse_df(output: bytes) -> int | None:
    """Bytes that are free, from the output of `df -P -k` for one path; None when it is none."""
    lines = output.decode(errors="replace").splitlines()
    words = lines[-1].split() if len(lines) == 2 else []
    return int(words[3]) * 1024 if len(words) >= 6 and words[3].isdigit() else None
