"""The machines that commands work on."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from onecat.hosts import LocalMachine


def local_machine() -> LocalMachine:
    """This machine, with onecat's data where ONECAT_HOME says."""
    from onecat.hosts import LocalMachine
    from onecat.paths import home

    return LocalMachine(home().data)
