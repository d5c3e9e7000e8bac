"""Probe: observes a host without installing anything there.

In: a transport to a host, or a file of saved facts. Out: a `Facts` record; what a source could not tell is a note in
it. The program that runs on the host is in agent/.
"""

from onecat.probe.collect import collect, collect_local
from onecat.probe.fleet import Observation, Observing
from onecat.probe.options import ProbeOptions
from onecat.probe.saved import read_facts

__all__ = ["Observation", "Observing", "ProbeOptions", "collect", "collect_local", "read_facts"]
