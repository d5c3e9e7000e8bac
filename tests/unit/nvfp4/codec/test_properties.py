"""What holds for all weights."""

from __future__ import annotations

import ml_dtypes
import numpy
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from onecat.nvfp4.codec import Nvfp4, ScaledCodes, interpreted
from onecat.nvfp4.codec.rounding import from_float32, to_float32
from onecat.nvfp4.tensor_types import Array

CODEC = interpreted(1)
few = settings(max_examples=50)
E4M3 = numpy.dtype(ml_dtypes.float8_e4m3fn)
BFLOAT16 = numpy.dtype(ml_dtypes.bfloat16)
SHAPES = st.tuples(st.integers(1, 5), st.integers(1, 4).map(lambda blocks: blocks * 16))
FINITE = st.floats(width=32, allow_nan=False, allow_infinity=False)


@st.composite
def weights(draw: st.DrawFn) -> Array:
    shape = draw(SHAPES)
    elements = draw(st.sampled_from([FINITE, st.floats(-1, 1, width=32), st.floats(-(2.0**-120), 2.0**-120, width=32)]))
    weight: Array = draw(arrays(numpy.float32, shape, elements=elements, fill=st.just(0.0)))
    return weight


@st.composite
def coded(draw: st.DrawFn) -> Nvfp4:
    """Codes of which each block has a 6, so that its scale is what its largest weight asks for. No zero has a sign."""
    rows, columns = draw(SHAPES)
    packed = draw(arrays(numpy.uint8, (rows, columns // 2)))
    packed = numpy.where(packed & 15 == 8, packed & 0xF0, packed)
    packed = numpy.where(packed >> 4 == 8, packed & 0x0F, packed)
    packed[:, ::8] |= 7
    scale = draw(arrays(numpy.uint8, (rows, columns // 16), elements=st.integers(1, 126)))
    return Nvfp4(packed.astype(numpy.uint8), scale.view(E4M3))


@few
@given(coded(), st.integers(-60, 60))
def test_what_can_be_written_exactly_gets_the_same_codes_again(tensors: Nvfp4, exponent: int) -> None:
    """With scales that are powers of two; dequantised values of other scales are rounded to float32 once."""
    scale = 2.0**exponent
    for search in ("minmax", "mse"):
        again = CODEC.nvfp4(CODEC.nvfp4_values(tensors, 1.0, "F32", scale), scale, search)
        assert again.block_scale.tobytes() == tensors.block_scale.tobytes()
        assert again.packed.tobytes() == tensors.packed.tobytes()
        again = CODEC.nvfp4_modelopt(CODEC.nvfp4_values(tensors, scale, "F32"), scale, search)
        assert again.block_scale.tobytes() == tensors.block_scale.tobytes()
        assert again.packed.tobytes() == tensors.packed.tobytes()


@few
@given(weights())
def test_a_second_time_changes_nothing(weight: Array) -> None:
    scale = CODEC.global_scale(CODEC.largest(weight))
    once = CODEC.nvfp4_values(CODEC.nvfp4(weight, scale), 1.0, "F32", scale)
    again = CODEC.nvfp4_values(CODEC.nvfp4(once, scale), 1.0, "F32", scale)
    third = CODEC.nvfp4_values(CODEC.nvfp4(again, scale), 1.0, "F32", scale)
    assert again.tobytes() == third.tobytes()


@few
@given(weights(), st.sampled_from([1.0, 0.25, 40.0]))
def test_a_search_is_never_worse(weight: Array, share: float) -> None:
    """For the scale of the tensor itself, of one that shares it with a larger one, and of one that is too small."""
    largest = CODEC.largest(weight)
    scale = float(numpy.clip(numpy.float32(CODEC.global_scale(largest)) * numpy.float32(share), 1e-30, 1e30))
    found = {
        search: CODEC.nvfp4_deviation(weight, CODEC.nvfp4(weight, scale, search), 1.0, scale)
        for search in ("minmax", "mse")
    }
    assert found["mse"].squared_error <= found["minmax"].squared_error
    found = {
        search: CODEC.nvfp4_deviation(weight, CODEC.nvfp4_modelopt(weight, 1 / scale, search), 1 / scale)
        for search in ("minmax", "mse")
    }
    assert found["mse"].squared_error <= found["minmax"].squared_error


@few
@given(arrays(numpy.uint8, (3, 4), elements=st.integers(0, 255).filter(lambda code: code & 127 != 127)))
def test_fp8_codes_come_back(codes: Array) -> None:
    codes[:, 0] = 0x7E
    values = CODEC.fp8_values(ScaledCodes(codes.view(E4M3), numpy.ones((3, 1), numpy.float32)), None, "F32")
    again = CODEC.fp8_block(values, (1, 4))
    assert again.codes.tobytes() == codes.tobytes()
    assert (again.scale == 1).all()


@few
@given(arrays(numpy.uint32, 16))
def test_conversions_round_as_numpy_and_ml_dtypes_do(bits: Array) -> None:
    values = bits.view(numpy.float32)
    values[numpy.isnan(values)] = numpy.nan
    for dtype in (numpy.dtype(numpy.float16), BFLOAT16):
        found = numpy.empty(16, dtype)
        with numpy.errstate(all="ignore"):
            from_float32(values.copy(), found, numpy.empty_like(values))
            expected = values.astype(dtype)
        both_nan = numpy.isnan(found.astype(numpy.float32)) & numpy.isnan(values)
        assert ((found.view(numpy.uint16) == expected.view(numpy.uint16)) | both_nan).all()
        assert (both_nan == numpy.isnan(values)).all()


def test_nan_scales_stay_nan_whatever_their_bits() -> None:
    odd = float(numpy.uint32(0x7FFFFFFF).view(numpy.float32))
    tensors = Nvfp4(numpy.full((1, 8), 0x22, numpy.uint8), numpy.ones((1, 1), E4M3))
    assert numpy.isnan(CODEC.nvfp4_values(tensors, odd, "BF16").astype(numpy.float32)).all()
    scale = numpy.full((1, 1), 0x7FFFFFFF, numpy.uint32).view(numpy.float32)
    codes = ScaledCodes(numpy.ones((1, 4), E4M3), scale)
    assert numpy.isnan(CODEC.fp8_values(codes, None, "BF16").astype(numpy.float32)).all()


def test_each_float16_and_bfloat16_becomes_the_right_float32() -> None:
    for dtype in (numpy.dtype(numpy.float16), BFLOAT16):
        values = numpy.arange(65536, dtype=numpy.uint16).view(dtype)
        found = numpy.zeros(65536, numpy.float32)
        to_float32(values, found)
        expected = values.astype(numpy.float32)
        assert (found[~numpy.isnan(expected)] == expected[~numpy.isnan(expected)]).all()
        assert (numpy.signbit(found) == numpy.signbit(expected))[~numpy.isnan(expected)].all()
        assert (numpy.isnan(found) == numpy.isnan(expected)).all()
