"""The JSON of a safetensors header, in any form that the format allows, held to what the library's parser holds.

Source of what is refused: https://github.com/huggingface/safetensors (safetensors/src/tensor.rs), and its parser,
https://docs.rs/serde_json, which reads no NaN, no half surrogate pair, and nothing nested deeper than 127.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import Any, NoReturn

from onecat.checkpoints.safetensors_records import BITS, HeaderError, Tensor, bad_header, printable

METADATA = "__metadata__"
MAXIMUM_NUMBER = 2**64 - 1
"""Sizes and offsets above this are refused by the safetensors library on 64-bit machines."""

MAXIMUM_DEPTH = 127
BY_POSITION = itemgetter(3, 4)
"""Begin and end of a tensor: the order of the file."""


def from_json(text: str) -> tuple[list[Tensor], dict[str, str]]:
    """The tensors in file order, and the metadata. Raises HeaderError."""
    try:
        document = json.loads(text)
        if not isinstance(document, dict):
            raise bad_header("has a header that is not a JSON object")
        if not _nothing_lost(text, document):
            document = strict_object(text)
    except HeaderError:
        raise
    except (ValueError, RecursionError) as error:
        raise bad_header(f"has a header that is not JSON ({printable(str(error))})") from error
    metadata = metadata_of(document)
    document.pop(METADATA, None)
    return sorted((tensor_of(name, entry) for name, entry in document.items()), key=BY_POSITION), metadata


def tensor_of(name: str, entry: Any) -> Tensor:
    """The tensor that an entry of the header describes. Raises HeaderError when it contradicts itself."""
    try:
        dtype, shape, (begin, end) = entry["dtype"], entry["shape"], entry["data_offsets"]
        bits = BITS.get(dtype)
    except (KeyError, TypeError, ValueError) as error:
        raise bad_header(f"describes tensor {printable(name)} incompletely") from error
    if bits is None:
        if not isinstance(dtype, str):
            raise _wrong_type(name)
        known = ", ".join(BITS)
        text = f"stores tensor {printable(name)} as {printable(dtype)}; the format knows {known}"
        raise HeaderError("unknown-dtype", text)
    if type(shape) is not list or type(begin) is not int or type(end) is not int:
        raise _wrong_type(name)
    elements = 1
    for size in shape:
        if type(size) is not int:
            raise _wrong_type(name)
        elements *= size
        # Each step is held, as the library does: a zero further on does not heal an overflow before it.
        if size < 0 or size > MAXIMUM_NUMBER or elements > MAXIMUM_NUMBER:
            raise bad_header(f"gives tensor {printable(name)} a shape that no machine can hold")
    if begin < 0 or end > MAXIMUM_NUMBER or end < begin or elements * bits > MAXIMUM_NUMBER:
        raise bad_header(f"gives tensor {printable(name)} offsets or a size that no file can have")
    if elements * bits != (end - begin) * 8:
        what = f"{end - begin} bytes, and its shape and type {elements * bits / 8:g}"
        raise bad_header(f"gives tensor {printable(name)} a length that does not match its shape: {what}")
    return Tensor(name, dtype, tuple(shape), begin, end)


def metadata_of(document: Mapping[str, Any]) -> dict[str, str]:
    """The strings of `__metadata__`. Raises HeaderError when it is of another type."""
    metadata = document.get(METADATA)
    if metadata is None:
        return {}
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise bad_header(f"has a {METADATA} that is not an object of strings")
    return metadata


def strict_object(text: str) -> dict[str, Any]:
    """A JSON object, refused where a key stands twice or the library's parser reads less than Python's.

    Raises HeaderError, or the ValueError or RecursionError of Python's parser.
    """
    document = json.loads(text, object_pairs_hook=_object, parse_constant=_refuse_constant, parse_int=_integer)
    if not isinstance(document, dict):
        raise bad_header("has a header that is not a JSON object")
    _hold_depth(document, MAXIMUM_DEPTH)
    return document


def _nothing_lost(text: str, document: Mapping[str, Any]) -> bool:
    """Whether all of `text` is in `document`, and nothing in it needs a closer look.

    Python's parser keeps the last of two equal keys. Telling them by counting is several times as fast as a hook for
    each object: without escapes each string has two quotes, so a string that got lost leaves too many of them.
    """
    if "\\" in text or "-0" in text:
        return False
    strings = 5 * len(document)
    if METADATA in document:
        metadata = document[METADATA]
        strings += 1 - 5 + (2 * len(metadata) if isinstance(metadata, dict) else 0)
    return text.count('"') == 2 * strings


def _object(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        names: set[str] = set()
        for name, _ in pairs:
            if name in names:
                raise bad_header(f"describes {printable(name)} twice")
            names.add(name)
    for name, value in pairs:
        for text in (name, value):
            if isinstance(text, str) and not text.isascii():
                text.encode("utf-8")
    return result


def _integer(text: str) -> int | float:
    return -0.0 if text == "-0" else int(text)


def _refuse_constant(text: str) -> NoReturn:
    raise bad_header(f"has a header that is not JSON: it holds {text}")


def _hold_depth(value: Any, left: int) -> None:
    if isinstance(value, (dict, list)):
        if left == 0:
            raise bad_header(f"has a header that is nested deeper than {MAXIMUM_DEPTH}")
        for inner in value.values() if isinstance(value, dict) else value:
            _hold_depth(inner, left - 1)


def _wrong_type(name: str) -> HeaderError:
    return bad_header(f"describes tensor {printable(name)} with values of the wrong type")
