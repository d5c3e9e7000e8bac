"""What the codec gives, worked out by hand."""

from __future__ import annotations

import ml_dtypes
import numpy
import pytest

from onecat.nvfp4.codec import Codec, Nvfp4, ScaledCodes, interpreted
from onecat.nvfp4.tensor_types import Array

BFLOAT16 = numpy.dtype(ml_dtypes.bfloat16)
E4M3 = numpy.dtype(ml_dtypes.float8_e4m3fn)
ROW = [0, 0.25, 0.5, 0.75, 1, 1.25, 1.5, 1.75, 2, 2.5, 3, 3.5, 4, 5, 5.5, -6]
"""With a scale of 1: every other is in the middle between two codes, and becomes the even one."""
CODES = [0, 0, 1, 2, 2, 2, 3, 4, 4, 4, 5, 6, 6, 6, 7, 15]


@pytest.fixture
def codec() -> Codec:
    return interpreted(2)


def floats(values: object, dtype: object = numpy.float32) -> Array:
    return numpy.atleast_2d(numpy.array(values, dtype))


@pytest.mark.parametrize("dtype", [numpy.float32, numpy.float16, BFLOAT16])
def test_ties_become_even_and_the_even_column_is_the_low_half(codec: Codec, dtype: object) -> None:
    made = codec.nvfp4(floats(ROW, dtype), 1.0)
    assert made.block_scale.astype(float).tolist() == [[1.0]]
    assert made.packed.tolist() == [[low + 16 * high for low, high in zip(CODES[::2], CODES[1::2], strict=True)]]
    assert made.packed[0, 7] == 0xF7
    assert codec.nvfp4_values(made, 1.0, "F32").tolist() == [[0, 0, 0.5, 1, 1, 1, 1.5, 2, 2, 2, 3, 4, 4, 4, 6, -6]]


def test_the_scale_of_a_tensor_is_448_times_6_by_its_largest(codec: Codec) -> None:
    assert codec.global_scale(2688.0) == 1.0
    assert codec.global_scale(0.5) == 5376.0
    assert codec.weight_scale_2(2688.0) == 1.0
    assert codec.weight_scale_2(1.0) == float(numpy.float32(1) / numpy.float32(2688))
    # float32: 1 / 2.3 is 0.43478262424468994, times 2688 is 1168.6957 and not 1168.6956, which 2688 / 2.3 is.
    largest = float(numpy.float32(2.3))
    assert codec.global_scale(largest) == float(numpy.float32(0.43478262424468994) * numpy.float32(2688))


def test_zeros_and_what_is_too_small_have_a_scale_of_one_as_compressed_tensors_writes_it(codec: Codec) -> None:
    assert codec.global_scale(0.0) == 1.0
    assert codec.global_scale(7.8e-36) == 1.0, "2688 / 7.8e-36 is more than float32 holds"
    assert codec.global_scale(1e-35) < numpy.inf
    assert codec.weight_scale_2(0.0) == 0.0


def test_zeros_have_code_0_whatever_their_sign_and_a_block_scale_that_divides(codec: Codec) -> None:
    zeros = floats([0.0, -0.0] * 8)
    made = codec.nvfp4(zeros, 1.0)
    assert not made.packed.any()
    assert made.block_scale.astype(float).tolist() == [[0.125]]
    made = codec.nvfp4_modelopt(zeros, 0.0)
    assert not made.packed.any()
    assert made.block_scale.astype(float).tolist() == [[1.0]]
    assert not codec.nvfp4_values(made, 0.0, "BF16").astype(numpy.float32).any()


def test_a_block_scale_that_is_too_large_for_e4m3_becomes_448_and_its_codes_6(codec: Codec) -> None:
    made = codec.nvfp4(floats([6000.0] * 15 + [100.0]), 1.0)
    assert made.block_scale.astype(float).tolist() == [[448.0]]
    assert made.packed.tolist() == [[0x77] * 7 + [0x07]]


def test_a_block_scale_that_rounds_to_zero_becomes_what_the_package_writes(codec: Codec) -> None:
    """2^-10 is in the middle between 0 and the smallest of E4M3: even is 0."""
    weight = floats([6 * 2.0**-10] * 16)
    made = codec.nvfp4(weight, 1.0)
    assert made.block_scale.astype(float).tolist() == [[0.125]]
    assert not made.packed.any()
    made = codec.nvfp4_modelopt(weight, 1.0)
    assert made.block_scale.astype(float).tolist() == [[2.0**-9]]
    assert made.packed.tolist() == [[0x55] * 8], "6 * 2^-10 is 3 times 2^-9"


def test_a_search_finds_the_smallest_scale_where_minmax_loses_all(codec: Codec) -> None:
    made = codec.nvfp4(floats([6 * 2.0**-10] * 16), 1.0, "mse")
    assert made.block_scale.astype(float).tolist() == [[2.0**-9]]
    assert made.packed.tolist() == [[0x55] * 8]


def test_a_search_maps_the_largest_to_4_where_that_errs_less(codec: Codec) -> None:
    """With a scale of 6 / 6 the fives err by 1; with 6 / 4 all are codes: 6 = 4 x 1.5, 4.5 = 3 x 1.5."""
    weight = floats([6.0] + [4.5] * 15)
    least, searched = codec.nvfp4(weight, 1.0), codec.nvfp4(weight, 1.0, "mse")
    assert least.block_scale.astype(float).tolist() == [[1.0]]
    assert searched.block_scale.astype(float).tolist() == [[1.5]]
    assert codec.nvfp4_values(searched, 1.0, "F32").tolist() == weight.tolist()
    assert codec.nvfp4_deviation(weight, searched, 1.0).squared_error == 0
    assert codec.nvfp4_deviation(weight, least, 1.0) == (15 * 0.25, 36 + 15 * 20.25, 0.5, 16)


def test_values_are_rounded_once(codec: Codec) -> None:
    """1 + 2^-8 is in the middle between two of bfloat16, 1 + 3 * 2^-8 too: even is down, and up."""
    scale = numpy.ones((1, 1), E4M3)
    tensors = Nvfp4(numpy.full((1, 8), 0x22, numpy.uint8), scale)
    for multiplier, expected in (
        (1 + 2.0**-8, 1.0),
        (1 + 3 * 2.0**-8, 1 + 2.0**-6),
        (1 + 2.0**-8 + 2.0**-20, 1 + 2.0**-7),
    ):
        found = codec.nvfp4_values(tensors, multiplier, "BF16")
        assert found.dtype == BFLOAT16 and set(found.astype(float).reshape(-1)) == {expected}
    half = codec.nvfp4_values(tensors, 1 + 2.0**-11, "F16")
    assert half.dtype == numpy.float16 and set(half.reshape(-1)) == {1.0}
    assert set(codec.nvfp4_values(tensors, 65519.0, "F16").reshape(-1)) == {65504.0}
    assert set(codec.nvfp4_values(tensors, 65520.0, "F16").reshape(-1)) == {numpy.inf}
    assert set(codec.nvfp4_values(tensors, 3 * 2.0**-25, "F16").reshape(-1)) == {numpy.float16(2.0**-23)}


def test_a_divisor_is_not_its_reciprocal(codec: Codec) -> None:
    """compressed-tensors divides by the stored scale: 3 / 3 is 1, 3 * (1 / 3) need not be."""
    tensors = Nvfp4(numpy.full((1, 8), 0x22, numpy.uint8), numpy.full((1, 1), 13.0, E4M3))
    for stored in (3.0, 7.0, 1234.5):
        exact = numpy.float32(13) / numpy.float32(stored)
        assert codec.nvfp4_values(tensors, 1.0, "F32", stored)[0, 0] == exact
        reciprocal = numpy.float32(1) / numpy.float32(stored)
        assert codec.nvfp4_values(tensors, float(reciprocal), "F32")[0, 0] == numpy.float32(13) * reciprocal


@pytest.mark.parametrize("dtype", [numpy.float32, numpy.float16, BFLOAT16])
def test_fp8_blocks_at_the_edges_are_smaller(codec: Codec, dtype: object) -> None:
    weight = numpy.zeros((3, 5), numpy.float32)
    weight[:2, :4], weight[0, 1] = 7.0, -448.0
    weight[2, 4] = 224.0
    made = codec.fp8_block(weight.astype(dtype), (2, 4))
    zero = numpy.finfo(numpy.float32).eps
    assert made.scale.tolist() == [[1.0, zero], [zero, 0.5]]
    assert made.codes.astype(float)[2].tolist() == [0, 0, 0, 0, 448]
    assert codec.fp8_values(made, (2, 4), "F32").tolist() == weight.tolist()
    assert codec.fp8_deviation(weight, made, (2, 4)) == (0, float((weight**2).sum()), 0, 15)


def test_fp8_rounds_to_the_even_code_and_keeps_the_sign_of_zero(codec: Codec) -> None:
    weight = floats([448.0, 17.0, 19.0, -17.0, 2.0**-10, 3 * 2.0**-10, 2.0**-9, -0.0])
    made = codec.fp8_block(weight, (1, 8))
    assert made.codes.astype(float).tolist() == [[448, 16, 20, -16, 0, 2.0**-8, 2.0**-9, 0]]
    assert numpy.signbit(made.codes.astype(numpy.float32))[0].tolist() == [False] * 3 + [True] + [False] * 3 + [True]


def test_fp8_scales_of_channels_and_of_a_tensor(codec: Codec) -> None:
    codes = floats([[1, 2], [4, 8]], E4M3)
    assert codec.fp8_values(ScaledCodes(codes, floats([[2], [3]])), None, "F32").tolist() == [[2, 4], [12, 24]]
    assert codec.fp8_values(ScaledCodes(codes, numpy.float32([0.5])), None, "F16").tolist() == [[0.5, 1], [2, 4]]
    weight = floats([[1.0, 448.0], [896.0, -7.0]])
    assert codec.fp8_block(weight, (1, 2)).scale.tolist() == [[1.0], [2.0]]
    assert codec.fp8_block(weight, (2, 2)).scale.tolist() == [[2.0]]


@pytest.mark.parametrize("dtype", [numpy.float32, numpy.float16, BFLOAT16])
def test_nan_and_infinity_are_refused_by_number(codec: Codec, dtype: object) -> None:
    weight = numpy.ones((5, 16), dtype)  # type: ignore[call-overload]
    weight[1, 3], weight[4, 2], weight[2, 2] = numpy.nan, numpy.inf, -numpy.inf
    for ask in (
        lambda: codec.largest(weight),
        lambda: codec.nvfp4(weight, 1.0),
        lambda: codec.nvfp4(weight, 1.0, "mse"),
        lambda: codec.nvfp4_modelopt(weight, 1.0),
        lambda: codec.fp8_block(weight),
        lambda: codec.best_global_scale(weight, "mse"),
    ):
        with pytest.raises(ValueError, match="3 of 80 weights are NaN or infinite"):
            ask()


def test_what_does_not_fit_together_is_refused(codec: Codec) -> None:
    with pytest.raises(ValueError, match="24 in_features do not divide into blocks of 16"):
        codec.nvfp4(numpy.ones((2, 24), numpy.float32), 1.0)
    made = codec.nvfp4(numpy.ones((2, 32), numpy.float32), 1.0)
    with pytest.raises(ValueError, match=r"\[2, 16\] packed bytes and \[2, 1\] block scales do not fit"):
        codec.nvfp4_values(Nvfp4(made.packed, made.block_scale[:, :1]), 1.0, "F32")
    with pytest.raises(ValueError, match=r"\[4, 8\] codes and \[1, 2\] scales do not fit .* blocks of \[2, 4\]"):
        codec.fp8_values(ScaledCodes(numpy.zeros((4, 8), E4M3), numpy.ones((1, 2))), (2, 4), "F32")
    with pytest.raises(ValueError, match="cannot be compared"):
        codec.deviation(numpy.ones((2, 16), numpy.float32), numpy.ones((1, 16), numpy.float32))


@pytest.mark.parametrize("shape", [(0, 16), (0, 128), (3, 0)])
def test_empty_weights_are_weights(codec: Codec, shape: tuple[int, int]) -> None:
    weight = numpy.zeros(shape, BFLOAT16)
    assert codec.largest(weight) == 0
    for search in ("minmax", "mse"):
        made = codec.nvfp4(weight, codec.best_global_scale(weight, search), search)
        assert made.packed.shape == (shape[0], shape[1] // 2) and made.block_scale.shape == (shape[0], shape[1] // 16)
        assert codec.nvfp4_values(made, 1.0, "BF16").shape == shape
        assert codec.nvfp4_deviation(weight, made, 1.0) == (0, 0, 0, 0)
    coded = codec.fp8_block(weight)
    assert coded.codes.shape == shape and coded.scale.shape == tuple(-(-side // 128) for side in shape)
    assert codec.fp8_values(coded, (128, 128), "F16").shape == shape


def test_weights_that_lie_otherwise_in_memory_or_are_read_only(codec: Codec) -> None:
    weight = numpy.random.default_rng(3).standard_normal((48, 32), numpy.float32)
    weight.flags.writeable = False
    turned = weight.T[:, ::-1]
    for search in ("minmax", "mse"):
        for ours, copied in zip(codec.nvfp4(turned, 1.0, search), codec.nvfp4(turned.copy(), 1.0, search), strict=True):
            assert ours.tobytes() == copied.tobytes()
    assert codec.fp8_block(turned).codes.tobytes() == codec.fp8_block(turned.copy()).codes.tobytes()
