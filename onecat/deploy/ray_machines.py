"""The head's machine of a cluster, with a way to those of the other nodes.

Releases, locks, nginx and logs of one model across hosts are kept on the head's machine, so whatever works on one host
works on that; only the server itself (`onecat.deploy.ray_server`) asks for the others.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from onecat.errors import ExitCode, OnecatError

if TYPE_CHECKING:
    from onecat.hosts import Machine


class _HeadMachine:
    """The head's machine in all, and `nodes`: the machine of each node by its host's name, its own among them."""

    def __init__(self, head: Machine, nodes: Mapping[str, Machine]) -> None:
        self._head = head
        self.nodes = dict(nodes)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._head, name)

    def root(self) -> Machine | None:
        return self._head.root()

    def close(self) -> None:
        for machine in self.nodes.values():
            machine.close()


def with_nodes(machines: Mapping[str, Machine]) -> Machine:
    """The machine of the first host, which is the head, with those of all hosts behind it."""
    return cast("Machine", _HeadMachine(next(iter(machines.values())), machines))


def node_machines(machine: Machine) -> Mapping[str, Machine]:
    """The machines that `with_nodes` was given; of any other machine, itself alone."""
    return machine.nodes if isinstance(machine, _HeadMachine) else {machine.name: machine}


def node_machine(machine: Machine, host: str) -> Machine:
    """The machine of one node. Raises OnecatError when the command has not opened it."""
    found = node_machines(machine).get(host)
    if found is None:
        raise OnecatError(
            f"the model runs on {host} too, which this command has not been told of",
            expected="the onecat.yaml of the deployment, whose hosts are all asked",
            next_steps=["name it: --config onecat.yaml"],
            code=ExitCode.USAGE,
        )
    return found
