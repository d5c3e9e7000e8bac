"""What is claimed of kernels, tried on a device: claims, what was found wrong with each, and their table."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from bench.gpu.text_table import table

MESSAGES = 3


@dataclass
class Claim:
    """What is claimed of the kernels, over how many cases, what was found wrong, and the worst figures by name."""

    name: str
    cases: int = 0
    wrong: list[str] = field(default_factory=list)
    worst: dict[str, float] = field(default_factory=dict)
    seconds: float = 0.0

    def see(self, condition: bool, what: str) -> None:
        self.cases += 1
        if not condition:
            self.wrong.append(what)

    def note(self, name: str, figure: float) -> None:
        """Keep the largest figure of this name; NaN stays, so that it is seen."""
        kept = self.worst.get(name, 0.0)
        self.worst[name] = figure if figure != figure else max(kept, figure) if kept == kept else kept


SomeClaim = TypeVar("SomeClaim", bound=Claim)
Bench = TypeVar("Bench")


def try_claims(
    bench: Bench,
    claims: Mapping[str, Callable[[Bench, SomeClaim], None]],
    make: Callable[[str], SomeClaim],
    settle: Callable[[], object],
) -> list[SomeClaim]:
    """An error that a claim raises is a finding like a wrong result; the others are still tried.

    make: an empty claim of a name. settle: waits for the device, so that an error of a kernel shows with its claim.
    """
    tried = []
    for name, function in claims.items():
        claim = make(name)
        begun = time.monotonic()
        try:
            function(bench, claim)
            settle()
        except Exception:  # noqa: BLE001 - reported with its trace
            claim.see(False, traceback.format_exc(limit=-3))
        claim.seconds = time.monotonic() - begun
        tried.append(claim)
    return tried


def claims_table(title: str, claims: Sequence[Claim], figures: Mapping[str, str]) -> list[str]:
    """A line for each claim, and the first things that are wrong with each.

    figures: of `worst`, which columns the table has, and how they are formatted (".3e").
    """
    rows = [
        [
            claim.name,
            str(claim.cases),
            str(len(claim.wrong)) if claim.wrong else "-",
            *(format(value, form) if (value := claim.worst.get(name, 0.0)) else "" for name, form in figures.items()),
            f"{claim.seconds:.1f}",
        ]
        for claim in claims
    ]
    lines = [title, *table(["claim", "cases", "wrong", *figures, "s"], rows)]
    for claim in claims:
        lines += [f"  WRONG {claim.name}: {text}" for text in claim.wrong[:MESSAGES]]
        if len(claim.wrong) > MESSAGES:
            lines.append(f"  ... and {len(claim.wrong) - MESSAGES} more")
    return lines
