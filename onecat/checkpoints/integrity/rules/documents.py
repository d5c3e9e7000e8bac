"""The files beside the weights: configuration, tokenizer, chat template, generation defaults."""

from __future__ import annotations

from collections.abc import Iterator

from onecat.checkpoints.integrity.contents import Contents
from onecat.checkpoints.integrity.records import Fault
from onecat.checkpoints.integrity.registry import rule
from onecat.checkpoints.json_text import DOWNLOAD_AGAIN
from onecat.checkpoints.tokenizers import COPY, MISSING, tokenizers

TOKENIZER_SOURCE = "https://huggingface.co/docs/transformers/fast_tokenizers"
TEMPLATE_SOURCE = "https://docs.vllm.ai/en/latest/serving/openai_compatible_server/#chat-template"
GENERATION_SOURCE = "https://docs.vllm.ai/en/latest/serving/openai_compatible_server/"


@rule
def readable(contents: Contents) -> Iterator[Fault]:
    """config.json is there, and every JSON file is JSON."""
    if "config.json" not in contents.sizes and "params.json" not in contents.sizes:
        yield Fault("missing-file", "fail", "is missing", "config.json", "copy it from the original checkpoint")
    for name, unread in contents.unread.items():
        if contents.starts.get(name) != b"":
            yield Fault(unread.code, "fail", unread.reason, name, unread.fix)
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json", "generation_config.json"):
        if name in contents.documents and not isinstance(contents.documents[name], dict):
            yield Fault("bad-json", "fail", "is not a JSON object", name, DOWNLOAD_AGAIN)


@rule
def tokenizer(contents: Contents) -> Iterator[Fault]:
    """There is a tokenizer with what it needs, and something that turns a chat into a prompt."""
    there = tokenizers(name for name, size in contents.sizes.items() if size >= 0)
    if not there:
        yield Fault("missing-tokenizer", "fail", MISSING, str(contents.directory), COPY, source=TOKENIZER_SOURCE)
        return
    if there == ["vocab.json"] and "merges.txt" not in contents.sizes:
        yield Fault("missing-tokenizer", "fail", "is missing beside vocab.json", "merges.txt", COPY,
                    source=TOKENIZER_SOURCE)  # fmt: skip
    if "tokenizer.json" in contents.documents and "model" not in contents.document("tokenizer.json"):
        yield Fault("bad-tokenizer", "fail", "has no `model`", "tokenizer.json", DOWNLOAD_AGAIN,
                    source=TOKENIZER_SOURCE)  # fmt: skip
    settings = contents.document("tokenizer_config.json")
    separate = ("chat_template.jinja", "chat_template.json", "tekken.json")
    if not settings.get("chat_template") and not any(name in contents.sizes for name in separate):
        text = "has no chat template"
        why = "A base model needs none; /v1/chat/completions is refused without one."
        fix = "give one to the server with --chat-template FILE if clients are to chat"
        yield Fault("no-chat-template", "info", text, "tokenizer_config.json", fix, why, TEMPLATE_SOURCE)


@rule
def generation(contents: Contents) -> Iterator[Fault]:
    """generation_config.json is there and its end of text is a token of the vocabulary."""
    if "generation_config.json" not in contents.sizes:
        why = "The engine takes its own defaults for temperature and stop tokens."
        yield Fault("no-generation-config", "info", "is missing", "generation_config.json", "", why, GENERATION_SOURCE)
        return
    text = contents.config.get("text_config")
    vocabulary = (text if isinstance(text, dict) else contents.config).get("vocab_size")
    ends = contents.document("generation_config.json").get("eos_token_id")
    for end in ends if isinstance(ends, list) else [ends]:
        if type(end) is int and type(vocabulary) is int and not 0 <= end < vocabulary:
            told = f"states eos_token_id {end}; the vocabulary has {vocabulary} tokens"
            why = "The model never ends an answer by that token."
            yield Fault("bad-token-id", "warn", told, "generation_config.json", "copy it from the original checkpoint",
                        why, GENERATION_SOURCE)  # fmt: skip


@rule
def embeddings(contents: Contents) -> Iterator[Fault]:
    """An output head is there unless the configuration ties it to the embeddings."""
    nested = contents.config.get("text_config")
    stated = contents.config.get("tie_word_embeddings")
    if stated is None and isinstance(nested, dict):
        stated = nested.get("tie_word_embeddings")
    names = [tensor.name for _, tensor in contents.tensors() if ".layers." not in tensor.name]
    if not names or contents.broken or any(name not in contents.headers for name in contents.shards):
        return
    heads = [name for name in names if name.startswith("lm_head.") or ".lm_head." in name]
    source = "https://huggingface.co/docs/transformers/main_classes/configuration"
    architectures = contents.config.get("architectures")
    generates = isinstance(architectures, list) and any(
        str(name).endswith(("ForCausalLM", "ForConditionalGeneration")) for name in architectures
    )
    has_embeddings = any(name.endswith(("embed_tokens.weight", "embeddings.weight")) for name in names)
    if stated is False and generates and has_embeddings and not heads and not _other_head(names):
        text = "says that the output head is not tied to the embeddings, and no file holds an lm_head"
        fix = "download the missing tensors, or set tie_word_embeddings to what the original checkpoint has"
        yield Fault("missing-head", "fail", text, "config.json", fix, "The head would be left as noise.", source)
    if stated is True and any(name.endswith("lm_head.weight") for name in heads):
        text = "ties the output head to the embeddings, and the files hold an lm_head too"
        why = "Engines do not load it: where the two differ, the answers are those of the embeddings."
        yield Fault("head-beside-tied", "info", text, "config.json", "", why, source)


def _other_head(names: list[str]) -> bool:
    return any(
        name.startswith(("output.", "head.", "embed_out.", "model.output.", "language_model.output.")) for name in names
    )
