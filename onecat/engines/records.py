"""What is known of an engine, of its flags, and of the phases of its start."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

FlagKind = Literal[
    "boolean", "switch", "text", "integer", "number", "size", "size-or-auto", "json", "json-or-text", "unchecked"
]


@dataclass(frozen=True)
class Reach:
    """Where an engine runs other quantization methods, and formats as METHOD/FORMAT, than its family.

    opened: those that it runs on cards where its family cannot, with the least compute capability, ten times; None for
    any. lacks: those that it has no kernel for.
    """

    opened: Mapping[str, int | None] = field(default_factory=dict)
    lacks: tuple[str, ...] = ()


@dataclass(frozen=True)
class Engine:
    """A server program. `serve`: words before the server's arguments; paths: its HTTP endpoints.

    flags_unknown: why onecat knows the flags of none of its versions, None for an engine whose flags are checked.
    reach: of the engine as it is released, or as its name says; patched: with the series of patches of a profile, None
    where such a series changes nothing about it.
    """

    name: str
    family: str
    serve: tuple[str, ...]
    health_path: str
    models_path: str
    metrics_path: str
    source: str
    flags_unknown: str | None = None
    reach: Reach = field(default_factory=Reach)
    patched: Reach | None = None


@dataclass(frozen=True)
class Flag:
    """One flag of one engine version.

    kind: `boolean` has a negation, `switch` can only be given; `size` may be written as 1k (1000) or 1K (1024);
    `unchecked` is any value of a flag that onecat does not know.
    many: takes several words; repeated: is given once per value.
    """

    name: str
    kind: FlagKind
    negation: str | None = None
    aliases: tuple[str, ...] = ()
    choices: tuple[str, ...] = ()
    default: bool | int | float | str | None = None
    positional: bool = False
    many: bool = False
    repeated: bool = False


@dataclass(frozen=True)
class FlagSchema:
    """What one version of an engine family accepts.

    quantization: methods, and formats as METHOD/FORMAT, with the least compute capability, ten times (75 for 7.5), or
    None when it is not known.
    float16_refused: model types for which the engine refuses float16.
    unknown: why nothing of this is known, so that flags pass unchecked; None for a version that was looked at.
    lacks: methods, and formats as METHOD/FORMAT, that are known by name and have no kernel on the engine's hardware.
    """

    family: str
    version: str
    flags: Mapping[str, Flag]
    quantization: Mapping[str, int | None]
    float16_refused: tuple[str, ...]
    unknown: str | None = None
    lacks: tuple[str, ...] = ()

    def flag(self, name: str, value: bool | int | float | str) -> Flag | None:
        """The flag of that name; of an unknown version one that takes values like this one."""
        if self.unknown is None:
            return self.flags.get(name)
        return Flag(name, "boolean", negation=f"no-{name}") if isinstance(value, bool) else Flag(name, "unchecked")

    def default(self, name: str) -> bool | int | float | str | None:
        """The engine's own value of a flag; None where there is none or it is not known."""
        flag = self.flags.get(name)
        return flag.default if flag is not None else None


@dataclass(frozen=True)
class RemovedFlag:
    """A flag that the engine had once or never, and what to do in its place."""

    flag: str
    instead: str
    source: str


@dataclass(frozen=True)
class Phase:
    """A step of a server's start. `name` is stable; `percent` is how far the step has come, when the log tells it."""

    name: str
    text: str
    percent: int | None = None

    @property
    def title(self) -> str:
        """The phase in words, as `loading weights 40 %`."""
        return self.text if self.percent is None else f"{self.text} {self.percent} %"
