"""What a plain checkpoint is to be: the type of its weights, its files, its configuration."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onecat.checkpoints.architectures.configuration import Configuration
from onecat.checkpoints.safetensors_header import BITS
from onecat.checkpoints.sources import INDEX
from onecat.nvfp4.rewriting import Made, Shard, Step

PLAIN_DTYPES = {"float16": "F16", "bfloat16": "BF16", "float32": "F32"}
"""Types of plain weights: as config.json names them, and as safetensors does."""
DEFAULT_SHARD_BYTES = 5 * 10**9
"""What `save_pretrained` of transformers 4 cuts at: small enough that little is lost when a run is killed."""

STATED = ("quantization_config", "compression_config")
"""Fields of config.json that say how weights are stored."""
DTYPE_FIELDS = ("dtype", "torch_dtype")


@dataclass(frozen=True)
class Target:
    """Where a plain checkpoint goes. dtype: `float16`, `bfloat16`, `float32`; None for the model's own.

    shard_bytes: what a weight file holds at most, unless one tensor alone is larger. restart, replace: as `Rewrite`
    has them.
    """

    directory: Path
    dtype: str | None = None
    shard_bytes: int = DEFAULT_SHARD_BYTES
    restart: bool = False
    replace: bool = False


def own_dtype(config: Mapping[str, Any], stored: Iterable[tuple[str, int]]) -> str:
    """The type of a model's weights: as its configuration says, else the one that most unquantised bytes have.

    Parameters:
        stored: types of the tensors as safetensors names them, and their bytes.
    """
    stated = {"half": "float16", "float": "float32"}.get(found := Configuration.of(config).dtype or "", found)
    if stated in PLAIN_DTYPES:
        return stated
    count = dict.fromkeys(PLAIN_DTYPES.values(), 0)
    for dtype, size in stored:
        if dtype in count:
            count[dtype] += size
    most = max(count, key=lambda dtype: count[dtype])
    return next(name for name, dtype in PLAIN_DTYPES.items() if dtype == most)


def plain_config(config: Mapping[str, Any], own: str, dtype: str) -> str:
    """config.json of the plain checkpoint: without quantisation, and with the type that its weights now have.

    Parameters:
        own, dtype: the type of the weights before and after; parts that state another one (a vision tower) keep it.
    """
    plain = _plain(config, own, dtype)
    if Configuration.of(plain).dtype != dtype:
        plain[next((field for field in DTYPE_FIELDS if field in plain), "torch_dtype")] = dtype
    return json.dumps(plain, indent=2, ensure_ascii=False) + "\n"


def _plain(part: Mapping[str, Any], own: str, dtype: str) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for name, value in part.items():
        if name in STATED:
            continue
        if isinstance(value, Mapping):
            made[name] = _plain(value, own, dtype)
        elif name in DTYPE_FIELDS and isinstance(value, str) and value.removeprefix("torch.") == own:
            made[name] = dtype
        else:
            made[name] = value
    return made


def made_bytes(made: Made) -> int:
    return math.prod(made.shape) * BITS[made.dtype] // 8


def step_bytes(step: Step) -> int:
    """Bytes of all that a step makes."""
    return sum(map(made_bytes, step.outputs))


def into_shards(steps: Sequence[Step], most: int) -> tuple[Shard, ...]:
    """Weight files of at most so many bytes each, steps in their order; one that is larger has a file of its own."""
    files: list[list[Step]] = [[]]
    held = 0
    for step in steps:
        size = step_bytes(step)
        if files[-1] and held + size > most:
            files.append([])
            held = 0
        files[-1].append(step)
        held += size
    if len(files) == 1:
        return (Shard("model.safetensors", tuple(files[0])),)
    return tuple(
        Shard(f"model-{number:05d}-of-{len(files):05d}.safetensors", tuple(each))
        for number, each in enumerate(files, 1)
    )


def index(shards: Sequence[Shard]) -> dict[str, str]:
    """The index of several weight files, as a document by its name; nothing for one."""
    if len(shards) < 2:
        return {}
    places = {made.name: shard.file for shard in shards for step in shard.steps for made in step.outputs}
    total = sum(step_bytes(step) for shard in shards for step in shard.steps)
    document = {"metadata": {"total_size": total}, "weight_map": dict(sorted(places.items()))}
    return {INDEX: json.dumps(document, indent=2) + "\n"}
