"""A writer of flat files, from the articles' words: magic, number of groups, FP16 scales, eight codes in a word.

It packs codes one by one with shifts, and knows nothing of the reader.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

Array = NDArray[Any]


def words(codes: Array, order: str = "low-first") -> bytes:
    """Eight codes in each little-endian word. codes: whole numbers below 16, [any shape]."""
    packed = bytearray()
    flat = [int(code) for code in codes.reshape(-1)]
    for start in range(0, len(flat), 8):
        word = 0
        for place, code in enumerate(flat[start : start + 8]):
            word |= code << 4 * (place if order == "low-first" else 7 - place)
        packed += word.to_bytes(4, "little")
    return bytes(packed)


def write_flat(
    directory: Path, codes: Sequence[Array], scales: Sequence[Array], *, header: bool = True, order: str = "low-first"
) -> Path:
    """Write model.bin, and scales.bin without a header. codes: [out, in] each; scales: float16 [out, groups] each."""
    directory.mkdir(parents=True, exist_ok=True)
    all_scales = b"".join(each.astype("<f2").tobytes() for each in scales)
    all_codes = b"".join(words(each, order) for each in codes)
    path = directory / "model.bin"
    if header:
        groups = sum(each.size for each in scales)
        path.write_bytes(bytes((0x1C, 0x0A, 0x0D, 0x0A)) + groups.to_bytes(4, "little") + all_scales + all_codes)
    else:
        path.write_bytes(all_codes)
        (directory / "scales.bin").write_bytes(all_scales)
    return path
