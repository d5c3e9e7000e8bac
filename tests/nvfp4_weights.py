"""Weights that try a codec: random ones, and those at which a small difference in rounding shows."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import ml_dtypes
import numpy

from onecat.nvfp4.tensor_types import NUMPY_TYPES, Array
from tests.safetensors_files import write_safetensors

BFLOAT16 = numpy.dtype(ml_dtypes.bfloat16)


class Case(NamedTuple):
    """largest: the largest magnitude of a tensor that shares the global scale; 0 for none."""

    name: str
    weight: Array
    largest: float = 0.0


def random_weights() -> Iterator[Case]:
    source = numpy.random.default_rng(20)
    for dtype in (numpy.dtype(numpy.float32), numpy.dtype(numpy.float16), BFLOAT16):
        for rows, columns in ((1, 16), (3, 16), (7, 48), (64, 256), (129, 400), (256, 512)):
            weight = source.standard_normal((rows, columns), numpy.float32) * numpy.float32(0.02)
            yield Case(f"random {dtype.name} {rows}x{columns}", weight.astype(dtype))
    heavy = source.standard_t(2, (96, 320)).astype(numpy.float32)
    yield Case("heavy tails", heavy)
    shared = source.standard_normal((64, 128), numpy.float32)
    yield Case("shared with larger", shared, 4000.0)
    # 4000 * 2688 / 4000 is far below the smallest block scale for most blocks.
    yield Case("shared with far larger", shared, 4e6)
    wide = source.standard_normal((64, 256)) * 10.0 ** source.integers(-38, 38, (64, 256))
    yield Case("huge range", wide.astype(numpy.float32))
    rows = source.standard_normal((64, 256)) * 10.0 ** source.integers(-38, 38, (64, 16)).repeat(16, axis=1)
    yield Case("huge range of blocks", rows.astype(numpy.float32))
    bits = source.integers(0, 0x7F80, (64, 512)).astype(numpy.uint16) | (source.integers(0, 2, (64, 512)) << 15).astype(
        numpy.uint16
    )
    yield Case("any bfloat16", bits.view(BFLOAT16))
    yield Case("any float16", (bits % 0x7C00 | bits & 0x8000).astype(numpy.uint16).view(numpy.float16))


def special_weights() -> Iterator[Case]:
    zeros = numpy.zeros((4, 64), numpy.float32)
    yield Case("zeros", zeros)
    yield Case("negative zeros", -zeros)
    some = zeros.copy()
    some[1, 17], some[2, 40] = -3.0, 0.25
    yield Case("zeros but two", some)
    yield Case("negative zeros but two", numpy.where(some == 0, numpy.float32(-0.0), some))
    outlier = numpy.full((8, 64), 1e-3, numpy.float32)
    outlier[3, 33] = -1e4
    yield Case("one outlier", outlier)
    for exponent in (-149, -140, -126, -120, -100, 100, 120, 127):
        values = numpy.ldexp(numpy.linspace(-1.9, 1.9, 128), exponent).astype(numpy.float32)
        yield Case(f"around 2^{exponent}", values.reshape(2, 64))
    small = numpy.ldexp(numpy.linspace(-1.9, 1.9, 128), -24).astype(numpy.float16)
    yield Case("denormal float16", small.reshape(2, 64))
    # With 6 * 448 as the largest the global scale is 1, with 6 * 448 * 2^k it is a power of two: codes are as written.
    ties = numpy.array([0, 0.25, 0.5, 0.75, 1, 1.25, 1.5, 1.75, 2, 2.5, 3, 3.5, 4, 5, 5.5, 6], numpy.float32)
    edges = numpy.concatenate([ties, numpy.nextafter(ties, numpy.float32(9)), numpy.nextafter(ties, numpy.float32(-9))])
    edges = numpy.concatenate([edges, -edges]).reshape(1, -1)
    edges[:, 15::16] = 6
    for scale in (1.0, 2.0**-9, 448.0, 13.0):
        yield Case(f"ties at {scale}", (edges * numpy.float32(scale)).astype(numpy.float32), 6.0 * 448)
    # Block scales in the middle between two of E4M3, at its end, below its smallest, and at its denormal ones.
    codes = numpy.arange(0, 127, dtype=numpy.uint8).view(ml_dtypes.float8_e4m3fn).astype(numpy.float32)
    middles = (codes[1:] + codes[:-1]) / 2
    wanted = numpy.concatenate([codes, middles, numpy.nextafter(middles, numpy.float32(1e9)), [2.0**-11, 500.0, 1e9]])
    blocks = numpy.linspace(-1, 1, 16).astype(numpy.float32) * wanted.astype(numpy.float32)[:, None] * 6
    yield Case("block scales", blocks.astype(numpy.float32)[:-2], 6.0 * 448)
    yield Case("block scales under a smaller tensor's", numpy.minimum(blocks, 2688).astype(numpy.float32), 2688.0)


def modelopt_cases() -> Iterator[Case]:
    """Small ones of the others, and none of zeros: for those ModelOpt writes NaN block scales."""
    for case in (*random_weights(), *special_weights()):
        if case.weight.size <= 6200 and case.weight.any() and case.name != "around 2^-149":
            yield case


def read_tensors(path: Path) -> dict[str, Array]:
    """All tensors of a safetensors file."""
    content = path.read_bytes()
    length = int.from_bytes(content[:8], "little")
    found = {}
    for name, row in json.loads(content[8 : 8 + length]).items():
        if name != "__metadata__":
            begin, end = (8 + length + each for each in row["data_offsets"])
            found[name] = numpy.frombuffer(content[begin:end], NUMPY_TYPES[row["dtype"]]).reshape(row["shape"])
    return found


def write_tensors(path: Path, tensors: Mapping[str, Array]) -> None:
    names = {dtype: name for name, dtype in NUMPY_TYPES.items()}
    write_safetensors(path, {name: (names[each.dtype], each.shape, each.tobytes()) for name, each in tensors.items()})
