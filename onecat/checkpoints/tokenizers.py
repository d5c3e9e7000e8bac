"""Which files of a checkpoint are its tokenizer."""

from __future__ import annotations

from collections.abc import Iterable

TOKENIZER_FILES = ("tokenizer.json", "tokenizer.model", "tekken.json", "vocab.json", "tiktoken.model", "spiece.model")
"""Of transformers, SentencePiece and Mistral."""

ENDING = ".tiktoken"
"""Of tables of tiktoken, which have the model's name before it (`qwen.tiktoken`)."""

NAMES = f"{', '.join(TOKENIZER_FILES)}, *{ENDING}"
MISSING = f"has no tokenizer (none of {NAMES})"
COPY = "copy the tokenizer files of the original checkpoint into this directory"


def tokenizers(names: Iterable[str]) -> list[str]:
    """The files among these that hold a tokenizer, of the top directory."""
    return [name for name in names if name in TOKENIZER_FILES or (name.endswith(ENDING) and "/" not in name)]
