"""The tokenizer: a byte-level BPE made from the learnt chapters, and the files that Transformers and vLLM read."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

SIZE = 1024
END = "<|end|>"
"""Ends a chapter in training, and an answer when the model writes it. Its number is 0."""
CHAT_TEMPLATE = (
    "{% for message in messages %}{{ message['content'] }}{% if not loop.last %}{{ '\\n' }}{% endif %}{% endfor %}"
)
"""The model knows no conversation: it goes on where the last message stops."""


def make_tokenizer(texts: Iterable[str]) -> Tokenizer:
    """A tokenizer of SIZE tokens; the same texts give the same one. It loses no byte of any text."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    trainer = trainers.BpeTrainer(
        vocab_size=SIZE,
        special_tokens=[END],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def write_tokenizer(directory: Path, tokenizer: Tokenizer, longest: int) -> None:
    """Write tokenizer.json and tokenizer_config.json; `longest` is the model's context in tokens."""
    tokenizer.save(str(directory / "tokenizer.json"))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": END,
        "eos_token": END,
        "pad_token": END,
        "add_bos_token": False,
        "clean_up_tokenization_spaces": False,
        "model_max_length": longest,
        "chat_template": CHAT_TEMPLATE,
    }
    text = json.dumps(settings, indent=2) + "\n"
    (directory / "tokenizer_config.json").write_text(text, encoding="utf-8")
