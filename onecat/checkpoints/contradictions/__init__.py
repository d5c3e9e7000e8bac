"""What a checkpoint's tensors say against its configuration: tensors are the truth, the configuration a claim.

In: a checkpoint and what was read of it. Out: problems. A new rule is a function in `RULES` of one of the modules here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from onecat.checkpoints.contradictions import claims, configuration, storage
from onecat.checkpoints.contradictions.situation import Situation
from onecat.checkpoints.records import Checkpoint, Problem
from onecat.checkpoints.sources import Source

RULES: tuple[Callable[[Situation], Iterator[Problem]], ...] = (*claims.RULES, *storage.RULES, *configuration.RULES)


def contradictions(checkpoint: Checkpoint, source: Source) -> tuple[Problem, ...]:
    """All problems that no single file shows."""
    at = Situation(checkpoint, source)
    return tuple(problem for rule in RULES for problem in rule(at))


__all__ = ["contradictions"]
