"""The loops of a codec, compiled by numba.

Each step rounds as the same step in numpy_kernels, rounding and scales does, in the same order: no fast-math, float32
throughout. Loops over the 16 elements of a block have no branches, so that they become a few vector instructions.
Numba makes 64 bits of what comes of 32, so the types of results are said again and again.
"""

# mypy: disable-error-code="untyped-decorator"

from __future__ import annotations

from typing import Any

from numba import njit
from numpy import float32, float64, int32, uint8, uint16, uint32

from onecat.nvfp4.codec.numpy_kernels import NOISE, UNDERFLOW
from onecat.nvfp4.codec.records import BLOCK
from onecat.nvfp4.tensor_types import Array

_EXPONENT = uint32(0x7F800000)
_MAGNITUDE = uint32(0x7FFFFFFF)
_ONE = float32(1)
_SIX = float32(6)
_FOUR = float32(4)
_ZERO = float32(0)
_LARGEST_CODE = 126
_compiled = njit(nogil=True, cache=True, error_model="numpy")
_inlined = njit(nogil=True, cache=True, error_model="numpy", inline="always")


@_inlined
def _step(value: Any, normal: Any, magic: Any) -> Any:
    """What to add and to take away again, see rounding."""
    return uint32(float32(max(value, normal)).view(uint32) & _EXPONENT).view(float32) * magic


@_inlined
def _e4m3(value: Any) -> Any:
    """The code of the nearest E4M3 value to a non-negative one; at most 448's."""
    limited = min(value, float32(448))
    step = _step(limited, float32(2.0**-6), float32(1.5 * 2**20))
    rounded = ((limited + step) - step) * float32(2.0**-120)
    return int32(float32(rounded).view(uint32) >> uint32(20))


@_inlined
def _block_scale(largest: Any, target: Any, modelopt: Any, scale: Any) -> Any:
    """The wanted scale of a block, see the conventions in scales."""
    if not modelopt:
        return float32(largest / target * scale)
    wanted = float32(largest / (target * scale))
    return _ONE if largest == _ZERO or wanted == _ZERO else wanted


@_inlined
def _factor(code: Any, table: Any, modelopt: Any, scale: Any) -> Any:
    """What a code of 1 means in a block whose scale has this E4M3 code."""
    return float32(table[code] * scale) if modelopt else float32(table[code] / scale)


@_compiled
def widen(values: Array, found: Array) -> None:
    """bfloat16 (as uint16) to float32 (as uint32)."""
    for i in range(values.size):
        found[i] = uint32(uint32(values[i]) << uint32(16))


@_compiled
def largest_bits(values: Array) -> Any:
    """The bits of the largest magnitude of float32 (as uint32), or of a NaN."""
    largest = uint32(0)
    for i in range(values.size):
        largest = max(largest, uint32(values[i] & _MAGNITUDE))
    return largest


@_compiled
def column_maxima(values: Array, found: Array) -> None:
    """The largest magnitudes of columns of [rows, columns]; both float32 as uint32. found: zeros."""
    for row in range(values.shape[0]):
        for column in range(values.shape[1]):
            found[column] = max(found[column], uint32(values[row, column] & _MAGNITUDE))


@_compiled
def block_maxima(values: Array, found: Array) -> Any:
    """The largest magnitudes of blocks; both float32 as uint32. Returns the largest of all, or the bits of a NaN."""
    of_all = uint32(0)
    for block in range(found.size):
        largest = uint32(0)
        for j in range(BLOCK):
            largest = max(largest, uint32(values[block * BLOCK + j] & _MAGNITUDE))
        found[block] = largest
        of_all = max(of_all, largest)
    return of_all


@_compiled
def scales_of_largest(maxima: Array, modelopt: bool, scale: Any, found: Array) -> None:
    """The E4M3 codes of block scales that `minmax` takes."""
    for block in range(maxima.size):
        code = _e4m3(_block_scale(maxima[block], _SIX, modelopt, scale))
        found[block] = code if code > 0 else 1 if modelopt else 0x20


@_compiled
def search(
    values: Array, maxima: Array, modelopt: bool, scale: Any, table: Array, trial: Array, found: Array, errors: Array
) -> None:
    """The best of the candidates for each block, in `found` what `minmax` takes before; see scales.candidates.

    trial: 16 of float32.
    """
    for block in range(maxima.size):
        to_six = max(_e4m3(_block_scale(maxima[block], _SIX, modelopt, scale)), 1)
        to_four = max(_e4m3(_block_scale(maxima[block], _FOUR, modelopt, scale)), 1)
        best = int32(found[block])
        least = to_beat = _ZERO
        for candidate in range(6):
            code = int32(best)
            if candidate == 1:
                code = int32(max(to_six - 1, 1))
            elif candidate == 2:
                code = int32(min(to_six + 1, _LARGEST_CODE))
            elif candidate >= 3:
                code = int32(min(max(to_four + candidate - 4, 1), _LARGEST_CODE))
            factor = _factor(code, table, modelopt, scale)
            for j in range(BLOCK):
                magnitude = abs(values[block * BLOCK + j])
                wanted = min(float32(magnitude / factor), _SIX)
                step = _step(wanted, _ONE, float32(1.5 * 2**22))
                error = ((wanted + step) - step) * factor - magnitude
                trial[j] = error * error
            for j in range(8):
                trial[j] += trial[j + 8]
            for j in range(4):
                trial[j] += trial[j + 4]
            error = float32(float32(trial[0] + trial[2]) + float32(trial[1] + trial[3]))
            if candidate == 0:
                least = error
                to_beat = float32(error - error * NOISE) if error > UNDERFLOW else _ZERO
            elif error < to_beat:
                best, least, to_beat = code, error, error
        found[block] = best
        errors[block] = least


@_compiled
def pack(values: Array, scales: Array, modelopt: bool, scale: Any, table: Array, codes: Array, found: Array) -> None:
    """The packed codes of values in blocks with scales of these E4M3 codes. codes: 16 of int32, for work."""
    for block in range(scales.size):
        factor = _factor(scales[block], table, modelopt, scale)
        for j in range(BLOCK):
            wanted = values[block * BLOCK + j] / factor
            size = abs(wanted)
            low = int32(size > float32(0.25)) + int32(size >= float32(0.75)) + int32(size > float32(1.25))
            high = int32(size >= float32(1.75)) + int32(size > float32(2.5)) + int32(size >= float32(3.5))
            sign = int32(int32(wanted < _ZERO) << 3)
            codes[j] = low + high + int32(size > float32(5)) + sign
        for j in range(8):
            found[block * 8 + j] = uint8(codes[2 * j] | (codes[2 * j + 1] << 4))


@_compiled
def unpack(packed: Array, factors: Array, pairs: Array, found: Array) -> None:
    """What packed codes mean, in float32. pairs: the two E2M1 values of each byte [256, 2]."""
    for block in range(factors.size):
        factor = factors[block]
        for j in range(8):
            byte = packed[block * 8 + j]
            found[block * BLOCK + 2 * j] = pairs[byte, 0] * factor
            found[block * BLOCK + 2 * j + 1] = pairs[byte, 1] * factor


@_compiled
def narrow(values: Array, found: Array) -> None:
    """float32 (as uint32) rounded to bfloat16 (as uint16)."""
    for i in range(values.size):
        bits = values[i]
        found[i] = uint16((bits + uint32(0x7FFF) + ((bits >> uint32(16)) & uint32(1))) >> uint32(16))


@_compiled
def narrow_float16(values: Array, found: Array) -> None:
    """float32 rounded to float16 (as uint16), what is too large to Inf; see rounding.from_float32."""
    for i in range(values.size):
        value = values[i]
        sign = uint32(uint32(float32(value).view(uint32) >> uint32(16)) & uint32(0x8000))
        limited = min(abs(value), float32(65536))
        step = _step(limited, float32(2.0**-14), float32(1.5 * 2**13))
        rounded = ((limited + step) - step) * float32(2.0**-112)
        bits = uint32(float32(rounded).view(uint32) >> uint32(13))
        found[i] = uint16(sign | (bits if value == value else uint32(0x7E00)))


@_compiled
def deviate(weight: Array, values: Array, sums: Array) -> None:
    """Squared error, squared signal and largest error of float32. sums: [3, 8] of float64, zeros, for 8 lanes."""
    for begin in range(0, weight.size - weight.size % 8, 8):
        for j in range(8):
            signal = float64(weight[begin + j])
            error = abs(float64(values[begin + j]) - signal)
            sums[0, j] += error * error
            sums[1, j] += signal * signal
            sums[2, j] = error if error > sums[2, j] else sums[2, j]
    for i in range(weight.size - weight.size % 8, weight.size):
        signal = float64(weight[i])
        error = abs(float64(values[i]) - signal)
        sums[0, 0] += error * error
        sums[1, 0] += signal * signal
        sums[2, 0] = max(sums[2, 0], error)


@_compiled
def fp8_pack(values: Array, scales: Array, found: Array) -> None:
    """E4M3 codes of values [rows, columns]. scales: of each column."""
    for row in range(values.shape[0]):
        for column in range(values.shape[1]):
            wanted = values[row, column] / scales[column]
            sign = int32(uint32(float32(wanted).view(uint32) >> uint32(24)) & uint32(0x80))
            found[row, column] = uint8(_e4m3(abs(wanted)) | sign)


@_compiled
def fp8_unpack(codes: Array, table: Array, scales: Array, found: Array) -> None:
    """What codes mean, in float32. All are [rows, columns]."""
    for row in range(codes.shape[0]):
        for column in range(codes.shape[1]):
            found[row, column] = table[codes[row, column]] * scales[row, column]
