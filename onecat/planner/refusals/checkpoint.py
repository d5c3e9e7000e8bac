"""What is wrong with the checkpoint itself."""

from __future__ import annotations

from collections.abc import Iterator

from onecat.planner.records import Refusal
from onecat.planner.refusals.situation import Situation


def checkpoint(at: Situation) -> Iterator[Refusal]:
    for problem in at.checkpoint.problems:
        if problem.severity == "fail":
            yield Refusal(f"checkpoint.{problem.code}", f"{problem.where} {problem.text}", (problem.fix,))
