"""config.json read with types: the fields of the language model, whether or not they stand under `text_config`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeGuard

LANGUAGE_MODEL_PARTS = ("text_config", "llm_config", "language_config")
"""Names that files have for the language model's part, where a config.json describes towers too."""


STATE_DTYPES = ("float32", "float16", "bfloat16")
"""MambaDType of vllm/config/cache.py at 0.27.1, without `auto`."""

LARGEST = 2**63
"""Engines keep sizes in 64 bits; JSON as Python reads it has whole numbers of thousands of digits."""


class IncompleteConfiguration(ValueError):
    """config.json lacks a field that its architecture needs, or has it with another type. The text names the field."""


@dataclass(frozen=True)
class Configuration:
    """config.json. whole: the document; text: the part that describes the language model."""

    whole: Mapping[str, Any]
    text: Mapping[str, Any]

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Configuration:
        """The configuration that a config.json holds."""
        for name in LANGUAGE_MODEL_PARTS:
            inner = document.get(name)
            if isinstance(inner, Mapping):
                return cls(document, inner)
        thinker = document.get("thinker_config")
        if isinstance(thinker, Mapping) and isinstance(thinker.get("text_config"), Mapping):
            return cls(document, thinker["text_config"])
        return cls(document, document)

    @property
    def name(self) -> str | None:
        """The first of `architectures`."""
        names = self.whole.get("architectures") or self.text.get("architectures")
        return next((each for each in names if isinstance(each, str)), None) if isinstance(names, list) else None

    @property
    def dtype(self) -> str | None:
        for part in (self.whole, self.text):
            for field in ("dtype", "torch_dtype"):
                if isinstance(part.get(field), str):
                    return str(part[field]).removeprefix("torch.")
        return None

    def integer(self, *names: str, default: int | None = None) -> int:
        """The first of these fields that is a whole number. Raises IncompleteConfiguration when none is."""
        found = self.optional(*names)
        if found is not None:
            return found
        for name in names:
            if type(self.text.get(name)) is int and self.text[name] >= LARGEST:
                raise IncompleteConfiguration(f"config.json has more than 64 bits for `{name}`")
        if default is not None:
            return default
        raise IncompleteConfiguration(f"config.json has no whole number `{names[0]}`")

    def optional(self, *names: str) -> int | None:
        """The first of these fields that is a whole number, not a negative one; None when none is."""
        return next((self.text[name] for name in names if is_count(self.text.get(name))), None)

    def positive(self, *names: str, default: int | None = None) -> int:
        """The first of these fields that is a whole number above 0. Raises IncompleteConfiguration when none is."""
        found = self.integer(*names, default=default)
        if found < 1:
            raise IncompleteConfiguration(f"config.json has {found} for `{names[0]}`")
        return found

    def count(self, *names: str) -> int:
        """The first of these fields that is a whole number, not a negative one; 0 when none is."""
        return self.optional(*names) or 0

    def pair(self, name: str) -> tuple[int, int] | None:
        """A list of two whole numbers above 0, as channels or sides; None when there is none."""
        value = self.text.get(name)
        if (
            not isinstance(value, (list, tuple))
            or len(value) != 2
            or not all(is_count(each) and each for each in value)
        ):
            return None
        return value[0], value[1]

    def of_document(self, name: str, default: int) -> int:
        """A whole number above 0 of the whole document, as the tokens of a picture, which stand beside all parts."""
        value = self.whole.get(name)
        return value if is_count(value) and value else default

    def with_defaults(self, **fields: Any) -> Configuration:
        """The same, with these values for fields of the language model that are not stated.

        transformers writes only what differs from a configuration class's defaults, so files of some families lack
        what their class defaults to.
        """
        return replace(self, text={**fields, **self.text})

    def section(self, name: str) -> Configuration | None:
        """A part of the document (`vision_config`) to be read like the language model's; None when there is none."""
        part = self.part(name)
        return None if part is None else replace(self, text=part)

    def flag(self, name: str, default: bool = False) -> bool:
        value = self.text.get(name)
        return value if isinstance(value, bool) else default

    def word(self, name: str) -> str | None:
        """A word, as `hybrid_override_pattern`; None when there is none."""
        value = self.text.get(name)
        return value if isinstance(value, str) else None

    def state_dtype(self, name: str) -> str | None:
        """A data type that states are kept in, as `mamba_ssm_dtype`; None for that of the model."""
        stated = (self.word(name) or "").removeprefix("torch.")
        return stated if stated in STATE_DTYPES else None

    def words(self, name: str) -> tuple[str, ...]:
        """A list of words, as `layer_types`; empty when there is none."""
        value = self.text.get(name)
        if isinstance(value, Sequence) and not isinstance(value, str):
            return tuple(each for each in value if isinstance(each, str))
        return ()

    def part(self, name: str) -> Mapping[str, Any] | None:
        """A part of the whole document, as `vision_config`."""
        value = self.whole.get(name)
        return value if isinstance(value, Mapping) else None

    @property
    def tied(self) -> bool:
        """Whether the output head is the embedding; not, where nothing states it."""
        return self.ties(False)

    def ties(self, default: bool) -> bool:
        """Whether the output head is the embedding. default: of the family's configuration class."""
        for part in (self.whole, self.text):
            if isinstance(part.get("tie_word_embeddings"), bool):
                return bool(part["tie_word_embeddings"])
        return default


def is_count(value: Any) -> TypeGuard[int]:
    """Whether a value of a document is a whole number that can count something, 0 among them."""
    return type(value) is int and 0 <= value < LARGEST
