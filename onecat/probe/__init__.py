"""Probe: observes a host without installing anything there.

In: a transport to a host, or files of saved facts and of programs' output (importers/). Out: a `Facts` record; what a
source could not tell is a note in it. The program that runs on the host is in agent/.
"""

from onecat.probe.collect import collect, collect_local
from onecat.probe.fleet import Observation, Observing
from onecat.probe.options import ProbeOptions
from onecat.probe.saved import read_facts, read_hosts

__all__ = ["Observation", "Observing", "ProbeOptions", "collect", "collect_local", "read_facts", "read_hosts"]
