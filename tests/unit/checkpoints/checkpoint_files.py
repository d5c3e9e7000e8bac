"""Small model directories made tensor by tensor, for tests."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from onecat.checkpoints.safetensors_header import BITS
from tests.safetensors_files import write_safetensors

Made = tuple[str, Sequence[int], bytes | None]
"""Type, shape and content (None for ones, or zeros where ones have no one form) of a tensor."""

ONES = {"F32": b"\x00\x00\x80\x3f", "BF16": b"\x80\x3f", "F16": b"\x00\x3c", "F8_E4M3": b"\x38", "F8_E8M0": b"\x7f"}


def write_weights(path: Path, tensors: Mapping[str, Made]) -> None:
    """Write a safetensors file with these tensors, in their order."""
    filled = {}
    for name, (dtype, shape, content) in tensors.items():
        length = math.prod(shape) * BITS[dtype] // 8
        if content is None:
            one = ONES.get(dtype, b"\0")
            content = one * (length // len(one))
        assert len(content) == length, name
        filled[name] = dtype, shape, content
    write_safetensors(path, filled)


def write_checkpoint(directory: Path, tensors: Mapping[str, Made], config: Mapping[str, Any] | None = None) -> Path:
    """Write a directory with one weight file, a configuration and the files that serving wants beside them."""
    directory.mkdir(parents=True, exist_ok=True)
    write_weights(directory / "model.safetensors", tensors)
    for name, document in {
        "config.json": config or {"architectures": ["X"]},
        "generation_config.json": {},
        "tokenizer.json": {"model": {}},
        "tokenizer_config.json": {"chat_template": "{{ messages }}"},
    }.items():
        (directory / name).write_text(json.dumps(document))
    return directory
