"""The way to each host that a person may name."""

from __future__ import annotations

import importlib
import sys
import threading
from typing import TYPE_CHECKING

from onecat.hosts.asking import Desk
from onecat.hosts.local import LocalTransport
from onecat.hosts.target import Target
from onecat.hosts.transport import Transport

if TYPE_CHECKING:
    from onecat.hosts.ssh import SshAccess, SshTransport

CONNECT_SECONDS = 10.0
DEFAULT_PARALLEL = 16


class Reach:
    """Makes transports. SSH is loaded, and its configuration read, when the first host needs it.

    Parameters:
        desk: where to ask for passwords and passphrases.
        connect_timeout: seconds for reaching a host and for logging in, each; ConnectTimeout of the configuration of
            ssh stands before it.
        parallel: on how many hosts over SSH programs run, or logins are made, at the same time. Hosts that do not
            answer do not count: they delay no other one.
    """

    def __init__(self, desk: Desk, connect_timeout: float = CONNECT_SECONDS, parallel: int = DEFAULT_PARALLEL) -> None:
        self._desk = desk
        self._connect_timeout = connect_timeout
        self._parallel = parallel
        self._lock = threading.Lock()
        self._ssh: SshAccess | None = None

    def load(self) -> None:
        """Load SSH now: before other work of the caller that would compete with it, and keep all hosts waiting."""
        _import_paramiko()
        importlib.import_module("onecat.hosts.ssh")

    def transport(self, target: Target) -> Transport:
        """The way to a host. Raises OnecatError (exit code 2) when the configuration of ssh cannot be used."""
        return LocalTransport() if target.is_local else self.ssh_transport(target)

    def ssh_transport(self, target: Target) -> SshTransport:
        """The way to a host over SSH. Raises OnecatError (exit code 2); see transport."""
        with self._lock:
            if self._ssh is None:
                _import_paramiko()
                from onecat.hosts.ssh import SshAccess

                self._ssh = SshAccess(self._desk, self._connect_timeout, self._parallel)
        return self._ssh.transport(target)

    def close(self) -> None:
        """Close what the transports share."""
        if self._ssh is not None:
            self._ssh.close()


def _import_paramiko() -> None:
    """Load paramiko without the package invoke, which it would use only to run the commands of `Match exec`.

    onecat does not run those, and invoke makes up nearly half of the time that paramiko takes to load.
    """
    missing = "invoke" not in sys.modules
    if missing:
        sys.modules["invoke"] = None  # type: ignore[assignment] # as the import system spells "is not there"
    try:
        importlib.import_module("paramiko")
    finally:
        if missing:
            del sys.modules["invoke"]
