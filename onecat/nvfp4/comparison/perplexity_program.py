"""Run by a Python that has torch and transformers: the perplexity of models on one text. Imports nothing of onecat.

Argument: a JSON object {models: directories, text: file, tokenizer: directory, window: tokens or null, dtype, threads}.
Prints a JSON object a line: {"done": parts, "of": parts} on the way, and last {"perplexities": of each model, null for
NaN, "tokens", "scored", "window", "stride", "bos", "same_tokens", "torch", "transformers"}, or {"error": why}.

Each token but the first is scored once, with at least half a window before it where there is so much: windows begin
half a window after each other, and of each but the first only the second half counts.
Source of the method: https://huggingface.co/docs/transformers/perplexity
"""

from __future__ import annotations

import importlib
import json
import math
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

MOST_WINDOW = 2048
"""What published perplexities of language models are mostly measured with; longer windows take more memory."""
POSITIONS = 256
"""Whose logarithms are computed at once: a vocabulary of 150 000 takes 150 MB for them."""


def windows(tokens: int, window: int) -> Iterator[tuple[int, int, int]]:
    """begin, end, and the first token that counts, of each window; ends when all are scored."""
    stride, scored = max(1, window // 2), 1
    for begin in range(0, tokens, stride):
        end = min(begin + window, tokens)
        if end > scored:
            yield begin, end, scored
            scored = end
        if end == tokens:
            return


def say(document: dict[str, Any]) -> None:
    print(json.dumps(document), flush=True)


def longest(config: Any) -> int:
    """Tokens that a model takes at once."""
    text = config.get_text_config() if hasattr(config, "get_text_config") else config
    return int(getattr(text, "max_position_embeddings", None) or MOST_WINDOW)


class Measuring:
    """torch and transformers, and what is asked of them."""

    def __init__(self, asked: dict[str, Any]) -> None:
        self.asked = asked
        self.torch: Any = importlib.import_module("torch")
        self.transformers: Any = importlib.import_module("transformers")
        self.torch.set_num_threads(asked["threads"])
        self.transformers.utils.logging.set_verbosity_error()
        self.transformers.utils.logging.disable_progress_bar()
        self.done = self.of = 0

    def tokens(self, directory: str) -> list[int]:
        tokenizer = self.transformers.AutoTokenizer.from_pretrained(directory)
        text = Path(self.asked["text"]).read_text(encoding="utf-8")
        found = tokenizer(text)["input_ids"]
        self.bos = bool(found) and found[0] == tokenizer.bos_token_id
        return list(found)

    def run(self) -> dict[str, Any]:
        asked, auto = self.asked, self.transformers
        tokens = self.tokens(asked["tokenizer"])
        if len(tokens) < 2:
            return {"error": "the text has fewer than two tokens"}
        bos = self.bos
        same = all(self.tokens(each) == tokens for each in asked["models"] if each != asked["tokenizer"])
        most = min(longest(auto.AutoConfig.from_pretrained(each)) for each in asked["models"])
        window = asked["window"] or min(MOST_WINDOW, most)
        if not 2 <= window <= most:
            return {"error": f"a window of {window} tokens: the model takes 2 to {most} at once"}
        self.of = len(asked["models"]) * (sum(1 for _ in windows(len(tokens), window)) + 1)
        found = [self.perplexity(each, tokens, window) for each in asked["models"]]
        return {
            "perplexities": found,
            "tokens": len(tokens),
            "scored": len(tokens) - 1,
            "window": window,
            "stride": max(1, window // 2),
            "bos": bos,
            "same_tokens": same,
            "torch": str(self.torch.__version__),
            "transformers": str(auto.__version__),
        }

    def perplexity(self, directory: str, tokens: list[int], window: int) -> float | None:
        torch = self.torch
        version = [int(each) for each in self.transformers.__version__.split(".")[:2]]
        name = "dtype" if version >= [4, 56] else "torch_dtype"
        options = {name: getattr(torch, self.asked["dtype"]), "output_loading_info": True}
        model, loaded = self.transformers.AutoModelForCausalLM.from_pretrained(directory, **options)
        if loaded["missing_keys"]:
            # They would be random numbers.
            missing = sorted(loaded["missing_keys"])
            raise SystemExit(f"transformers finds no {missing[0]} ({len(missing)} tensors) in {directory}")
        model.eval()
        self.tick()
        total = 0.0
        for begin, end, first in windows(len(tokens), window):
            ids = torch.tensor([tokens[begin:end]])
            logits = model(ids, use_cache=False).logits[0]
            for start in range(first, end, POSITIONS):
                stop = min(start + POSITIONS, end)
                part = logits[start - 1 - begin : stop - 1 - begin].float()
                total += float(torch.nn.functional.cross_entropy(part, ids[0, start - begin : stop - begin],
                                                                 reduction="sum").double())  # fmt: skip
            self.tick()
        mean = total / (len(tokens) - 1)
        return math.exp(mean) if math.isfinite(mean) and mean < 700 else None

    def tick(self) -> None:
        self.done += 1
        say({"done": self.done, "of": self.of})


def main() -> None:
    measuring = Measuring(json.loads(sys.argv[1]))
    with measuring.torch.inference_mode():
        say(measuring.run())


if __name__ == "__main__":
    main()
