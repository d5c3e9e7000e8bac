"""What is asked about a server: its flags of all layers, its variables, its checkpoint and the cards. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from onecat.checkpoints import Checkpoint
from onecat.engines import FlagSchema, parse_size
from onecat.planner.flags import FlagValue, Setting
from onecat.planner.hardware import GIB, Hardware
from onecat.planner.records import Reason

MODELLED_FAMILY = "vllm"
"""Whose defaults the memory model knows, version by version."""


@dataclass(frozen=True)
class Question:
    """What a plan, its memory and its layouts are about.

    environment: variables of the server. capability: compute capability, ten times, of the weakest card. derived: why
    there are variables that neither profile nor onecat.yaml has.
    """

    schema: FlagSchema
    engine_version: str
    settings: Mapping[str, Setting]
    environment: Mapping[str, str]
    checkpoint: Checkpoint
    hardware: Hardware
    capability: int | None
    engine: str = "vllm"
    derived: tuple[Reason, ...] = ()

    def value(self, name: str) -> object:
        """The value of a flag: as set, or else the engine's default."""
        setting = self.settings.get(name)
        return setting.value if setting is not None else self.schema.default(name)

    def count(self, name: str) -> int | None:
        """The value of a flag that is a count; None where the engine chooses."""
        value = self.value(name)
        if isinstance(value, bool) or not isinstance(value, (int, str)):
            return None
        found = parse_size(value)
        return found if found is not None and found > 0 else None


def with_flags(question: Question, **flags: FlagValue) -> Question:
    """The same question with other flags; names with `_` for `-`."""
    settings = dict(question.settings)
    for name, value in flags.items():
        flag = question.schema.flag(name.replace("_", "-"), value)
        if flag is not None:
            settings[flag.name] = Setting(flag, value, "planner", "")
    return replace(question, settings=settings)


def offloaded_bytes(question: Question) -> int:
    """Bytes of weights per GPU that `cpu-offload-gb` keeps in the host's memory (the flag counts GiB)."""
    stated = question.value("cpu-offload-gb")
    return int(stated * GIB) if isinstance(stated, (int, float)) and stated > 0 else 0


def doubts(question: Question) -> tuple[str, ...]:
    """Why sizes are no more than an estimate, beyond what the memory model itself says."""
    found = []
    if question.hardware.platform == "ascend":
        found.append("the memory that vllm-ascend takes beside weights and KV cache was not modelled")
    elif question.schema.unknown is not None and question.schema.family != MODELLED_FAMILY:
        found.append(f"the defaults of {question.engine} {question.engine_version} are not known to this onecat")
    return tuple(found)
