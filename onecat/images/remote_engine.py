"""The Docker engine of another host, over SSH, as if it were behind a socket of this machine."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from onecat.hosts.docker_dial import ASK_SECONDS, DIAL, PING, check_answer

if TYPE_CHECKING:
    from onecat.hosts import Transport


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
        check_answer(transport.run(DIAL, stdin=PING, timeout=ASK_SECONDS), transport.name)
        with socket_bridge(transport, DIAL) as path:
            yield EngineAccess(f"unix://{path}", lambda place: _free_space(transport, place), f"ssh://{transport.name}")


def _free_space(transport: Transport, path: str) -> int | None:
    return parse_df(transport.run(["df", "-P", "-k", "--", path], timeout=ASK_SECONDS).stdout)


def parse_df(output: bytes) -> int | None:
    """Bytes that are free, from the output of `df -P -k` for one path; None when it is none."""
    lines = output.decode(errors="replace").splitlines()
    words = lines[-1].split() if len(lines) == 2 else []
    return int(words[3]) * 1024 if len(words) >= 6 and words[3].isdigit() else None
