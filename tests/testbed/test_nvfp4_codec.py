"""The codec against the real compressed-tensors, bit for bit, in both directions."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy
import pytest

from onecat.nvfp4.codec import Codec, Nvfp4, ScaledCodes, compiled, interpreted
from onecat.nvfp4.tensor_types import Array
from tests.nvfp4_weights import Case, random_weights, read_tensors, special_weights, write_tensors
from tests.testbed.cache import Cache

if TYPE_CHECKING:
    from onecat.images import NativeRuntime

PROGRAM = Path(__file__).parent / "nvfp4_codec" / "compressed_tensors_answers.py"
CASES = [*random_weights(), *special_weights()]
CODECS: dict[str, Callable[[int], Codec]] = {"numpy": interpreted, "numba": compiled}
BLOCKS = {"block": (128, 128), "channel": (1, 1 << 20), "tensor": (1 << 20, 1 << 20)}

Tensors = dict[str, Array]


def encode(codec: Codec, case: Case) -> Tensors:
    """What a checkpoint would hold of a weight in all schemes; FP8 has no scale that other tensors share."""
    scale = codec.global_scale(max(codec.largest(case.weight), case.largest))
    made = codec.nvfp4(case.weight, scale)
    stem = f"{case.name}.nvfp4"
    found = {
        f"{stem}.weight_packed": made.packed,
        f"{stem}.weight_scale": made.block_scale,
        f"{stem}.weight_global_scale": numpy.array([scale], numpy.float32),
    }
    for scheme, block in BLOCKS.items() if case.largest == 0 else ():
        coded = codec.fp8_block(case.weight, block)
        found[f"{case.name}.{scheme}.weight"] = coded.codes
        found[f"{case.name}.{scheme}.weight_scale"] = coded.scale.reshape(-1) if scheme == "tensor" else coded.scale
    return found


def decode(codec: Codec, case: Case, ours: Tensors) -> Iterator[tuple[str, Array]]:
    stem = f"{case.name}.nvfp4"
    made = Nvfp4(ours[f"{stem}.weight_packed"], ours[f"{stem}.weight_scale"])
    scale = float(ours[f"{stem}.weight_global_scale"][0])
    yield f"{stem}.decompressed", codec.nvfp4_values(made, 1.0, "BF16", scale)
    yield f"{stem}.decompressed32", codec.nvfp4_values(made, 1.0, "F32", scale)
    for scheme in BLOCKS if case.largest == 0 else ():
        coded = ScaledCodes(ours[f"{case.name}.{scheme}.weight"], ours[f"{case.name}.{scheme}.weight_scale"])
        block = BLOCKS["block"] if scheme == "block" else None
        yield f"{case.name}.{scheme}.decompressed32", codec.fp8_values(coded, block, "F32")


@pytest.fixture(scope="module", params=CODECS)
def codec(request: pytest.FixtureRequest, cache: Cache) -> Iterator[Codec]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ONECAT_CACHE", str(cache.folder("compiled")))
        yield CODECS[request.param](2)


@pytest.fixture(scope="module")
def ours() -> Tensors:
    """What the codec in numpy makes; that the other makes the same is a test of its own."""
    codec = interpreted(2)
    return {name: tensor for case in CASES for name, tensor in encode(codec, case).items()}


@pytest.fixture(scope="module")
def theirs(engine_runtime: NativeRuntime, ours: Tensors, tmp_path_factory: pytest.TempPathFactory) -> Tensors:
    """What compressed-tensors makes of the same weights, and of `ours`."""
    folder = tmp_path_factory.mktemp("codec")
    originals: Tensors = {}
    for case in CASES:
        schemes = ("nvfp4", *(BLOCKS if case.largest == 0 else ()))
        originals |= {f"{case.name}.{scheme}.weight": case.weight for scheme in schemes}
        if case.largest:
            originals[f"{case.name}.nvfp4.largest"] = numpy.array([case.largest], numpy.float32)
    write_tensors(folder / "originals.safetensors", originals)
    write_tensors(folder / "ours.safetensors", ours)
    # Compiling its rounding takes PyTorch a minute and changes no bit of it.
    environment = {**os.environ, "TORCHDYNAMO_DISABLE": "1", "OMP_NUM_THREADS": "2"}
    subprocess.run([engine_runtime.python, PROGRAM, folder], env=environment, check=True, timeout=300)
    return read_tensors(folder / "theirs.safetensors")


@pytest.mark.engine
def test_codes_and_scales_are_those_of_compressed_tensors(codec: Codec, theirs: Tensors) -> None:
    different, compared = [], 0
    for case in CASES:
        for name, tensor in encode(codec, case).items():
            compared += 1
            if tensor.shape != theirs[name].shape or tensor.tobytes() != theirs[name].tobytes():
                different.append(name)
    assert not different
    assert compared > 300


@pytest.mark.engine
def test_what_codes_mean_is_what_compressed_tensors_decompresses(codec: Codec, ours: Tensors, theirs: Tensors) -> None:
    different, compared = [], 0
    for case in CASES:
        for name, values in decode(codec, case, ours):
            # FP8 blocks at edges: compressed-tensors guesses other blocks than it made.
            if name not in theirs and name.endswith(".block.decompressed32"):
                continue
            compared += 1
            if values.shape != theirs[name].shape or values.tobytes() != theirs[name].tobytes():
                different.append(name)
    assert not different
    assert compared > 150


@pytest.mark.engine
def test_where_compressed_tensors_rounds_to_the_type_of_the_weight_it_differs(theirs: Tensors) -> None:
    """Given bfloat16 it rounds largest / 6 and the global scale to bfloat16, given float16 what it can to float16.

    The codec computes in float32 from weights of any type, so that a checkpoint does not depend on how a weight was
    stored. The difference is a rounding of block scales to a neighbour now and then.
    """
    for dtype in ("float16", "bfloat16"):
        stem = f"random {dtype} 256x512.nvfp4"
        wide, narrow = theirs[f"{stem}.weight_scale"], theirs[f"{stem}.weight_scale.narrow"]
        assert wide.shape == narrow.shape
        codes = wide.view(numpy.uint8).astype(int) - narrow.view(numpy.uint8)
        assert numpy.abs(codes).max() <= 1
        assert 0 <= (codes != 0).mean() < 0.1
        stored = theirs[f"{stem}.weight_global_scale"], theirs[f"{stem}.weight_global_scale.narrow"]
        assert stored[0] != stored[1] and abs(stored[0] / stored[1] - 1) < 2**-7


@pytest.mark.engine
def test_both_implementations_search_alike(codec: Codec) -> None:
    numpys = interpreted(1)
    for case in CASES:
        scale = numpys.best_global_scale(case.weight, "mse")
        assert codec.best_global_scale(case.weight, "mse") == scale
        for mine, other in (
            (codec.nvfp4(case.weight, scale, "mse"), numpys.nvfp4(case.weight, scale, "mse")),
            (codec.nvfp4_modelopt(case.weight, 1 / scale, "mse"), numpys.nvfp4_modelopt(case.weight, 1 / scale, "mse")),
            (codec.nvfp4_modelopt(case.weight, 1 / scale), numpys.nvfp4_modelopt(case.weight, 1 / scale)),
        ):
            assert mine.packed.tobytes() == other.packed.tobytes(), case.name
            assert mine.block_scale.tobytes() == other.block_scale.tobytes(), case.name
        for dtype in ("F16", "BF16", "F32"):
            assert codec.nvfp4_values(mine, scale, dtype).tobytes() == numpys.nvfp4_values(mine, scale, dtype).tobytes()
        found, exact = (each.nvfp4_deviation(case.weight, mine, 1 / scale) for each in (codec, numpys))
        assert found == pytest.approx(exact, rel=1e-12)
