"""What a rule may look at."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from onecat.checkpoints import Checkpoint
from onecat.config import Profile
from onecat.engines import FlagSchema
from onecat.planner.flags import Setting
from onecat.planner.questions import Question
from onecat.planner.records import Layout
from onecat.planner.sizing import Sizing

UNSTRETCHED_ROPE = (None, "default", "su", "longrope", "llama3")
"""Rope types with which max_position_embeddings is the longest context (vllm config/model.py:2314)."""


@dataclass(frozen=True)
class Situation:
    """All that a rule may look at.

    gpus: GPUs the host is known to have, None when that is not known; npus likewise, for profiles that use them. hosts:
    that share the layout by Ray. sizing: what the memory model answered; None where it cannot be asked.
    """

    question: Question
    profile: Profile
    layout: Layout
    gpus: int | None
    npus: int | None = None
    hosts: int = 1
    sizing: Sizing | None = None

    @property
    def schema(self) -> FlagSchema:
        return self.question.schema

    @property
    def settings(self) -> Mapping[str, Setting]:
        return self.question.settings

    @property
    def environment(self) -> Mapping[str, str]:
        """Variables of the server."""
        return self.question.environment

    @property
    def checkpoint(self) -> Checkpoint:
        return self.question.checkpoint

    @property
    def capability(self) -> int | None:
        """Compute capability, ten times, of the weakest GPU; None without a GPU."""
        return self.question.capability

    def value(self, name: str) -> object:
        """The value of a flag: as set, or else the engine's default."""
        return self.question.value(name)


def longest_context(checkpoint: Checkpoint) -> int | None:
    """The longest context the checkpoint's own configuration allows, when it can be told without the engine."""
    described = checkpoint.architecture
    return described.max_position_embeddings if described.rope_type in UNSTRETCHED_ROPE else None
