"""The header of a safetensors file: names, types, shapes and offsets of its tensors, read without the weights.

Format: 8 bytes little-endian header length N, N bytes of JSON, then the tensor data without gaps.
Source: https://github.com/huggingface/safetensors (README, "Format"; safetensors/src/tensor.rs for what is refused).

What that library opens is read here and what it refuses is refused, but for two things that its format forbids and it
lets pass: the same name twice (it keeps the last), and a tensor described by an array in place of an object.
"""

from __future__ import annotations

import os
from pathlib import Path

from onecat.checkpoints.safetensors_groups import from_groups
from onecat.checkpoints.safetensors_json import from_json
from onecat.checkpoints.safetensors_records import BITS, Header, HeaderError, Tensor, bad_header, printable

__all__ = [
    "BITS",
    "LFS_POINTER",
    "MAXIMUM_HEADER_BYTES",
    "Header",
    "HeaderError",
    "Tensor",
    "header_of",
    "parse_header",
    "read_header",
    "read_header_text",
]

MAXIMUM_HEADER_BYTES = 100_000_000
"""Headers above this are refused by the safetensors library itself."""

LFS_POINTER = b"version https://git-lfs"


def read_header(path: Path) -> Header:
    """Read and verify one file's header against the file's size; the tensor data is not touched.

    Raises HeaderError with code `lfs-pointer`, `truncated`, `overlong`, `unknown-dtype` or `bad-header`; OSError when
    unreadable. Reads no more than the file holds, nor more than MAXIMUM_HEADER_BYTES.
    """
    return header_of(*read_header_text(path))


def read_header_text(path: Path) -> tuple[bytes, int]:
    """The JSON of a file's header as it stands there, and the size of the file.

    Raises HeaderError with code `lfs-pointer`, `truncated` or `bad-header` when there is none; OSError when unreadable.
    """
    with path.open("rb", buffering=0) as file:
        descriptor = file.fileno()
        size = os.fstat(descriptor).st_size
        length = header_length(os.pread(descriptor, len(LFS_POINTER), 0), size)
        text = os.pread(descriptor, length, 8)
    if len(text) < length:
        raise HeaderError("truncated", f"gave {len(text)} bytes of its header of {length}")
    return text, size


def header_length(start: bytes, size: int) -> int:
    """The length of the header's JSON in bytes, from the first bytes of a file of `size` bytes.

    Raises HeaderError with code `lfs-pointer`, `truncated` or `bad-header`.
    """
    if start.startswith(LFS_POINTER):
        raise HeaderError("lfs-pointer", "is a Git LFS pointer, not the weights")
    if len(start) < 8:
        raise HeaderError("truncated", f"holds {size} bytes, less than the 8 bytes of a header length")
    length = int.from_bytes(start[:8], "little")
    if length > MAXIMUM_HEADER_BYTES:
        raise bad_header(f"claims a header of {length} bytes; it is not a safetensors file")
    if 8 + length > size:
        raise HeaderError("truncated", f"is cut off in its header: {size} bytes, header needs {8 + length}")
    return length


def header_of(text: bytes, size: int) -> Header:
    """The header whose JSON is `text`, of a file of `size` bytes. Raises HeaderError as `read_header` does."""
    header = parse_header(text)
    start = 8 + len(text)
    expected = start + header.data_bytes
    if size < expected:
        raise HeaderError("truncated", f"is cut off: {size} bytes, its header describes {expected}")
    if size > expected:
        raise HeaderError("overlong", f"has {size - expected} bytes more than the {expected} its header describes")
    return Header(header.tensors, header.data_bytes, start, header.metadata)


def parse_header(text: bytes) -> Header:
    """The header's JSON as a record.

    Raises HeaderError with code `bad-header` when it is no header or contradicts itself, `unknown-dtype` when a
    tensor has a type that the format does not know.
    """
    try:
        decoded = text.decode("utf-8")
    except UnicodeDecodeError as error:
        raise bad_header(f"has a header that is not UTF-8 (at byte {error.start})") from error
    if (groups := from_groups(decoded)) is not None:
        return Header(groups[0], groups[0].data_bytes, 0, groups[1])
    tensors, metadata = from_json(decoded)
    position = 0
    for tensor in tensors:
        if tensor.begin != position:
            kind = "a hole" if tensor.begin > position else "an overlap"
            raise bad_header(f"has {kind} before tensor {printable(tensor.name)}, which begins at {tensor.begin}")
        position = tensor.end
    return Header(tuple(tensors), position, 0, metadata)
