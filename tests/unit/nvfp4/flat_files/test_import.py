"""What a flat file means, written by another hand and read back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some
from safetensors.numpy import load_file

from onecat.checkpoints import TinyShape, write_tiny_checkpoint
from onecat.errors import OnecatError
from onecat.nvfp4.dequantisation import Target
from onecat.nvfp4.flat_files import Import, is_flat, open_flat, plan_import, read_layout
from onecat.nvfp4.flat_files.layouts import CodeMeaning, FlatTensor, Layout, Order
from onecat.nvfp4.flat_files.lengths import look
from onecat.nvfp4.flat_files.weights import FlatWeight
from onecat.nvfp4.rewriting import SourceFiles, SourceTensor, rewrite
from tests.unit.cli.in_process import run_onecat
from tests.unit.nvfp4.flat_files.flat_writer import Array, write_flat

SHAPE = TinyShape(hidden_size=32, intermediate_size=64, layers=2, attention_heads=2, key_value_heads=1, head_dim=16)
GROUP = 16
E2M1 = [0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6]


def value(code: int, layout: Layout) -> float:
    """What a code is by the layout's words."""
    if layout.codes == "e2m1":
        return E2M1[code]
    if layout.codes == "signed":
        return code - 16 if code > 7 else code
    return code - layout.zero_point


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    rows=some.integers(1, 5), groups=some.integers(1, 4), size=some.sampled_from([8, 16, 24, 128]),
    meaning=some.sampled_from(["unsigned", "signed", "e2m1"]), order=some.sampled_from(["low-first", "high-first"]),
    zero=some.sampled_from([0, 7.5, 8, 15]), seed=some.integers(0, 1000),
)  # fmt: skip
def test_codes_and_scales_come_back(
    rows: int, groups: int, size: int, meaning: CodeMeaning, order: Order, zero: float, seed: int, tmp_path: Path
) -> None:
    random = numpy.random.default_rng(seed)
    codes = random.integers(0, 16, (rows, groups * size))
    scales = random.uniform(-3, 3, (rows, groups)).astype(numpy.float16)
    path = write_flat(tmp_path, [codes], [scales], order=order)
    layout = Layout((FlatTensor("x", (rows, groups * size)),), size, meaning, zero, order)
    begin = 8 + 2 * scales.size
    source = SourceFiles(
        tmp_path,
        {
            "s": SourceTensor("model.bin", "F16", (scales.size,), 8, 2 * scales.size),
            "c": SourceTensor("model.bin", "U32", (codes.size // 8,), begin, codes.size // 2),
        },
        {},
    )
    assert path.stat().st_size == begin + codes.size // 2
    made = FlatWeight("x", (rows, groups * size), size, "s", "c", layout).contents(source, "F32")
    exact = numpy.array([[value(int(code), layout) for code in row] for row in codes])
    exact = exact * scales.astype(numpy.float64).repeat(size, axis=1)
    [array] = made.arrays
    assert array.dtype == numpy.float32
    numpy.testing.assert_allclose(array, exact, rtol=2.0**-24, atol=0)
    numpy.testing.assert_allclose(
        [made.measured["mean"], made.measured["deviation"]], [exact.mean(), exact.std()], rtol=1e-5, atol=1e-6
    )


def flat_model(directory: Path, *, header: bool = True) -> tuple[Path, dict[str, Array]]:
    """A model as a flat file with its configuration, and the values that it means; the model beside it."""
    original = write_tiny_checkpoint(directory / "original", SHAPE)
    weights = load_file(original / "model.safetensors")
    names = [
        f"model.layers.{layer}.{part}.weight" for layer in range(2)
        for part in (*(f"self_attn.{each}_proj" for each in "qkvo"), *(f"mlp.{e}_proj" for e in ("gate", "up", "down")))
    ]  # fmt: skip
    codes, scales, values = [], [], {}
    for name in names:
        blocks = weights[name].reshape(weights[name].shape[0], -1, GROUP)
        scale = (numpy.abs(blocks).max(axis=2) / 7).astype(numpy.float16)
        code = numpy.clip(numpy.rint(blocks / scale.astype(numpy.float32)[..., None]), -8, 7) + 8
        codes.append(code.reshape(weights[name].shape).astype(numpy.int64))
        scales.append(scale)
        values[name] = ((code - 8) * scale.astype(numpy.float32)[..., None]).reshape(weights[name].shape)
    write_flat(directory / "flat", codes, scales, header=header)
    (directory / "flat" / "config.json").write_bytes((original / "config.json").read_bytes())
    return directory / "flat", {**weights, **values}


def imported(place: Path, target: Path, **options: Any) -> Import:
    plan = plan_import(
        open_flat(place, options.get("layout"), options.get("rest")), Target(target, options.get("dtype"))
    )
    plan.require_whole()
    rewrite(plan.rewrite, plan.source)
    return plan


@pytest.mark.parametrize("header", [True, False])
def test_a_model_with_the_rest_of_the_original(header: bool, tmp_path: Path) -> None:
    place, values = flat_model(tmp_path, header=header)
    plan = imported(place, tmp_path / "plain", rest=tmp_path / "original")
    made = load_file(tmp_path / "plain" / "model.safetensors")
    assert made.keys() == values.keys() and plan.layout.group_size == GROUP
    assert (plan.flat, plan.kept, plan.dtype) == (14, len(values) - 14, "float32")
    for name, exact in values.items():
        numpy.testing.assert_array_equal(made[name], exact)
    assert (tmp_path / "plain" / "tokenizer.json").is_file()
    assert not (tmp_path / "plain" / "model.bin").exists()


def test_dequantize_reads_it_with_the_rest_beside_it(tmp_path: Path) -> None:
    place, values = flat_model(tmp_path)
    assert is_flat(place)
    done = run_onecat("model", "dequantize", str(place), str(tmp_path / "plain"))
    assert done.returncode == 1 and "7 tensors of the model would be missing" in done.stderr
    (place / "model.safetensors").write_bytes((tmp_path / "original" / "model.safetensors").read_bytes())
    assert not is_flat(place)
    done = run_onecat("model", "import-bin", str(place), str(tmp_path / "plain"), "--json", "--dtype", "float16")
    document = json.loads(done.stdout)
    assert (done.returncode, document["suspicious"], document["missing"]) == (0, [], [])
    made = load_file(tmp_path / "plain" / "model.safetensors")
    for name, exact in values.items():
        numpy.testing.assert_array_equal(made[name], exact.astype(numpy.float16))


def test_a_dry_run_prints_a_layout_that_can_be_used(tmp_path: Path) -> None:
    place, values = flat_model(tmp_path)
    done = run_onecat("model", "import-bin", str(place), "--dry-run", "--json")
    document = json.loads(done.stdout)
    assert done.returncode == 1 and len(document["missing"]) == 7
    file = place / "flat_layout.json"
    file.write_text(json.dumps(document["layout"]))
    assert read_layout(file) == open_flat(place).layout.__class__(**{**vars(open_flat(place).layout), "left_out": ()})
    imported(place, tmp_path / "plain", rest=tmp_path / "original")
    made = load_file(tmp_path / "plain" / "model.safetensors")
    assert all(numpy.array_equal(made[name], exact) for name, exact in values.items())


def test_a_wrong_zero_point_is_suspected(tmp_path: Path) -> None:
    place, _ = flat_model(tmp_path)
    (tmp_path / "layout.yaml").write_text("zero_point: 6\n")
    argv = ["import-bin", str(place), str(tmp_path / "plain"), "--rest", str(tmp_path / "original")]
    done = run_onecat("model", *argv, "--layout", str(tmp_path / "layout.yaml"))
    assert done.returncode == 0 and "the mean of 14 of 14 matrices is far from 0" in " ".join(done.stdout.split())
    assert max(map(len, done.stdout.splitlines())) <= max(80, len(str(tmp_path)) + 40)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("group_size: 12", "no multiple of 8"),
        ("group_size: true", "no multiple of 8"),
        ("codes: gray", "none of unsigned, signed, e2m1"),
        ("order: [1]", "none of low-first"),
        ("zero_point: .nan", "no number"),
        ("size: 3", "unknown fields: size"),
        ("tensors: {}", "no list"),
        ("tensors: [{name: a}]", r"tensors\[0\] without a name and a shape"),
        ("tensors: [{name: a, shape: [3]}]", r"shape of tensors\[0\]"),
        ("tensors: [{name: a, shape: [3, 0]}]", r"shape of tensors\[0\]"),
        ("tensors: [{name: a, shape: [1, 8]}, {name: a, shape: [1, 8]}]", "has a twice"),
        ("schema: other/1", "another schema"),
        ("- 1", "no fields"),
        ("{", "neither YAML nor JSON"),
    ],
)
def test_layouts_that_are_wrong(text: str, why: str, tmp_path: Path) -> None:
    (tmp_path / "layout.yaml").write_text(text)
    with pytest.raises(OnecatError, match=why):
        read_layout(tmp_path / "layout.yaml")


def test_scales_that_are_no_numbers(tmp_path: Path) -> None:
    place, _ = flat_model(tmp_path)
    path = place / "model.bin"
    content = bytearray(path.read_bytes())
    content[8:10] = numpy.array([numpy.nan], numpy.float16).tobytes()
    path.write_bytes(content)
    with pytest.raises(OnecatError, match="NaN or infinite"):
        imported(place, tmp_path / "plain", rest=tmp_path / "original")
    assert not (tmp_path / "plain" / "config.json").exists()


def test_without_a_configuration_nothing_is_made(tmp_path: Path) -> None:
    place, _ = flat_model(tmp_path)
    (place / "config.json").unlink()
    with pytest.raises(OnecatError, match="no config.json"):
        imported(place, tmp_path / "plain")
    assert look(place / "model.bin").own_group_size == GROUP


def test_an_architecture_that_nobody_knows_needs_a_table(tmp_path: Path) -> None:
    place, _ = flat_model(tmp_path)
    (place / "config.json").write_text(json.dumps({"architectures": ["Nobody"], "torch_dtype": "float16"}))
    with pytest.raises(OnecatError, match="nothing says which tensors"):
        imported(place, tmp_path / "plain")


def test_the_rest_must_be_plain(tmp_path: Path) -> None:
    from tests.testbed.quantised_checkpoints import write

    place, _ = flat_model(tmp_path)
    with pytest.raises(OnecatError, match="is quantised itself"):
        imported(place, tmp_path / "plain", rest=write(tmp_path, "fp8-block"))
