"""Observe: what a server's log says about its state.

In: log lines. Out: `Diagnosis` records, each a cause with its evidence, what to do about it, and the source of the
rule. The rules are rows of knowledge/signatures/*.yaml.
"""

from onecat.observe.diagnosis import Diagnoser, diagnose
from onecat.observe.records import Diagnosis, Evidence, Signature, SignatureTable, to_json
from onecat.observe.signatures import load_signatures

__all__ = [
    "Diagnoser",
    "Diagnosis",
    "Evidence",
    "Signature",
    "SignatureTable",
    "diagnose",
    "load_signatures",
    "to_json",
]
