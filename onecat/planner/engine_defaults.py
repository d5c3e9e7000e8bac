"""What an engine makes of flags that nobody set: batch sizes, data type, prefix caching.

Sources: vllm/engine/arg_utils.py (get_batch_defaults, _set_default_max_num_seqs_and_batched_tokens_args,
_set_default_chunked_prefill_and_prefix_caching_args), vllm/config/model.py (_resolve_auto_dtype) and
vllm/platforms/cuda.py (supported_dtypes), read at 0.27.1 and 0.33.0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from packaging.version import Version

from onecat.checkpoints import Architecture
from onecat.checkpoints.architectures import StateLayers
from onecat.planner.hardware import GIB, Hardware

LARGE_BYTES = 70 * GIB
LARGEST_BYTES = 160 * GIB
LARGEST_SINCE = Version("0.28")
"""From some release after 0.27.1 on cards from 160 GiB have defaults of their own; 0.33.0 has them."""

SMALLEST_SEQS = 256
BFLOAT16_CAPABILITY = 80
LONG_NAMES = {"half": "float16", "float": "float32"}


@dataclass(frozen=True)
class Batch:
    """seqs: most requests in one step; tokens: most tokens of them all."""

    seqs: int
    tokens: int


def batch_defaults(hardware: Hardware, version: str, ranks: int) -> Batch:
    """The engine's own limits of a batch for `vllm serve`, before the model's length bounds them.

    Parameters:
        ranks: tensor parallel x pipeline parallel, which counts on a CPU only.
    """
    if hardware.platform == "cpu":
        return Batch(128 * ranks, 2048 * ranks)
    first = next(iter(hardware.cards), None)
    if hardware.platform != "cuda" or first is None:
        return Batch(SMALLEST_SEQS, 2048)
    if Version(version) >= LARGEST_SINCE and first.memory >= LARGEST_BYTES:
        return Batch(1024, 16384)
    if first.memory >= LARGE_BYTES and "a100" not in first.name.lower() and first.capability != 121:
        return Batch(1024, 8192)
    return Batch(SMALLEST_SEQS, 2048)


def resolved_dtype(
    asked: object, architecture: Architecture, capability: int | None, float16_refused: Sequence[str]
) -> str:
    """The data type that the engine calculates in: as asked, or what `auto` becomes.

    Parameters:
        capability: compute capability, ten times, of the card; None without one, where every type is supported.
    """
    if isinstance(asked, str) and asked != "auto":
        return LONG_NAMES.get(asked, asked)
    supported = ["bfloat16", "float16", "float32"]
    if capability is not None and capability < BFLOAT16_CAPABILITY:
        supported.remove("bfloat16")
    if architecture.model_type in float16_refused:
        supported.remove("float16")
    stored = architecture.dtype
    return stored if stored in supported and stored != "float32" else supported[0]


def prefix_caching(asked: object, architecture: Architecture) -> bool:
    """Whether prefixes are kept: as asked, else for all but hybrids of attention and state."""
    if isinstance(asked, bool):
        return asked
    return not any(isinstance(each, StateLayers) for each in architecture.caches)


def bounded(batch: Batch, length: int, seqs_set: int | None, tokens_set: int | None) -> Batch:
    """The batch with what was set, and what was not bounded by the other and the longest request."""
    seqs = seqs_set or batch.seqs
    tokens = tokens_set or min(batch.tokens, seqs * length)
    return Batch(seqs if seqs_set else min(seqs, tokens), tokens)
