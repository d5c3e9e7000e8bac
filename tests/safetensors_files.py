"""Safetensors files made of bytes: the library writes no type that numpy has no name for."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any


def write_safetensors(
    path: Path,
    tensors: Mapping[str, tuple[str, Sequence[int], bytes]],
    metadata: Mapping[str, str] | None = None,
) -> None:
    """Write these tensors in their order: of each its type as the format names it, its shape and its content."""
    header: dict[str, Any] = {} if metadata is None else {"__metadata__": metadata}
    end = 0
    for name, (dtype, shape, content) in tensors.items():
        begin, end = end, end + len(content)
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [begin, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    data = b"".join(content for _, _, content in tensors.values())
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)
