"""What there is on a host, asked through the connection that a command has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from onecat.facts import Facts
    from onecat.hosts import Machine


def facts_of(machine: Machine, paths: Mapping[str, str] | None = None) -> Facts:
    """Facts of a host. paths: directories there whose file systems matter too, by purpose.

    Raises OnecatError when the host cannot be asked.
    """
    from onecat.deploy.ray_machines import itself
    from onecat.hosts import SshMachine
    from onecat.probe import ProbeOptions, collect, collect_local

    own = itself(machine)
    if not isinstance(own, SshMachine):
        return collect_local() if paths is None else collect_local(ProbeOptions(paths=paths))
    return collect(own.transport, ProbeOptions(paths={**(paths or {}), "data": own.data_directory}))
