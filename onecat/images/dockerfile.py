"""A Dockerfile as its stages and instructions: enough of it to say what a build will do. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

_FROM = re.compile(r"^FROM\s+(?:--\S+\s+)*(\S+)(?:\s+AS\s+(\S+))?\s*$", re.IGNORECASE)
_LAYERS = ("RUN", "COPY", "ADD", "WORKDIR")


@dataclass(frozen=True)
class Instruction:
    """One instruction. stage: name of its stage (`stage-N` without one). line: where it begins. text: in one line."""

    stage: str
    line: int
    text: str

    @property
    def keyword(self) -> str:
        return self.text.split(None, 1)[0].upper()

    @property
    def is_step(self) -> bool:
        """Whether it makes a layer, which takes time."""
        return self.keyword in _LAYERS


def instructions(text: str) -> tuple[Instruction, ...]:
    """The instructions of a Dockerfile, continued lines joined, comments left out."""
    found: list[Instruction] = []
    stage, stages = "", 0
    parts: list[str] = []
    begun = 0
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        begun = begun or number
        continued = line.rstrip().endswith("\\")
        parts.append(line.rstrip().removesuffix("\\").strip())
        if continued:
            continue
        whole, parts = " ".join(filter(None, parts)), []
        if match := _FROM.match(whole):
            stage = match[2] or f"stage-{stages}"
            stages += 1
        found.append(Instruction(stage, begun, whole))
        begun = 0
    return tuple(found)
