"""Hosts: the machines onecat works on, as things that can run a program.

In: an argument list, standard input, a time limit. Out: a `Completed` record with exit code and output, or an
OnecatError with exit code 3 when the program could not be run or did not end in time.
"""

from onecat.hosts.local import LocalTransport
from onecat.hosts.transport import Completed, Transport

__all__ = ["Completed", "LocalTransport", "Transport"]
