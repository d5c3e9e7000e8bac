"""Machine code as nvdisasm prints it, read into records."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

SECTION = re.compile(r"^//-+ \.text\.(\S+) -+", re.MULTILINE)
LABEL = re.compile(r"^(\.L_x_\d+):\s*$")
INSTRUCTION = re.compile(r"/\*([0-9a-f]{4,})\*/\s+(?:(@!?U?P\w+)\s+)?([A-Z][A-Z0-9_]*(?:\.[A-Za-z0-9_]+)*)\s*([^;]*);")
TARGET = re.compile(r"`\((\.L_x_\d+)\)")
BRANCH_CONDITION = re.compile(r"^!?U?P\d")


@dataclass(frozen=True)
class Instruction:
    address: int
    predicate: str | None
    opcode: str
    operands: str

    @property
    def mnemonic(self) -> str:
        return self.opcode.split(".")[0]

    @property
    def target(self) -> str | None:
        """The label that a branch goes to."""
        found = TARGET.search(self.operands)
        return found.group(1) if found and self.mnemonic == "BRA" else None

    @property
    def falls_through(self) -> bool:
        """Whether the next instruction may follow it."""
        if self.predicate is not None:
            return True
        if self.opcode in ("BRA.DIV", "BRA.CONV"):  # taken where the lanes of a warp are apart, or together
            return True
        if self.mnemonic == "BRA":
            return BRANCH_CONDITION.match(self.operands) is not None
        return self.mnemonic not in ("EXIT", "RET", "BRX", "JMP", "BREAK")


@dataclass(frozen=True)
class Function:
    """One kernel: its instructions in order, and the address that each label stands before."""

    name: str
    instructions: tuple[Instruction, ...]
    labels: Mapping[str, int]


def functions(text: str) -> dict[str, Function]:
    """The kernels in the output of `nvdisasm -c`, by name."""
    pieces = SECTION.split(text)
    return {name: _function(name, body) for name, body in zip(pieces[1::2], pieces[2::2], strict=True)}


def _function(name: str, body: str) -> Function:
    instructions: list[Instruction] = []
    waiting: list[str] = []
    labels: dict[str, int] = {}
    for line in body.splitlines():
        if label := LABEL.match(line.strip()):
            waiting.append(label.group(1))
        elif found := INSTRUCTION.search(line):
            address, predicate, opcode, operands = found.groups()
            instructions.append(Instruction(int(address, 16), predicate, opcode, operands.strip()))
            labels.update(dict.fromkeys(waiting, instructions[-1].address))
            waiting.clear()
    return Function(name, tuple(instructions), labels)
