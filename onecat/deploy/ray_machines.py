"""The head's machine of a cluster, with a way to those of the other nodes.

Releases, locks, nginx and logs of one model across hosts are kept on the head's machine, so whatever works on one host
works on that; only the server itself (`onecat.deploy.ray_server`) asks for the others.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from onecat.errors import ExitCode, OnecatError

if TYPE_CHECKING:
    from onecat.hosts import Machine


class _HeadMachine:
    """One machine in all, and a way to others by their names."""

    def __init__(self, head: Machine, reach_node: Callable[[str], Machine]) -> None:
        self.head = head
        self.reach_node = reach_node

    def __getattr__(self, name: str) -> Any:
        return getattr(self.head, name)


def with_nodes(head: Machine, reach_node: Callable[[str], Machine]) -> Machine:
    """The machine `head` with a way to those of other nodes.

    Parameters:
        reach_node: gives the machine of a host; whoever gives it closes it.
    """
    return cast("Machine", _HeadMachine(head, reach_node))


def itself(machine: Machine) -> Machine:
    """The machine that `with_nodes` was given as the head; any other as it is."""
    return machine.head if isinstance(machine, _HeadMachine) else machine


def node_machine(machine: Machine, host: str) -> Machine:
    """The machine of one node. Raises OnecatError when there is no way to it."""
    if host == machine.name:
        return itself(machine)
    if isinstance(machine, _HeadMachine):
        return machine.reach_node(host)
    raise OnecatError(
        f"the model runs on {host} too, and there is no way from {machine.name} to it here",
        expected="a command that is told the deployment's onecat.yaml",
        next_steps=["name it: --config onecat.yaml"],
        code=ExitCode.USAGE,
    )
