"""One model across hosts: a container on each, of which the first holds the head of the Ray cluster and the server."""

from __future__ import annotations

import contextlib
import functools
import heapq
import json
import queue
import secrets
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, TypeVar

from onecat.deploy.claims import NODE_CLAIM_FILE
from onecat.deploy.container import ContainerServer
from onecat.deploy.ray_machines import node_machine
from onecat.deploy.server import Activity, ServerState
from onecat.deploy.store import read_json, write_json
from onecat.errors import ExitCode, OnecatError
from onecat.planner.ray import NODE_PROGRAM

if TYPE_CHECKING:
    from onecat.hosts import Machine

NODES_FILE = "ray.json"
SCHEMA = "onecat.ray/1"
TOKEN_FILE = "ray_token"  # noqa: S105 - a file's name
IDLE_CPU_SHARE = 0.1
"""CPU, in cores and on average over the nodes, that Ray's own processes may use: twice what was measured over 20 s
without a request with Ray 2.60 on two cores, 0.07 for a head (its dashboard, agents and log monitor poll) and 0.025 for
a worker. More than that is the server's work."""

_T = TypeVar("_T")


@dataclass(frozen=True)
class NodePlace:
    """Where a node's container is kept. directory: on its host; address: in the cluster; user: `uid:gid` in it."""

    host: str
    directory: str
    docker_host: str | None
    address: str
    user: str

    @property
    def token_path(self) -> str:
        return f"{self.directory}/secrets/{TOKEN_FILE}"


class RayServer:
    """The server of a release whose nodes are told in its ray.json; implements `onecat.deploy.server.Server`.

    It lives and dies as a whole: a node that has ended counts as the server's end.

    Parameters:
        machine: of the head, with the others behind it (`ray_machines.with_nodes`). directory: of the release.
    """

    def __init__(self, machine: Machine, directory: str) -> None:
        document = read_json(machine, f"{directory}/{NODES_FILE}")
        if document is None:
            raise OnecatError(f"{directory}/{NODES_FILE} is missing on {machine.name}", code=ExitCode.NEEDS_PERSON)
        self._cluster = str(document["address"])
        self._places = [NodePlace(**each) for each in document["nodes"]]
        self._machines = [node_machine(machine, each.host) for each in self._places]
        self._servers = [
            ContainerServer(where, each.directory, each.docker_host)
            for where, each in zip(self._machines, self._places, strict=True)
        ]
        self._idle = _IdleFilter(len(self._servers))

    @classmethod
    def prepare(cls, machine: Machine, directory: str, cluster: str, places: Sequence[NodePlace]) -> RayServer:
        """Write down which nodes there are; their containers have been prepared. cluster: ADDRESS:PORT of the head."""
        document = {"schema": SCHEMA, "address": cluster, "nodes": [asdict(each) for each in places]}
        write_json(machine, f"{directory}/{NODES_FILE}", document)
        return cls(machine, directory)

    def start(self) -> None:
        """Give all nodes a new token and start them; each waits by itself for those that it needs."""
        token = secrets.token_hex(32).encode()
        for machine, place in zip(self._machines, self._places, strict=True):
            uid, _, gid = place.user.partition(":")
            owner = (int(uid), int(gid)) if machine.user_id == 0 else None
            machine.make_directory(f"{place.directory}/secrets")
            machine.remove(place.token_path)
            machine.write(place.token_path, token, 0o400, owner)
        self._each(lambda server: server.start())

    def accept(self) -> None:
        """Raises OnecatError when vLLM does not work on every node: then it did without Ray, or has not enough GPUs."""
        found = self.workers()
        idle = [each for each in self._places if each.address not in {worker["node"] for worker in found}]
        if idle:
            told = [f"{worker['name']} on {worker['node']}" for worker in found] or ["Ray knows no vLLM worker at all"]
            raise OnecatError(
                f"vLLM runs no worker on {', '.join(each.host for each in idle)}",
                expected="a worker on each node; on a CPU, vLLM does not work through Ray",
                details=told,
                next_steps=["read what it chose: onecat logs"],
                code=ExitCode.ROLLED_BACK,
            )
        self._each(lambda server: server.accept())

    def workers(self) -> list[dict[str, str]]:
        """vLLM's living workers as Ray tells them: name, class, node (its address). Raises OnecatError."""
        code, output = self._servers[0].execute(["python3", NODE_PROGRAM, "workers", self._cluster])
        lines = [line for line in output.splitlines() if line.startswith("[")]
        if code != 0 or not lines:
            raise OnecatError(
                "Ray does not tell where vLLM's workers are",
                where=self._cluster,
                details=output.splitlines()[-5:],
                code=ExitCode.ROLLED_BACK,
            )
        found: list[dict[str, str]] = json.loads(lines[-1])
        return found

    def stop(self) -> None:
        """The head first, so that the server ends before what it works with; then all others, whatever fails."""
        failures: list[Exception] = []
        for machine, place, server in zip(self._machines, self._places, self._servers, strict=True):
            try:
                server.stop()
                machine.remove(place.token_path)
                machine.remove(f"{place.directory}/{NODE_CLAIM_FILE}")
            except (OnecatError, OSError) as failure:
                failures.append(failure)
        if failures:
            raise failures[0]

    def state(self) -> ServerState:
        return state_of([each.host for each in self._places], self._each(lambda server: server.state()))

    def activity(self) -> Activity:
        found = self._each(lambda server: server.activity())
        total = Activity(sum(each.cpu_seconds for each in found), sum(each.read_bytes for each in found))
        return self._idle(time.monotonic(), total)

    def last_lines(self, count: int) -> list[str]:
        found = self._each(lambda server: server.last_lines(count))
        lines = [self._told(index, line) for index, each in enumerate(found) for line in each]
        # Each begins with its time, in one notation.
        return sorted(lines, key=lambda line: line.partition(" ")[0])[-count:]

    def lines(self, since: float | None = None) -> Iterator[str]:
        told = [
            map(functools.partial(self._told, index), server.lines(since)) for index, server in enumerate(self._servers)
        ]
        yield from in_order(told)

    def follow(self, count: int | None) -> Iterator[str]:
        lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()

        def read(index: int, server: ContainerServer) -> None:
            try:
                for line in server.follow(count):
                    lines.put(self._told(index, line))
            except (OnecatError, OSError) as failure:
                lines.put(f"[{self._places[index].host}] {failure}")
            finally:
                lines.put(None)

        for index, server in enumerate(self._servers):
            threading.Thread(target=read, args=(index, server), daemon=True).start()
        left = len(self._servers)
        while left:
            line = lines.get()
            if line is None:
                left -= 1
            else:
                yield line

    def _told(self, index: int, line: str) -> str:
        """A line of a node's log with the node's host behind its time; the head's are as they are."""
        if index == 0:
            return line
        moment, _, text = line.partition(" ")
        return f"{moment} [{self._places[index].host}] {text}"

    def _each(self, ask: Callable[[ContainerServer], _T]) -> list[_T]:
        """Do the same with every node at once. Raises the first failure, when all are done."""
        with ThreadPoolExecutor(len(self._servers)) as pool:
            return list(pool.map(ask, self._servers))


def in_order(logs: Iterable[Iterable[str]]) -> Iterator[str]:
    """The lines of several logs by the times that they begin with, which Docker writes in one notation; no more than
    one line of each is kept."""
    return heapq.merge(*logs, key=lambda line: line.partition(" ")[0])


def state_of(hosts: Sequence[str], states: Sequence[ServerState]) -> ServerState:
    """The state of the whole from those of its nodes, the head first: the head's while all others run."""
    head = states[0]
    if head.condition not in ("starting", "running"):
        return head
    for host, state in zip(hosts[1:], states[1:], strict=True):
        if state.condition not in ("starting", "running"):
            last_exit = f"has lost node {host}, which {state.last_exit or 'is not there'}"
            return head._replace(
                condition=state.condition,
                restarts=max(head.restarts, state.restarts),
                crashes_in_a_row=state.crashes_in_a_row,
                last_exit=last_exit,
                next_start_at=state.next_start_at,
            )
    return head


class _IdleFilter:
    """Leaves out of the CPU time what Ray uses while nothing happens, which would hide that the server hangs."""

    def __init__(self, nodes: int) -> None:
        self._share = IDLE_CPU_SHARE * nodes
        self._before: tuple[float, float] | None = None
        self._counted = 0.0

    def __call__(self, now: float, total: Activity) -> Activity:
        if self._before is not None:
            seconds, used = now - self._before[0], total.cpu_seconds - self._before[1]
            self._counted += max(0.0, used - self._share * seconds)
        self._before = (now, total.cpu_seconds)
        return Activity(self._counted, total.read_bytes)


def remove_unused(machine: Machine, folder: str, kept: Sequence[int]) -> None:
    """Remove what nodes of releases that are gone have left in `folder`; entries are named NUMBER-HOST."""
    for name in machine.names(folder):
        number = name.partition("-")[0]
        if number.isdigit() and int(number) not in kept:
            with contextlib.suppress(OSError):  # it harms nothing where it is
                machine.remove(f"{folder}/{name}")
