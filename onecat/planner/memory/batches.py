"""The batch of the profile run."""

from __future__ import annotations

from dataclasses import dataclass

from onecat.checkpoints import Architecture
from onecat.planner.memory.dtypes import DTYPE_BYTES
from onecat.planner.memory.records import MemorySettings


@dataclass(frozen=True)
class Batch:
    """tokens: in all sequences together. hidden: bytes of one row of hidden states. size: bytes of an element."""

    tokens: int
    sequences: int
    hidden: int
    size: int

    @property
    def states(self) -> int:
        """Bytes of the hidden states of all tokens."""
        return self.tokens * self.hidden


def batch_of(architecture: Architecture, settings: MemorySettings) -> Batch:
    """The largest batch that the settings allow."""
    size = DTYPE_BYTES[settings.dtype]
    tokens = settings.max_num_batched_tokens
    return Batch(tokens, min(settings.max_num_seqs, tokens), (architecture.hidden_size or 0) * size, size)
