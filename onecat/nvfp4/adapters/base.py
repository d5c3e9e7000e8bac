"""The base as an adapter sees it: which of its modules an adapter's names mean, and whether its output head is tied."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from onecat.checkpoints.quantization.matching import PREFIXES
from onecat.nvfp4.rewriting import SourceFiles

EMBEDDINGS = ("embed_tokens", "wte", "word_embeddings", "tok_embeddings", "embed_in")
"""Last names of input embeddings in transformers' models."""
HEADS = ("lm_head", "embed_out", "output")


@dataclass(frozen=True)
class Base:
    """What is to be known of a base.

    block_of: the block of FP8 scales that the configuration states for a module. tied: the output head has no tensor of
    its own. joined_layers: its matrices may be transformers' Conv1D (GPT-2).
    """

    source: SourceFiles
    block_of: Callable[[str], tuple[int, int] | None]
    tied: bool = False
    joined_layers: bool = False

    def stem(self, module: str, *parts: str) -> str | None:
        """The base's name of a module that has one of these parts; None when it has none, or several could be meant.

        The model that was trained may keep the language model in another place than the checkpoint does: libraries
        moved it between versions, and a model with towers is trained without them.
        """
        if self._has(module, parts):
            return module
        names = {other + module.removeprefix(stored) for stored, other in PREFIXES if module.startswith(stored)}
        names |= {stored + module.removeprefix(other) for stored, other in PREFIXES if module.startswith(other)}
        found = [name for name in names if self._has(name, parts)]
        return found[0] if len(found) == 1 else None

    def embedding(self) -> str | None:
        """The tensor of the input embedding."""
        return next(
            (name for name in self.source if name.endswith(".weight") and is_embedding(name.removesuffix(".weight"))),
            None,
        )

    def is_tied_head(self, module: str) -> bool:
        """Whether a module is the output head, and the base has the input embedding in its place."""
        return self.tied and module.rpartition(".")[2] in HEADS

    def _has(self, module: str, parts: tuple[str, ...]) -> bool:
        return any(f"{module}.{part}" in self.source.tensors for part in parts)


def is_embedding(stem: str) -> bool:
    """Whether a module is an input embedding, by its name."""
    return stem.rpartition(".")[2] in EMBEDDINGS


def same(one: SourceFiles, name: str, other: SourceFiles, other_name: str) -> bool:
    """Whether two tensors hold the same bytes."""
    first, second = one.tensors[name], other.tensors[other_name]
    return first[1:3] == second[1:3] and bool((one.raw(name) == other.raw(other_name)).all())
