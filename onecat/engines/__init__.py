"""Engines: what each version of each server accepts, where it answers, and what its log tells while it starts.

In: an engine's name and version, flag values, log lines. Out: its `FlagSchema`, command line words, `Phase`s.
A new engine version is a file in schemas/ (tools/flag_schema.py writes it), a new phase a row in log_phases.yaml.
"""

from onecat.engines.capabilities import BFLOAT16_CAPABILITY, has_kernel, least_capability
from onecat.engines.dtypes import served_dtype
from onecat.engines.flags import parse_size, typed, words, wrong_value
from onecat.engines.phases import phase_of
from onecat.engines.records import Engine, Flag, FlagSchema, Phase, RemovedFlag
from onecat.engines.served import added_after, removed_after
from onecat.engines.tables import engine, flag_schema, flag_schema_digest, removed_flags

__all__ = [
    "BFLOAT16_CAPABILITY",
    "Engine",
    "Flag",
    "FlagSchema",
    "Phase",
    "RemovedFlag",
    "added_after",
    "engine",
    "flag_schema",
    "flag_schema_digest",
    "has_kernel",
    "least_capability",
    "parse_size",
    "phase_of",
    "removed_after",
    "removed_flags",
    "served_dtype",
    "typed",
    "words",
    "wrong_value",
]
