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

    capability: compute capability, ten times, of the weakest GPU; None without a GPU. gpus: GPUs the host is known to
    have, None when that is not known; npus likewise, for profiles that use them. hosts: that share the layout by Ray.
    question, sizing: what the memory model was asked and answered; None where it cannot be asked.
    """

    schema: FlagSchema
    settings: Mapping[str, Setting]
    environment: Mapping[str, str]
    profile: Profile
    checkpoint: Checkpoint
    layout: Layout
    capability: int | None
    gpus: int | None
    npus: int | None = None
    hosts: int = 1
    question: Question | None = None
    sizing: Sizing | None = None

    def value(self, name: str) -> object:
        """The value of a flag: as set, or else the engine's default."""
        setting = self.settings.get(name)
        return setting.value if setting is not None else self.schema.default(name)


def longest_context(checkpoint: Checkpoint) -> int | None:
    """The longest context the checkpoint's own configuration allows, when it can be told without the engine."""
    described = checkpoint.architecture
    return described.max_position_embeddings if described.rope_type in UNSTRETCHED_ROPE else None


def told(capability: int) -> str:
    """A compute capability as people write it: 7.0."""
    return f"{capability // 10}.{capability % 10}"
