"""Where the tensors of a new weight file lie. Pure."""

from __future__ import annotations

import hashlib
import json
import math
from typing import NamedTuple

from onecat.checkpoints.safetensors_header import BITS
from onecat.nvfp4.rewriting.records import Made, Rewrite, Shard, Step
from onecat.nvfp4.rewriting.source import SourceFiles


class Layout(NamedTuple):
    """header: the first bytes of the file. ends: where the last byte of each step lies, plus one; in the file."""

    header: bytes
    ends: tuple[int, ...]

    @property
    def size(self) -> int:
        """Bytes of the whole file."""
        return self.ends[-1] if self.ends else len(self.header)


def size_of(made: Made) -> int:
    """Bytes of a tensor."""
    return -(-math.prod(made.shape) * BITS[made.dtype] // 8)


def layout_of(shard: Shard) -> Layout:
    """Lay out a weight file: its tensors without gaps, in the order of the steps."""
    rows: dict[str, object] = {"__metadata__": dict(shard.metadata)}
    position = 0
    ends = []
    for step in shard.steps:
        for made in step.outputs:
            assert made.name not in rows, f"{step.module}: a second tensor {made.name} in {shard.file}"
            begin, position = position, position + size_of(made)
            rows[made.name] = {"dtype": made.dtype, "shape": list(made.shape), "data_offsets": [begin, position]}
        ends.append(position)
    text = json.dumps(rows, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    header = len(text).to_bytes(8, "little") + text
    return Layout(header, tuple(len(header) + end for end in ends))


def bytes_read(step: Step, source: SourceFiles) -> int:
    """Bytes of the source tensors that a step needs, each counted once."""
    return sum(source.tensors[name].bytes for name in set(step.reads))


def largest_tensor(work: Rewrite, source: SourceFiles) -> int:
    """Bytes of the largest tensor that a step reads or makes; one that is copied is never in memory as a whole."""
    steps = [step for shard in work.shards for step in shard.steps if step.make is not None]
    read = {name for step in steps for name in step.reads}
    made = (size_of(each) for step in steps for each in step.outputs)
    return max(max((source.tensors[name].bytes for name in read), default=0), max(made, default=0))


def plan_digest(work: Rewrite, layouts: tuple[Layout, ...]) -> str:
    """SHA-256 (hex) of which bytes lie where in which file, what they are made from, and of config.json."""
    digest = hashlib.sha256()
    for shard, layout in zip(work.shards, layouts, strict=True):
        steps = [[step.module, step.reads, step.make is None] for step in shard.steps]
        digest.update(json.dumps([shard.file, steps]).encode())
        digest.update(layout.header)
    digest.update(json.dumps(work.copied).encode())
    digest.update(work.documents.get("config.json", "").encode())  # steps may take more from it than their tensors
    return digest.hexdigest()
