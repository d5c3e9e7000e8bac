"""A checkpoint, as one JSON document (onecat.model/1) and as lines for people of at most 80 columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from onecat.render.columns import harmless, width, wrap

if TYPE_CHECKING:
    from onecat.checkpoints import Checkpoint, Problem
    from onecat.checkpoints.measuring import Share
    from onecat.planner.memory.kept import Kept

COLUMNS = 80
LABEL = 12
SHORT_DTYPES = {"bfloat16": "bf16", "float16": "fp16", "half": "fp16", "float32": "fp32", "float": "fp32"}


@dataclass(frozen=True)
class Inspection:
    """What is told of a checkpoint. shares: how its weights are stored. active: parameters that one token uses.
    kept, kept_fp8: what it keeps in its own dtype and in FP8, None where that is not known."""

    seen: Checkpoint
    shares: Sequence[Share]
    active: int
    kept: Kept | None
    kept_fp8: Kept | None


def model_document(told: Inspection) -> dict[str, Any]:
    """The document of schema onecat.model/1."""
    seen, described = told.seen, told.seen.architecture
    return {
        "schema": "onecat.model/1",
        "path": seen.directory,
        "architecture": described.name,
        "model_type": described.model_type,
        "dtype": described.dtype,
        "parameters": seen.parameters,
        "active_parameters": told.active,
        "weight_bytes": seen.weight_bytes,
        "measured": seen.measured,
        "estimated": described.estimated,
        "layers": described.layers,
        "hidden_size": described.hidden_size,
        "attention_heads": described.attention_heads,
        "key_value_heads": described.key_value_heads,
        "head_size": described.head_size,
        "vocabulary_size": described.vocabulary_size,
        "tied_embeddings": described.tied_embeddings,
        "quantization": _quantization(seen),
        "schemes": [asdict(share) for share in told.shares],
        "kv_bytes_per_token": told.kept.per_token if told.kept else None,
        "kv_bytes_per_token_fp8": told.kept_fp8.per_token if told.kept_fp8 else None,
        "bytes_per_sequence": told.kept.per_sequence if told.kept else None,
        "max_position_embeddings": described.max_position_embeddings,
        "experts": None if described.experts is None else {**asdict(described.experts)},
        "caches": [{"kind": type(each).__name__, **asdict(each)} for each in described.caches],
        "encoders": [asdict(each) for each in described.encoders],
        "files": list(seen.files),
        "problems": [asdict(each) for each in seen.problems],
    }


def _quantization(seen: Checkpoint) -> dict[str, Any]:
    """Weights as they were trained have their dtype as scheme, and no container."""
    found = seen.quantization
    if found is None:
        plain = SHORT_DTYPES.get(seen.architecture.dtype or "", seen.architecture.dtype)
        return {"scheme": plain, "container": None, "group_size": None, "ignored": [], "method": None, "format": None,
                "kv_cache": None, "activations": None}  # fmt: skip
    become = {each.activations for each in found.schemes}
    return {
        "scheme": found.scheme,
        "container": found.container,
        "group_size": found.group_size,
        "ignored": list(found.ignored),
        "method": found.method,
        "format": found.format,
        "kv_cache": found.kv_cache,
        "activations": become.pop() if len(become) == 1 else "mixed" if become else None,
    }


def model_text(told: Inspection) -> str:
    """A checkpoint for a person: what it is, its sizes, what it keeps, how it is stored, what is wrong with it."""
    lines = [harmless(told.seen.directory), *_row("", _summary(told)), ""]
    for label, text in _facts(told):
        lines += _row(label, text)
    lines += ["", *_shares(told.shares, told.seen.measured)] if told.shares else []
    lines += ["", *_problems(told.seen.problems)]
    return "\n".join(line.rstrip() for line in lines)


def _summary(told: Inspection) -> str:
    seen, described = told.seen, told.seen.architecture
    name = described.name or "an unknown architecture"
    kind = f" ({described.model_type})" if described.model_type else ""
    count = f"{_count(seen.parameters)} parameters" if seen.parameters else "parameters not known"
    if described.experts and told.active and told.active < seen.parameters * 0.95:
        count += f" ({_count(told.active)} for each token)"
    source = "" if seen.measured else ", computed from the configuration"
    if not seen.measured and seen.files:
        source = ", by the sizes of its files"
    size = f"{_size(seen.weight_bytes)} of weights{source}" if seen.weight_bytes else "size not known"
    return f"{name}{kind}, {count}, {size}"


def _facts(told: Inspection) -> Iterator[tuple[str, str]]:
    described, kept = told.seen.architecture, told.kept
    if described.estimated:
        yield "estimated", described.estimated
    if described.layers is not None:
        heads = f"; {described.attention_heads} query heads" if described.attention_heads else ""
        pairs = f", {described.key_value_heads} of keys and values" if described.key_value_heads else ""
        head = f", of {described.head_size}" if described.head_size else ""
        hidden = f", hidden size {described.hidden_size}" if described.hidden_size else ""
        yield "layers", f"{described.layers}{hidden}{heads}{pairs}{head}"
    if described.vocabulary_size is not None:
        tied = "the output head is the embedding" if described.tied_embeddings else "an output head of its own"
        yield "vocabulary", f"{described.vocabulary_size}; {tied}"
    if described.experts is not None:
        experts = described.experts
        shared = f", shared ones of {experts.shared_intermediate_size}" if experts.shared_intermediate_size else ""
        yield (
            "experts",
            (
                f"{experts.count} of {experts.intermediate_size} in {len(experts.layers)} layers, "
                f"{experts.per_token} for each token{shared}"
            ),
        )
    for encoder in described.encoders:
        yield encoder.part, f"{encoder.layers} layers, hidden size {encoder.hidden_size}"
    if described.max_position_embeddings is not None:
        rope = f"; positions stretched by {described.rope_type}" if described.rope_type not in (None, "default") else ""
        yield "context", f"{described.max_position_embeddings} tokens{rope}"
    if kept is not None:
        fp8 = f", {_small(told.kept_fp8.per_token)} in FP8" if told.kept_fp8 else ""
        dtype = described.dtype or "16 bits"
        yield "KV cache", f"{_small(kept.per_token)} for each token in {dtype}{fp8}"
        if kept.per_sequence:
            yield "state", f"{_small(kept.per_sequence)} for each sequence, whatever its length: states and windows"
    yield "stored as", _stored(told.seen)


def _stored(seen: Checkpoint) -> str:
    found = seen.quantization
    if found is None and not seen.tensors and seen.architecture.name is None:
        return "not known"
    if found is None:
        return f"{seen.architecture.dtype or 'trained'}, not quantised"
    form = f", {found.format}" if found.format else ""
    group = f", groups of {found.group_size}" if found.group_size else ""
    become = sorted({each.activations for each in found.schemes if each.activations})
    inputs = f"; activations become {', '.join(become)}" if become else "; activations stay 16 bits"
    left = len(found.ignored)
    ignored = (
        f"; left as they were: {found.ignored[0] if left == 1 else f'{left} modules and patterns'}" if left else ""
    )
    cache = f"; asks for a KV cache in {found.kv_cache}" if found.kv_cache else ""
    named = found.container if found.method == found.container else f"{found.container}, for engines {found.method}"
    return f"{found.scheme} ({named}{form}{group}){inputs}{ignored}{cache}"


def _shares(shares: Sequence[Share], measured: bool) -> Iterator[str]:
    yield f"{'scheme':<{LABEL}}  {'parameters':>16}  {'GB':>9}  {'GiB':>9}" + ("" if measured else "  (computed)")
    for share in shares:
        yield (
            f"{share.scheme:<{LABEL}}  {share.parameters:>16,}  {_digits(share.bytes / 1e9):>9}  "
            f"{_digits(share.bytes / 2**30):>9}"
        )


def _problems(problems: Sequence[Problem]) -> Iterator[str]:
    if not problems:
        yield "No problem found."
        return
    yield "Problems:"
    order = {"fail": 0, "warn": 1, "info": 2}
    for each in sorted(problems, key=lambda problem: order[problem.severity]):
        yield f"  {each.severity:<4}  {each.code}"
        yield from wrap(harmless(f"{each.where} {each.text}"), COLUMNS, " " * 8, " " * 8)
        yield from wrap(harmless(f"fix: {each.fix}"), COLUMNS, " " * 8, " " * 8)


def _row(label: str, text: str) -> list[str]:
    first = label + " " * (LABEL - width(label)) if label else ""
    return wrap(harmless(text), COLUMNS, first, " " * (LABEL if label else 2))


def _count(number: int) -> str:
    for unit, size in (("T", 10**12), ("B", 10**9), ("M", 10**6), ("K", 10**3)):
        if number >= size:
            return f"{number / size:.3g} {unit}"
    return str(number)


def _size(size: int) -> str:
    return f"{_digits(size / 1e9)} GB ({_digits(size / 2**30)} GiB)"


def _digits(number: float) -> str:
    """Two decimals, more where there would be hardly a digit."""
    return f"{number:.2f}" if number >= 0.1 or not number else f"{number:.4f}"


def _small(size: int) -> str:
    for unit, power in (("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if size >= 1 << power:
            return f"{size / (1 << power):.4g} {unit}"
    return f"{size} bytes"
