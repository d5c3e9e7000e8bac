"""Weights against those of the original: errors worked out by hand, and faults of tools found out."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path

import ml_dtypes
import numpy
import pytest

from onecat.checkpoints import write_tiny_checkpoint
from onecat.nvfp4.codec import choose
from onecat.nvfp4.comparison import Comparison, compare
from onecat.nvfp4.conversion import Request, convert
from onecat.nvfp4.dequantisation import open_original
from tests.unit.nvfp4.comparison.variants import Array, Change, opened, swap_nibbles, variant
from tests.unit.nvfp4.conversion import families

Converted = Callable[[str], Path]
CODEC = choose(1)


def against(directory: Path, original: Path) -> Comparison:
    return compare(open_original(directory), original, CODEC)


def told(found: Comparison) -> list[tuple[str, str]]:
    return [(fault.severity, fault.code) for fault in found.faults]


@pytest.mark.parametrize(
    ("scheme", "smallest", "largest"),
    [("nvfp4", 0.09, 0.097), ("fp8-block", 0.025, 0.027)],
)
def test_a_trained_model_has_the_usual_errors(
    original: Path, converted: Converted, scheme: str, smallest: float, largest: float
) -> None:
    found = against(converted(scheme), original)
    assert (len(found.modules), found.equal, found.rounded, found.faults) == (14, 7, 0, ())
    errors = [each.relative_error for each in found.modules]
    assert smallest < min(errors) and max(errors) < largest
    for each in found.modules:
        assert each.sqnr == pytest.approx(-20 * math.log10(each.relative_error))
        assert each.verdict == "usual"


def test_errors_are_those_that_the_conversion_told(original: Path, tmp_path: Path) -> None:
    done = convert(Request(original, tmp_path / "made", jobs=1))
    stated = {each.name: each.deviation for each in done.modules}
    for each in against(tmp_path / "made", original).modules:
        # The multiplier of engines is a reciprocal that was rounded; tools divide.
        assert each.relative_error == pytest.approx(math.sqrt(
            stated[each.name].squared_error / stated[each.name].squared_signal), rel=1e-4)  # fmt: skip


def only(ending: str, change: Callable[[Array], Array]) -> Change:
    return lambda name, values: change(values) if name.endswith(ending) else values


def swizzled(scales: Array) -> Array:
    """Element (r, c) of a tile of 128 x 4 lies at (r mod 32, r div 32, c)."""
    rows, columns = scales.shape
    found = numpy.empty_like(scales).reshape(-1)
    for r in range(rows):
        for c in range(columns):
            tile = (r // 128) * (columns // 4) + c // 4
            found[tile * 512 + (r % 32) * 16 + (r % 128) // 32 * 4 + c % 4] = scales[r, c]
    return found.reshape(scales.shape)


@pytest.mark.parametrize(
    ("scheme", "change", "cause"),
    [
        ("nvfp4", swap_nibbles, "the nibbles are swapped: the even column is in the high four bits"),
        ("nvfp4-modelopt", swap_nibbles, "the nibbles are swapped: the even column is in the high four bits"),
        (
            "nvfp4",
            only("weight_global_scale", lambda scale: 1 / scale),
            "the tensor scale is inverted: weight_global_scale holds a number that is meant to multiply "
            "(as ModelOpt's do)",
        ),
        (
            "nvfp4-modelopt",
            only("weight_scale_2", lambda scale: 1 / scale),
            "the tensor scale is inverted: weight_scale_2 holds a number that is meant to divide "
            "(as those of compressed-tensors do)",
        ),
        ("nvfp4-modelopt", only("weight_scale_2", lambda scale: scale * 3), "all values are about 3 times those"),
        ("nvfp4", only("weight_scale", swizzled), "the block scales lie in the order of NVIDIA's kernels"),
        ("nvfp4", only("weight_packed", lambda codes: codes ^ 0x88), "all signs are turned"),
        ("nvfp4", only("weight_packed", numpy.zeros_like), "all values are zero"),
        ("fp8-block", only("weight_scale", lambda scale: scale * 2), "all values are about 2 times those"),
    ],
)
def test_what_a_tool_did_wrong_is_found_out(
    original: Path, converted: Converted, tmp_path: Path, scheme: str, change: Change, cause: str
) -> None:
    found = against(variant(converted(scheme), tmp_path / "wrong", change), original)
    assert told(found) == [("fail", "far-from-original")]
    assert found.faults[0].text.startswith(f"14 modules of {scheme.removesuffix('-modelopt')}: {cause}")
    assert {each.verdict for each in found.modules} == {"wrong"}


def rotary(rows: Array) -> Array:
    """From halves to neighbours, in heads of 64."""
    return rows.reshape(-1, 2, 32, rows.shape[1]).swapaxes(1, 2).reshape(rows.shape)


def test_matrices_in_another_layout_are_found_out(original: Path, converted: Converted, tmp_path: Path) -> None:
    source = opened(converted("nvfp4"))

    def change(name: str, values: Array) -> Array:
        if ".layers.0.self_attn.q_proj.weight_" in name and values.ndim == 2:
            return rotary(values)
        if ".layers.1.mlp." in name and "down" not in name:
            there, here = ("gate", "up") if "gate" in name else ("up", "gate")
            return source.read(name.replace(there, here))
        return values

    found = against(variant(converted("nvfp4"), tmp_path / "wrong", change), original)
    assert {each.name.removeprefix("model.layers."): each.cause for each in found.modules if each.cause} == {
        "0.self_attn.q_proj": "the rows of heads are interleaved (Meta's rotary layout)",
        "1.mlp.gate_proj": "the module holds what the original has as up_proj",
        "1.mlp.up_proj": "the module holds what the original has as gate_proj",
    }


def test_another_model_is_told_with_what_was_tried(original: Path, converted: Converted, tmp_path: Path) -> None:
    random = numpy.random.default_rng(0)

    def change(name: str, values: Array) -> Array:
        if "layers.1.mlp.down_proj" in name:
            return random.permuted(values, axis=0)
        return numpy.float16(1.5) * values if name == "model.norm.weight" else values

    found = against(converted("nvfp4"), variant(original, tmp_path / "other", change))
    assert told(found) == [("fail", "far-from-original"), ("fail", "plain-differs")]
    wrong, norm = found.faults
    assert wrong.text.startswith("1 module of nvfp4: not the weights of the original: model.layers.1.mlp.down_proj")
    assert "swapped nibbles" in wrong.why
    # 1 / 1.5 - 1
    assert "model.norm.weight (33.33%)" in norm.text


def test_smoothed_columns_are_told_from_damage(original: Path, converted: Converted, tmp_path: Path) -> None:
    sizes = numpy.exp(numpy.random.default_rng(1).standard_normal(256) / 2)

    def smooth(name: str, values: Array) -> Array:
        return (values / sizes).astype(numpy.float16) if name.endswith("layers.1.self_attn.v_proj.weight") else values

    found = against(converted("nvfp4"), variant(original, tmp_path / "before", smooth))
    assert [each.cause for each in found.modules if each.verdict == "wrong"] == [
        "each column has another size, as smoothing leaves it (AWQ, SmoothQuant): the norm before it must be changed "
        "with it"
    ]


def test_what_is_missing_further_or_of_another_shape(original: Path, converted: Converted, tmp_path: Path) -> None:
    def change(name: str, values: Array) -> Array | None:
        if name.startswith("model.layers.1.mlp.down_proj"):
            return None
        return values[:1000] if name == "model.embed_tokens.weight" else values

    found = against(variant(converted("nvfp4"), tmp_path / "less", change), original)
    assert [(fault.code, fault.text) for fault in found.faults] == [
        ("missing-of-original", "has no model.layers.1.mlp.down_proj.weight of the original"),
        ("shape-of-original", "model.embed_tokens.weight is [1000, 256], not [1024, 256]"),
    ]
    less = variant(original, tmp_path / "small", lambda name, values: None if name == "lm_head.weight" else values)
    assert told(against(converted("nvfp4"), less)) == [("warn", "not-of-original")]
    tied = variant(converted("nvfp4"), tmp_path / "tied", lambda name, values: None if "lm_head" in name else values)
    config = json.loads((tied / "config.json").read_text())
    (tied / "config.json").write_text(json.dumps({**config, "tie_word_embeddings": True}))
    assert told(against(tied, original)) == []


def test_names_may_have_something_else_before_them(original: Path, converted: Converted, tmp_path: Path) -> None:
    source = opened(original)
    outer = {f"model.language_model.{name.removeprefix('model.')}": name for name in source if name != "lm_head.weight"}
    renamed = tmp_path / "renamed"
    renamed.mkdir()
    for each in original.iterdir():
        if each.suffix == ".json":
            (renamed / each.name).write_bytes(each.read_bytes())
    names = {**outer, "lm_head.weight": "lm_head.weight"}
    families.write_safetensors(
        renamed / "model.safetensors",
        {name: (source.tensors[old].dtype, list(source.tensors[old].shape), source.raw(old).tobytes())
         for name, old in names.items()},
    )  # fmt: skip
    found = against(converted("nvfp4"), renamed)
    assert (len(found.modules), found.equal, found.faults) == (14, 7, ())


def test_rounding_to_another_type_is_no_difference(tmp_path: Path) -> None:
    original = write_tiny_checkpoint(tmp_path / "original")
    source = opened(original)
    stored = {}
    for name, each in source.tensors.items():
        values = source.read(name).astype(ml_dtypes.bfloat16)
        if name == "model.norm.weight":
            # One step of bfloat16 further, at 1.
            values = values + ml_dtypes.bfloat16(2**-7)
        stored[name] = ("BF16", list(each.shape), values.tobytes())
    rounded = variant(original, tmp_path / "rounded", lambda name, values: values)
    families.write_safetensors(rounded / "model.safetensors", stored)
    found = against(rounded, original)
    assert (found.modules, found.equal, found.rounded) == ((), 0, len(stored) - 1)
    assert [fault.text for fault in found.faults] == ["is not as in the original: model.norm.weight (0.78%)"]


def test_experts_that_lie_in_one_tensor_of_the_original(tmp_path: Path) -> None:
    config = families.small(
        "meta-llama/Llama-4-Scout-17B-16E", hidden_size=64, intermediate_size=64, intermediate_size_mlp=64,
        vocab_size=256, num_hidden_layers=1, num_attention_heads=4, num_key_value_heads=2, head_dim=16,
    )  # fmt: skip
    original = families.write(tmp_path / "joint", config)
    convert(Request(original, tmp_path / "made", jobs=1))
    found = against(tmp_path / "made", original)
    assert found.faults == ()
    assert sum(".experts." in each.name for each in found.modules) == 3 * families.EXPERTS
    assert max(each.relative_error for each in found.modules) < 0.11
