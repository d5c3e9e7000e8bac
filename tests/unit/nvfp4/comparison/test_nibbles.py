"""The order of nibbles, told from the weights alone: seen in a trained model, never in random ones."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy
import pytest

from onecat.checkpoints import write_tiny_checkpoint
from onecat.nvfp4.codec import choose
from onecat.nvfp4.comparison import NibbleOrder, nibble_order
from onecat.nvfp4.comparison.nibbles import judge
from onecat.nvfp4.conversion import Request, convert
from onecat.nvfp4.dequantisation import open_original
from tests.unit.nvfp4.comparison.variants import Array, swap_nibbles, variant

CODEC = choose(1)
RANDOM = numpy.random.default_rng(7)


def order_of(directory: Path) -> NibbleOrder | None:
    return nibble_order(open_original(directory), CODEC)


@pytest.mark.parametrize("scheme", ["nvfp4", "nvfp4-modelopt"])
def test_a_trained_model_shows_its_order_however_it_is_stored(
    converted: Callable[[str], Path], tmp_path: Path, scheme: str
) -> None:
    right = order_of(converted(scheme))
    assert right is not None and right.verdict == "right"
    assert right.strength > 50 and abs(right.exchanged) < 4
    swapped = order_of(variant(converted(scheme), tmp_path / "swapped", swap_nibbles))
    assert swapped is not None and swapped.verdict == "swapped"
    assert swapped.exchanged > 50 and abs(swapped.strength) < 4


def test_one_layer_and_no_plain_embedding_are_enough(converted: Callable[[str], Path], tmp_path: Path) -> None:
    def less(name: str, values: Array) -> Array | None:
        kept = name.startswith("model.layers.0.") or name.endswith("norm.weight")
        return swap_nibbles(name, values) if kept else None

    found = order_of(variant(converted("nvfp4"), tmp_path / "less", less))
    assert found is not None and found.verdict == "swapped"


def test_random_weights_tell_nothing(tmp_path: Path) -> None:
    original = write_tiny_checkpoint(tmp_path / "tiny")
    convert(Request(original, tmp_path / "made", jobs=1))
    for directory in (tmp_path / "made", variant(tmp_path / "made", tmp_path / "swapped", swap_nibbles)):
        found = order_of(directory)
        assert found is not None and found.verdict == "unseen"
        assert abs(found.strength) < 5 and abs(found.exchanged) < 5


def test_fp8_and_plain_weights_have_no_nibbles(original: Path, converted: Callable[[str], Path]) -> None:
    assert order_of(converted("fp8-block")) is None
    assert order_of(original) is None


def cosines(vectors: Array) -> Array:
    lengths = numpy.linalg.norm(vectors, axis=0)
    return (vectors.T @ vectors) / lengths / lengths[:, None]


def noise(kind: int) -> Array:
    """Vectors [any, channels] that have nothing to do with others of their kind."""
    shape = 256, 128
    values = RANDOM.standard_normal(shape)
    if kind == 1:
        return values * numpy.exp(RANDOM.standard_normal(shape[1]))
    if kind == 2:
        return RANDOM.standard_t(2, shape)
    if kind == 3:
        return RANDOM.standard_normal((shape[0], 4)) @ RANDOM.standard_normal((4, shape[1])) + 0.3 * values
    if kind == 4:
        return values + numpy.repeat(RANDOM.standard_normal((shape[0], shape[1] // 2)), 2, 1)
    return values


@pytest.mark.parametrize("kind", range(5))
def test_it_never_fires_on_what_has_no_order(kind: int) -> None:
    for _ in range(5):
        assert judge(cosines(noise(kind)), cosines(noise(kind))).verdict == "unseen"


@pytest.mark.parametrize(
    ("sign", "exchanged", "verdict"), [(1, 0, "right"), (-1, 0, "right"), (1, 1, "swapped"), (-1, 1, "swapped")]
)
def test_likeness_may_be_the_opposite_on_both_sides(sign: int, exchanged: int, verdict: str) -> None:
    shared = cosines(noise(3))
    other = sign * shared + 0.05 * cosines(noise(0))
    order = numpy.arange(len(shared)) ^ exchanged
    assert judge(shared[numpy.ix_(order, order)], other).verdict == verdict


def test_few_channels_and_constant_ones_tell_nothing() -> None:
    shared = cosines(noise(3))
    assert judge(shared[:32, :32], shared[:32, :32]).verdict == "unseen"
    assert judge(numpy.ones((128, 128)), shared).verdict == "unseen"
