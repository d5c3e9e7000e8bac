"""Observe: what a server's log says about its state.

In: log lines, or the bytes of a log. Out: `Diagnosis` records, each a cause with its evidence, what to do about it, and
the source of the rule. `diagnose` reads a whole log, a `Diagnoser` one as it is written. The rules are rows of
knowledge/signatures/*.yaml.
"""

from onecat.observe.diagnosis import Diagnoser, diagnose
from onecat.observe.records import Diagnosis, Evidence, Signature, SignatureTable, Standing, to_json
from onecat.observe.signatures import load_signatures

__all__ = [
    "Diagnoser",
    "Diagnosis",
    "Evidence",
    "Signature",
    "SignatureTable",
    "Standing",
    "diagnose",
    "load_signatures",
    "to_json",
]
