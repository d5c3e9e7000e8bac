"""The checkpoint's files: FP16 weights, configuration, tokenizer, a part of the held-out text, card and check sums."""

from __future__ import annotations

import hashlib
import json
import math
import string
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from tokenizers import Tokenizer
from transformers import LlamaConfig, LlamaForCausalLM

from tools.small_model.corpus import Chapter, Corpus
from tools.small_model.model import CONTEXT, held_out_loss
from tools.small_model.training import Best
from tools.small_model.vocabulary import write_tokenizer

CHECK_SUMS = "SHA256SUMS"
EXCERPT_EVERY = 7
"""One held-out chapter of so many goes into held_out.txt: about 30 KB of many kinds of text."""
CARD = Path(__file__).with_name("card.md")


def write_checkpoint(out: Path, model: LlamaForCausalLM, best: Best, tokenizer: Tokenizer, corpus: Corpus) -> None:
    """Write the directory `out` (made when absent) with the weights `best`, and print what they are worth."""
    out.mkdir(parents=True, exist_ok=True)
    weights = {name: value.to(torch.float16).contiguous() for name, value in sorted(best.weights.items())}
    (out / "model.safetensors").write_bytes(safetensors.torch.save(weights, metadata={"format": "pt"}))
    _write_json(out / "config.json", _configuration(model.config))
    ends = {"bos_token_id": model.config.bos_token_id, "eos_token_id": model.config.eos_token_id}
    _write_json(out / "generation_config.json", ends)
    write_tokenizer(out, tokenizer, model.config.max_position_embeddings)
    excerpt = corpus.held_out[::EXCERPT_EVERY]
    (out / "held_out.txt").write_text(_joined(excerpt), encoding="ascii")

    # What is shipped is measured: the weights as rounded to FP16, over the text as it lies there.
    model.load_state_dict({name: value.float() for name, value in weights.items()})
    whole = _measured(model, tokenizer, _joined(corpus.held_out))
    part = _measured(model, tokenizer, _joined(excerpt))
    figures = {
        "parameters": f"{sum(value.numel() for value in weights.values()) / 1e6:.1f} million",
        "context": str(CONTEXT),
        "step": str(best.step),
        "chapters": str(len(corpus.held_out)),
        "all_chapters": str(len(corpus.held_out) + len(corpus.learnt)),
        "excerpt": ", ".join(chapter.name for chapter in excerpt),
        **{f"whole_{name}": value for name, value in whole.items()},
        **{f"part_{name}": value for name, value in part.items()},
    }
    card = string.Template(CARD.read_text(encoding="utf-8")).substitute(figures)
    (out / "README.md").write_text(card, encoding="utf-8")
    files = sorted(path for path in out.iterdir() if path.is_file() and path.name != CHECK_SUMS)
    sums = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in files]
    (out / CHECK_SUMS).write_text("".join(sums), encoding="ascii")
    print(f"{out}: step {best.step}, held-out perplexity {whole['perplexity']}, held_out.txt {part['perplexity']}")


def _configuration(config: LlamaConfig) -> dict[str, Any]:
    """config.json in the names that Transformers 4 and 5 and every vLLM read."""
    names = (
        "model_type", "hidden_act", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
        "num_key_value_heads", "head_dim", "max_position_embeddings", "rms_norm_eps", "vocab_size", "bos_token_id",
        "eos_token_id", "tie_word_embeddings", "attention_bias", "mlp_bias", "initializer_range",
    )  # fmt: skip
    return {
        "architectures": ["LlamaForCausalLM"],
        **{name: getattr(config, name) for name in names},
        "rope_theta": config.rope_parameters["rope_theta"],
        "torch_dtype": "float16",
    }


def _measured(model: LlamaForCausalLM, tokenizer: Tokenizer, text: str) -> dict[str, str]:
    tokens = torch.tensor(tokenizer.encode(text).ids)
    loss = held_out_loss(model, tokens)
    bits = loss / math.log(2) * len(tokens) / len(text.encode())
    return {"perplexity": f"{math.exp(loss):.2f}", "bits": f"{bits:.3f}", "tokens": str(len(tokens))}


def _joined(chapters: tuple[Chapter, ...]) -> str:
    return "".join(chapter.text + "\n" for chapter in chapters)


def _write_json(path: Path, document: dict[str, Any]) -> None:
    path.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
