"""Weights to codes and scales, and back: arrays in, arrays out. See `Codec` for what each function promises.

`choose()` gives an implementation for so much work on this machine; all of them give the same bits.
"""

from onecat.nvfp4.codec.arrays import total
from onecat.nvfp4.codec.choosing import choose, compiled, interpreted, is_numba_there, weights_in
from onecat.nvfp4.codec.records import BLOCK, E2M1_MAX, E4M3_MAX, Codec, Deviation, Nvfp4, ScaledCodes, Search

__all__ = [
    "BLOCK",
    "E2M1_MAX",
    "E4M3_MAX",
    "Codec",
    "Deviation",
    "Nvfp4",
    "ScaledCodes",
    "Search",
    "choose",
    "compiled",
    "interpreted",
    "is_numba_there",
    "total",
    "weights_in",
]
