"""Files, configuration and types of the plain checkpoint."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy
import pytest

from onecat.checkpoints.architectures.configuration import Configuration
from onecat.nvfp4.codec import choose
from onecat.nvfp4.dequantisation import Target, open_original, plan_dequantisation
from tests.unit.nvfp4.dequantisation.checkpoints import Array, checkpoint, dequantised, e4m3, scales

QUANTISED = {"quant_method": "fp8"}
FP8 = {"quantization_config": QUANTISED}


def layers(count: int) -> dict[str, Array]:
    tensors: dict[str, Array] = {"model.embed_tokens.weight": scales(64, 16, dtype=ml_dtypes.bfloat16)}
    for layer in range(count):
        stem = f"model.layers.{layer}.mlp.down_proj"
        # The scale lies before the codes in one layer, after them in the other.
        parts = {f"{stem}.weight": e4m3(32, 16), f"{stem}.weight_scale": scales(1)}
        tensors |= dict(reversed(parts.items())) if layer % 2 else parts
    return tensors


def test_several_files_and_their_index(tmp_path: Path) -> None:
    place = checkpoint(tmp_path / "c", layers(5), FP8)
    plan, made = dequantised(place, "bfloat16", shard_bytes=2 * 32 * 16 * 2)
    files = [f"model-{number:05d}-of-00004.safetensors" for number in range(1, 5)]
    assert [shard.file for shard in plan.rewrite.shards] == files
    target = tmp_path / "c-plain"
    index = json.loads((target / "model.safetensors.index.json").read_text())
    assert set(index["weight_map"]) == set(made) and set(index["weight_map"].values()) == set(files)
    assert index["metadata"]["total_size"] == sum(each.nbytes for each in made.values()) == plan.target_bytes
    whole = dequantised(place.rename(tmp_path / "whole"), "bfloat16")[1]
    assert list(made) == list(whole)
    assert all(made[name].tobytes() == whole[name].tobytes() for name in made)


def test_a_tensor_that_is_larger_than_a_file_has_one_of_its_own(tmp_path: Path) -> None:
    plan, _ = dequantised(checkpoint(tmp_path / "c", layers(2), FP8), "float32", shard_bytes=10)
    assert [len(shard.steps) for shard in plan.rewrite.shards] == [1, 1, 1]


def test_what_is_wider_than_the_model_stays(tmp_path: Path) -> None:
    tensors = layers(1)
    tensors["model.layers.0.mlp.gate.e_score_correction_bias"] = scales(4)
    tensors["model.norm.weight"] = numpy.ones(4, ml_dtypes.bfloat16)
    place = checkpoint(tmp_path / "c", tensors, FP8)
    for dtype in ("bfloat16", "float16", "float32"):
        place = place.rename(tmp_path / dtype)
        _, made = dequantised(place, dtype)
        assert made["model.layers.0.mlp.gate.e_score_correction_bias"].dtype == numpy.float32
        assert made["model.norm.weight"].dtype.name == made["model.layers.0.mlp.down_proj.weight"].dtype.name == dtype


@pytest.mark.parametrize(
    ("config", "dtype"),
    [
        ({"torch_dtype": "float16"}, "float16"),
        ({"torch_dtype": None, "dtype": "float32"}, "float32"),
        ({"torch_dtype": None, "text_config": {"dtype": "torch.float16"}}, "float16"),
        ({"torch_dtype": None}, "bfloat16"),
        ({"torch_dtype": "auto"}, "bfloat16"),
    ],
)
def test_the_models_own_type_is_the_default(config: dict[str, Any], dtype: str, tmp_path: Path) -> None:
    plan, made = dequantised(checkpoint(tmp_path / "c", layers(1), {**FP8, **config}), None)
    assert plan.dtype == dtype and made["model.layers.0.mlp.down_proj.weight"].dtype.name == dtype
    assert Configuration.of(json.loads((tmp_path / "c-plain" / "config.json").read_text())).dtype == dtype


def test_the_configuration_says_nothing_of_quantisation(tmp_path: Path) -> None:
    config = {
        "architectures": ["X"], "vision_config": {"dtype": "float32"}, "compression_config": {"a": 1},
        "text_config": {"dtype": "bfloat16", "quantization_config": QUANTISED, "layer_types": ["full"]}, **FP8,
    }  # fmt: skip
    place = checkpoint(tmp_path / "c", layers(1), config)
    for name in ("hf_quant_config.json", "recipe.yaml", "quant_config.json", "pytorch_model.bin", ".hidden"):
        (place / name).write_text("{}")
    (place / "LICENSE").write_text("free")
    dequantised(place, "float16")
    target = tmp_path / "c-plain"
    assert json.loads((target / "config.json").read_text()) == {
        "architectures": ["X"], "torch_dtype": "float16", "vision_config": {"dtype": "float32"},
        "text_config": {"dtype": "float16", "layer_types": ["full"]},
    }  # fmt: skip
    assert {path.name for path in target.iterdir() if path.is_file()} == {
        "config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "LICENSE",
        "model.safetensors",
    }  # fmt: skip


def test_a_plan_reads_no_weight_and_writes_nothing(tmp_path: Path) -> None:
    original = open_original(checkpoint(tmp_path / "c", layers(1), FP8))
    (tmp_path / "c" / "model.safetensors").unlink()
    plan = plan_dequantisation(original, Target(tmp_path / "new"), choose(1))
    assert plan.source_bytes == 64 * 16 * 2 + 32 * 16 + 4 and plan.target_bytes == 64 * 16 * 2 + 32 * 16 * 2
    assert not (tmp_path / "new").exists()
