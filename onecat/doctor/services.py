"""How services are started on the host that is looked at: not every machine runs systemd."""

from __future__ import annotations

from onecat.facts import OperatingSystem


def runs_systemd(system: OperatingSystem | None) -> bool:
    """Whether systemd is the first process there, or nothing tells that another program is."""
    return system is None or system.init in (None, "systemd")


def start(system: OperatingSystem | None, service: str) -> str:
    """The command that starts a service: with systemd also after each boot."""
    return f"sudo systemctl enable --now {service}" if runs_systemd(system) else f"sudo service {service} start"
