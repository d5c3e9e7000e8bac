"""Quantised weights put into panels as csrc/panels.h says, read anew for the tests: place by place and bit by bit."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

PANEL_ROWS = 32
PANEL_COLUMNS = 64
LANES = 32
STEPS = 4
PAIRS = 8

Array = NDArray[Any]

# Bits 15 to 0 of a half word, as the header prints them: part (sign, exponent, mantissa) and number of a code.
NVFP4_BITS = ("s0", "s2", "s3", "s1", "e0", "e0", "m0", "e1", "e1", "m1", "e2", "e2", "m2", "e3", "e3", "m3")
FP8_BITS = ("s0", "s1", "e0", "e0", "e0", "e0", "m0", "m0", "m0", "e1", "e1", "e1", "e1", "m1", "m1", "m1")


def quad_pairs_place(lane: int, step: int, pair: int) -> tuple[int, int]:
    """Row and column, in the panel, of a pair's first weight."""
    return 8 * (lane // 4 % 4) + 4 * (lane // 16) + lane % 4, 16 * step + 2 * pair


def octets_place(lane: int, step: int, pair: int) -> tuple[int, int]:
    """Row and column, in the panel, of a pair's first weight."""
    return lane // 4 + 8 * (pair % 2 + 2 * (pair // 4)), 16 * (lane % 4) + 4 * step + 2 * (pair // 2 % 2)


PLACES = {"quad_pairs": quad_pairs_place, "octets": octets_place}


@cache
def _places(fragments: str) -> tuple[Array, Array]:
    """Rows and columns [lane, step, pair, half of the pair] of all weights of a panel."""
    places = np.array(
        [
            [[PLACES[fragments](lane, step, pair) for pair in range(PAIRS)] for step in range(STEPS)]
            for lane in range(LANES)
        ]
    )
    rows = np.repeat(places[..., 0, None], 2, axis=-1)
    return rows, places[..., 1, None] + np.arange(2)


def _panels(values: Array) -> Array:
    """[n, k] with zeros behind as panels [group, panel, row, column]."""
    n, k = values.shape
    padded = np.pad(values, ((0, -n % PANEL_ROWS), (0, -k % PANEL_COLUMNS)))
    groups, panels = padded.shape[0] // PANEL_ROWS, padded.shape[1] // PANEL_COLUMNS
    return padded.reshape(groups, PANEL_ROWS, panels, PANEL_COLUMNS).transpose(0, 2, 1, 3)


def _owned(values: Array, fragments: str) -> Array:
    """Codes [group, panel, lane, step, pair, half of the pair]."""
    rows, columns = _places(fragments)
    return _panels(values)[:, :, rows, columns]


def _halves(codes: Array, bits: tuple[str, ...], exponent_bits: int, mantissa_bits: int) -> Array:
    """The codes c0, c1, ... in the last dimension as one half word."""
    parts = {
        "s": (codes >> (exponent_bits + mantissa_bits), 1),
        "e": (codes >> mantissa_bits & ((1 << exponent_bits) - 1), exponent_bits),
        "m": (codes & ((1 << mantissa_bits) - 1), mantissa_bits),
    }
    taken: dict[str, int] = {}
    word = np.zeros(codes.shape[:-1], np.uint32)
    for name in bits:  # a part's bits come from its highest to its lowest
        part, size = parts[name[0]]
        taken[name] = taken.get(name, 0) + 1
        word = word << 1 | (part[..., int(name[1])] >> (size - taken[name]) & 1).astype(np.uint32)
    return word


def _words(owned: Array, bits: tuple[str, ...], codes: int, exponent_bits: int, mantissa_bits: int) -> Array:
    """Words [group, panel, lane, step, word]; `codes` pairs of a step, one after the other, make one."""
    shape = (*owned.shape[:4], PAIRS // codes, codes, 2)
    low, high = (
        _halves(owned.reshape(shape)[..., half].astype(np.uint32), bits, exponent_bits, mantissa_bits)
        for half in (0, 1)
    )
    return low | high << 16


def nvfp4_codes(codes: Array, fragments: str) -> Array:
    """NVFP4 codes [n, k], 0 to 15, as bytes [group, panel, 1024]."""
    words = _words(_owned(codes, fragments), NVFP4_BITS, 4, 2, 1)
    groups, panels = words.shape[:2]
    pieces = words.reshape(groups, panels, LANES, 2, 4).swapaxes(2, 3)  # two steps of two words make a piece
    return np.ascontiguousarray(pieces).astype("<u4").view(np.uint8).reshape(groups, panels, 1024)


def nvfp4_scales(scales: Array, fragments: str) -> Array:
    """E4M3 block scales [n, k / 16] as bytes [group, panel, 128]."""
    panels = _panels(np.repeat(scales, 16, axis=1))
    rows, columns = _places(fragments)
    # One scale for each step, or one for each of the rows of a step's pairs 0, 1, 4 and 5.
    chosen = (slice(None), slice(None), 0, 0) if fragments == "quad_pairs" else (slice(None), 0, [0, 1, 4, 5], 0)
    mine = panels[:, :, rows[chosen], columns[chosen]]
    return np.ascontiguousarray(mine.astype(np.uint8)).reshape(*panels.shape[:2], 128)


def fp8_codes(codes: Array, fragments: str) -> Array:
    """E4M3 codes [n, k] as bytes [group, panel, 2048]."""
    words = _words(_owned(codes, fragments), FP8_BITS, 2, 4, 3)
    groups, panels = words.shape[:2]
    blocks = words.swapaxes(2, 3)  # [step, lane, word]
    return np.ascontiguousarray(blocks).astype("<u4").view(np.uint8).reshape(groups, panels, 2048)
