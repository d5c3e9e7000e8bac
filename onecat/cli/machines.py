"""The machines that commands work on."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from onecat.errors import OnecatError

if TYPE_CHECKING:
    from onecat.facts import Facts
    from onecat.hosts import Desk, LocalMachine, Machine, Target

HostOption = Annotated[
    list[str] | None,
    typer.Option(
        "--host",
        metavar="HOST",
        help="Of this host only (repeat); by default of the hosts of onecat.yaml, else of this machine.",
    ),
]


def local_machine() -> LocalMachine:
    """This machine, with onecat's data where ONECAT_HOME says."""
    from onecat.hosts import LocalMachine
    from onecat.paths import home

    return LocalMachine(home().data)


@dataclass(frozen=True)
class Hosts:
    """The hosts of one command, in the order in which they were named. desk: where a person is asked meanwhile."""

    machines: tuple[Machine, ...]
    desk: Desk

    def of(self, name: str) -> Machine:
        return next(machine for machine in self.machines if machine.name == name)


@contextlib.contextmanager
def open_hosts(names: Sequence[str]) -> Iterator[Hosts]:
    """The hosts (as onecat.hosts.parse_target reads them) while the block runs, each with one connection.

    A connection is made when something is first asked of its host. Raises OnecatError for what names no host.
    """
    from onecat.deploy.ray_machines import with_nodes
    from onecat.hosts import DEFAULT_PARALLEL, Desk, Reach, SshMachine, SudoPasswords, parse_target

    desk = Desk()
    targets = [parse_target(name) for name in dict.fromkeys(names)]
    with contextlib.ExitStack() as opened:
        # Each keeps its connection to the end: none may have to wait for another one's.
        reach = opened.enter_context(contextlib.closing(Reach(desk, parallel=max(DEFAULT_PARALLEL, len(targets)))))
        passwords = SudoPasswords(desk)

        def open_host(target: Target) -> Machine:
            made: Machine
            made = local_machine() if target.is_local else SshMachine(reach.ssh_transport(target), passwords)
            return opened.enter_context(contextlib.closing(made))

        @cache
        def open_node(name: str) -> Machine:
            return open_host(parse_target(name))

        machines = [open_host(target) for target in targets]
        if len(machines) == 1:
            machines = [with_nodes(machines[0], open_node)]
        yield Hosts(tuple(machines), desk)


def chosen_hosts(hosts: Sequence[str] | None, config: Path | None, name: str | None) -> tuple[str, ...]:
    """The hosts a command is about: of --host, else those of --config or ./onecat.yaml, else this machine.

    One model across hosts is a deployment of its first host, which knows the way to the others.
    An onecat.yaml that was not named counts only where NAME is its deployment's.
    """
    from onecat.cli.up import config_file

    if hosts:
        return tuple(part.strip() for word in hosts for part in word.split(","))
    path = config_file(config) if config is not None else Path("onecat.yaml")
    if config is None and not path.exists():
        return ("local",)
    from onecat.config import load_deployment

    deployment = load_deployment(path)
    if config is None and name not in (None, deployment.name):
        return ("local",)
    return deployment.hosts if deployment.ray is None else deployment.hosts[:1]


def only_host(hosts: Hosts) -> Machine:
    """The host of a command that works on one. Raises OnecatError when several are meant."""
    if len(hosts.machines) > 1:
        names = ", ".join(machine.name for machine in hosts.machines)
        raise OnecatError(
            "the deployment has several hosts", expected=f"one of: {names}", next_steps=["name it: --host HOST"]
        )
    return hosts.machines[0]


def facts_of(machine: Machine) -> Facts:
    """What there is on a host, asked through the connection that it has. Raises OnecatError."""
    from onecat.deploy import host_facts

    return host_facts.facts_of(machine)
