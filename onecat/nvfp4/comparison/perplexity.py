"""What two perplexities say. Pure; `onecat.deploy.perplexity` measures them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from onecat.checkpoints.integrity import Fault, Severity

USUAL_LIMIT = 5.0
"""Percent worse than the original that are told. Measured on onecat's small model with its held-out text: NVFP4 of
weights alone loses 1.0 % (minmax) and 1.1 % (mse)."""
FAR = 50.0
"""Percent from which a model is spoiled rather than rounded."""
FEW_TOKENS = 1000
"""Below, chance moves perplexity by more than quantisation does."""

SOURCE = "https://huggingface.co/docs/transformers/perplexity"


@dataclass(frozen=True)
class Perplexity:
    """Perplexities a token on one text.

    text: the file. ours, original: None when a model's answer is no number; `original` also when none was asked for,
    then `compared` is false. tokens: of the text; scored: those that count. window, stride: in tokens. bos: whether the
    tokenizer puts a beginning before the text (each later window begins in the middle of the text, without one).
    same_tokens: whether both tokenizers give the same. dtype: that was computed in. tool: versions. limit: percent that
    a person set, None for the usual one, which is only told.
    """

    text: str
    ours: float | None
    original: float | None
    compared: bool
    tokens: int
    scored: int
    window: int
    stride: int
    bos: bool
    same_tokens: bool
    dtype: str
    tool: str
    seconds: float
    limit: float | None = None

    @property
    def percent(self) -> float | None:
        """How much worse than the original, below 0 for better; None when it cannot be said."""
        return 100 * (self.ours / self.original - 1) if self.ours and self.original else None

    def faults(self) -> Iterator[Fault]:
        """What is wrong."""
        if self.ours is None:
            yield _fault("no-perplexity", "its answers are no numbers: NaN or infinite",
                         "onecat model verify DIR --weights finds where they come from")  # fmt: skip
        if self.compared and self.original is None:
            yield _fault("no-perplexity", "the original's answers are no numbers: NaN or infinite",
                         "verify the original: onecat model verify ORIGINAL --weights")  # fmt: skip
        if not self.same_tokens:
            yield Fault("tokens-differ", "fail", "its tokenizer makes other tokens of the text than the original's",
                        "the tokenizer", "take the tokenizer's files from the original", source=SOURCE)  # fmt: skip
        limit = USUAL_LIMIT if self.limit is None else self.limit
        if self.percent is not None and self.percent > limit:
            told = f"its perplexity is {self.percent:.1f} % above the original's; {limit:g} % the limit"
            if self.percent > FAR:
                yield _fault("perplexity", told, "mend what else is told of it, or convert the original again")
            else:
                fix = "leave the modules with the largest errors alone: onecat model convert --ignore PATTERN"
                severity: Severity = "warn" if self.limit is None else "fail"
                yield Fault("perplexity", severity, told, "the model", fix, source=SOURCE)
        if self.scored < FEW_TOKENS:
            yield Fault("few-tokens", "info", f"{self.scored} tokens are few for a perplexity", self.text,
                        "give a longer text", source=SOURCE)  # fmt: skip


def _fault(code: str, text: str, fix: str) -> Fault:
    return Fault(code, "fail", text, "the model", fix, source=SOURCE)
