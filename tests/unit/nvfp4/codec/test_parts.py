"""Large weights, done in parts on threads: the same as in one piece, in little memory."""

from __future__ import annotations

import threading
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import ml_dtypes
import numpy
import pytest

from onecat.nvfp4.codec import Codec, choose, interpreted, weights_in
from onecat.nvfp4.codec.kernels import PART
from onecat.nvfp4.codec.parts import each_part
from tests.nvfp4_weights import Case, modelopt_cases, read_tensors

FIXTURES = Path(__file__).parents[3] / "fixtures" / "nvfp4"


def test_threads_give_what_one_gives() -> None:
    source = numpy.random.default_rng(1)
    weight = source.standard_t(4, (300, 1040)).astype(numpy.float32)
    assert weight.size > 4 * PART and weight.size % PART
    one, many = interpreted(1), interpreted(5)
    for codec in (one, many):
        assert codec.largest(weight) == float(numpy.abs(weight).max())
    scale = one.best_global_scale([weight, weight * 2], "mse")
    assert many.best_global_scale([weight, weight * 2], "mse") == scale
    made, same = (each.nvfp4(weight, scale, "mse") for each in (one, many))
    rows = [one.nvfp4(weight[row : row + 1], scale, "mse") for row in range(0, 300, 37)]
    for row, alone in zip(range(0, 300, 37), rows, strict=True):
        assert made.packed[row].tobytes() == alone.packed.tobytes()
    assert made.packed.tobytes() == same.packed.tobytes()
    assert made.block_scale.tobytes() == same.block_scale.tobytes()
    assert one.nvfp4_deviation(weight, made, 1.0, scale) == many.nvfp4_deviation(weight, made, 1.0, scale)
    values = many.nvfp4_values(made, 1.0, "F32", scale)
    exact = one.deviation(weight, values)
    assert exact == many.nvfp4_deviation(weight, made, 1.0, scale)
    error = values.astype(float) - weight
    assert exact.squared_error == pytest.approx((error**2).sum(), rel=1e-12)
    assert (exact.largest, exact.elements) == (numpy.abs(error).max(), weight.size)
    for dtype in ("BF16", "F16"):
        coded = many.fp8_block(weight)
        assert many.fp8_values(coded, (128, 128), dtype).tobytes() == one.fp8_values(coded, (128, 128), dtype).tobytes()


def test_temporary_memory_does_not_grow_with_the_weight() -> None:
    weight = numpy.random.default_rng(2).standard_normal((2048, 2048), numpy.float32).astype(ml_dtypes.bfloat16)
    codec = interpreted(2)
    scale = codec.global_scale(codec.largest(weight))

    def peak(work: Callable[[], object]) -> int:
        tracemalloc.start()
        work()
        found = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return found

    results = weight.size // 2 + weight.size // 16
    assert peak(lambda: codec.nvfp4(weight, scale)) < results + 10e6
    made = codec.nvfp4(weight, scale)
    assert peak(lambda: codec.nvfp4_values(made, 1.0, "BF16", scale)) < weight.nbytes + 10e6
    assert peak(lambda: codec.nvfp4_deviation(weight, made, 1.0, scale)) < 10e6
    assert peak(lambda: codec.fp8_block(weight)) < weight.size + 10e6


def test_a_part_that_fails_stops_the_others() -> None:
    begun, gate = [], threading.Event()

    def work(part: int, memory: None) -> None:
        begun.append(part)
        if part == 1:
            gate.set()
            raise ValueError("part 1")
        assert gate.wait(30)

    with pytest.raises(ValueError, match="part 1"):
        each_part(1000, 2, lambda: None, work)
    assert len(begun) < 1000
    assert threading.active_count() == 1 or not any(each.name.startswith("codec") for each in threading.enumerate())


@pytest.fixture(scope="module")
def codec() -> Codec:
    return choose(2)


@pytest.mark.parametrize("case", list(modelopt_cases()), ids=lambda case: case.name)
def test_modelopt_0_47_gives_the_same_bits(case: Case, codec: Codec) -> None:
    """The fixture holds what the real package answered: see tests/testbed/nvfp4_codec/modelopt_answers.py."""
    kept = read_tensors(FIXTURES / "modelopt-0.47.0.safetensors")
    name = case.name
    weight = kept[f"{name}.weight"]
    largest = max(codec.largest(weight), case.largest)
    scale = codec.weight_scale_2(largest)
    assert scale == float(kept[f"{name}.weight_scale_2"][0])
    made = codec.nvfp4_modelopt(weight, scale)
    assert made.block_scale.tobytes() == kept[f"{name}.weight_scale"].tobytes()
    assert made.packed.tobytes() == kept[f"{name}.packed"].tobytes()
    # Its table of values has no -0.0: equal numbers, not always equal bits.
    assert (codec.nvfp4_values(made, scale, "F32") == kept[f"{name}.values"]).all()


def test_the_bytes_of_a_checkpoint_are_those_of_its_weight_files(tmp_path: Path) -> None:
    (tmp_path / "a.safetensors").write_bytes(b"12345")
    (tmp_path / "b.safetensors").write_bytes(b"123")
    (tmp_path / "config.json").write_bytes(b"{}")
    assert weights_in(tmp_path) == 8
    assert choose(1, weights_in(tmp_path)).name == "numpy"
