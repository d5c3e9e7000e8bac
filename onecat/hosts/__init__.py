"""Hosts: the machines onecat works on, as things that can run a program.

In: what a person writes to name a host, an argument list, standard input, time limits. Out: a `Completed` record with
exit code and output, or an OnecatError with exit code 3 when the host could not be reached or the program not be run.
Standard library only: SSH is loaded when the first host needs it.
"""

from onecat.hosts.asking import Desk
from onecat.hosts.bridge import socket_bridge
from onecat.hosts.conversation import Conversation
from onecat.hosts.fan_out import FanOut, Outcome, Task
from onecat.hosts.local import LocalTransport
from onecat.hosts.machine import FileStatus, LocalMachine, LockHeldError, Machine
from onecat.hosts.reach import CONNECT_SECONDS, DEFAULT_PARALLEL, Reach
from onecat.hosts.ssh_machine import SshMachine
from onecat.hosts.sudo import SudoPasswords, SudoRefusedError, SudoTransport
from onecat.hosts.target import LOCAL, Target, parse_target
from onecat.hosts.transport import Completed, ConnectionLostError, Transport

__all__ = [
    "CONNECT_SECONDS",
    "DEFAULT_PARALLEL",
    "LOCAL",
    "Completed",
    "ConnectionLostError",
    "Conversation",
    "Desk",
    "FanOut",
    "FileStatus",
    "LocalMachine",
    "LocalTransport",
    "LockHeldError",
    "Machine",
    "Outcome",
    "Reach",
    "SshMachine",
    "SudoPasswords",
    "SudoRefusedError",
    "SudoTransport",
    "Target",
    "Task",
    "Transport",
    "parse_target",
    "socket_bridge",
]
