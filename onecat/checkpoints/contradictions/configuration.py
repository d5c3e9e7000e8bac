"""Sizes in config.json that the tensors do not have."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping

from onecat.checkpoints.contradictions.situation import Situation
from onecat.checkpoints.measuring import computed_shares
from onecat.checkpoints.observation import FLOATS
from onecat.checkpoints.quantization.storage import safetensors_name
from onecat.checkpoints.records import Problem
from onecat.checkpoints.sources import CONFIG
from onecat.checkpoints.tensors import StoredTensors

_DECODER_LAYER = re.compile(r"^(.*?\.?(?:layers|h))\.(\d+)\.")
_OTHER_STACKS = re.compile(r"visual|vision|audio|mtp|encoder|draft|eagle|talker|code2wav|perceiver|resampler")

GENERATES = ("ForCausalLM", "ForConditionalGeneration", "LMHeadModel")
"""Ends of the names of classes that have an output head."""

INCOMPLETE = frozenset(
    {
        "missing-shard",
        "truncated",
        "bad-header",
        "lfs-pointer",
        "unreadable",
        "unknown-dtype",
        "dead-link",
        "incomplete-download",
        "incomplete-rewrite",
    }
)
"""Problems after which a tensor that is not seen may yet be somewhere."""


def layers(at: Situation) -> Iterator[Problem]:
    """Layers in the tensors against num_hidden_layers; layers beyond it may be draft layers, which count apart."""
    claimed = at.checkpoint.architecture.layers
    stacks: dict[str, set[int]] = defaultdict(set)
    for row in at.checkpoint.tensors:
        found = _DECODER_LAYER.match(row.name)
        if found and not _OTHER_STACKS.search(found[1]):
            stacks[found[1]].add(int(found[2]))
    if claimed is None or not stacks:
        return
    stored = max(stacks.values(), key=len)
    missing = set(range(claimed)) - stored
    if missing and not _incomplete(at):
        yield Problem(
            "layers-differ",
            f"says num_hidden_layers {claimed}; the weights have {len(stored & set(range(claimed)))} of them",
            at.config,
            f"correct num_hidden_layers to {len(stored)}, or download the missing weights",
        )
    drafts = {weight.layer for weight in at.checkpoint.architecture.weights if weight.part == "draft"}
    stated = at.source.documents.get(CONFIG, {}).get("num_nextn_predict_layers")
    extra = stored - set(range(claimed + (stated if type(stated) is int else 0))) - drafts
    if extra:
        yield Problem(
            "layers-differ",
            f"says num_hidden_layers {claimed}; the weights have layer {max(extra)} too",
            at.config,
            f"correct num_hidden_layers to {len(stored)} if the model has that many",
            "warn",
        )


def embedding(at: Situation) -> Iterator[Problem]:
    """The embedding's rows against vocab_size, its columns against hidden_size."""
    described = at.checkpoint.architecture
    row = _embedding(at)
    if row is None or len(row.shape) != 2 or row.dtype not in FLOATS:
        return
    rows, columns = row.shape
    if described.vocabulary_size not in (None, rows):
        yield Problem(
            "vocabulary-differs",
            f"says vocab_size {described.vocabulary_size}; {row.name} has {rows} rows",
            at.config,
            f"correct vocab_size to {rows}: engines refuse an embedding of another size",
        )
    if described.hidden_size not in (None, columns):
        yield Problem(
            "hidden-size-differs",
            f"says hidden_size {described.hidden_size}; {row.name} has {columns} columns",
            at.config,
            "take the config.json of this very checkpoint",
        )


def output_head(at: Situation) -> Iterator[Problem]:
    """A head of its own against tie_word_embeddings."""
    described, row = at.checkpoint.architecture, _embedding(at)
    heads = [name for name in _names(at) if name.endswith(("lm_head.weight", "lm_head.weight_packed", "head.weight"))]
    if described.tied_embeddings and heads and row is not None:
        yield Problem(
            "tied-head-stored",
            f"says tie_word_embeddings; {heads[0]} is stored too, and engines leave it out",
            at.config,
            "nothing, if both are the same; else set tie_word_embeddings to false",
            "info",
        )
    generates = (described.name or "").endswith(GENERATES)
    if not described.tied_embeddings and not heads and row is not None and generates and not _incomplete(at):
        others = [weight.name for weight in described.weights if weight.kind == "head"]
        if any(name in _names(at) for name in others):
            return
        stated = _states_tied(at)
        yield Problem(
            "missing-head",
            "says the output head is not tied to the embedding; the weights have no lm_head"
            if stated
            else "does not state tie_word_embeddings; the weights have no lm_head, so it is tied",
            at.config,
            "set tie_word_embeddings to true if the model has no head of its own",
            "fail" if stated else "warn",
        )


def dtype(at: Situation) -> Iterator[Problem]:
    """The type that most unquantised weights have against dtype."""
    claimed = at.checkpoint.architecture.dtype
    sizes: Counter[str] = Counter()
    for each in at.matrices:
        if each.observed.name is None and each.observed.dtype in FLOATS and each.kind != "router":
            sizes[each.observed.dtype] += each.observed.elements * each.count
    if claimed is None or not sizes:
        return
    stored = sizes.most_common(1)[0][0]
    if stored != safetensors_name(claimed):
        yield Problem(
            "dtype-differs",
            f"says {claimed}; most unquantised weights are {stored}",
            at.config,
            f"serve with --dtype {claimed} to be sure; loading converts",
            "info" if {stored, safetensors_name(claimed)} == {"F16", "BF16"} else "warn",
        )


def listed_size(at: Situation) -> Iterator[Problem]:
    """Bytes of listed files against what the configuration comes to."""
    listed, seen = at.source.file_bytes, at.checkpoint
    if not listed or seen.architecture.estimated or not seen.architecture.weights:
        return
    computed = sum(share.bytes for share in computed_shares(seen.architecture, seen.quantization))
    if computed and abs(listed - computed) > computed * 0.02:
        yield Problem(
            "size-differs",
            f"comes to {computed / 1e9:.1f} GB; the weight files have {listed / 1e9:.1f} GB",
            at.config,
            "check that configuration and weights are of one revision",
            "warn",
        )


def _embedding(at: Situation) -> StoredTensors | None:
    names = {
        weight.name
        for weight in at.checkpoint.architecture.weights
        if weight.kind == "embedding" and weight.part == "language"
    }
    ends = ("embed_tokens.weight", "word_embeddings.weight", "wte.weight", "tok_embeddings.weight")
    rows = [row for row in at.checkpoint.tensors if row.name in names] or [
        row for row in at.checkpoint.tensors if row.name.endswith(ends) and not _OTHER_STACKS.search(row.name)
    ]
    return next((row for row in rows if "per_layer" not in row.name), None)


def _names(at: Situation) -> set[str]:
    return {row.name for row in at.checkpoint.tensors}


def _incomplete(at: Situation) -> bool:
    return any(problem.code in INCOMPLETE for problem in at.source.problems)


def _states_tied(at: Situation) -> bool:
    config = at.source.documents.get(CONFIG, {})
    parts = (config, *(part for part in config.values() if isinstance(part, Mapping)))
    return any(isinstance(part.get("tie_word_embeddings"), bool) for part in parts)


RULES: tuple[Callable[[Situation], Iterator[Problem]], ...] = (layers, embedding, output_head, dtype, listed_size)
