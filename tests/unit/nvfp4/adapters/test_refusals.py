"""Adapters that do not fit are refused with the names of their tensors, and nothing is written."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy
import pytest
from numpy.typing import NDArray

from onecat.errors import OnecatError
from onecat.nvfp4.adapters import Request, repack
from tests.unit.nvfp4.adapters.lora_files import factors, write_adapter, write_tensors

Array = NDArray[Any]
UP = "model.layers.0.mlp.up_proj"
EMBEDDING = "model.embed_tokens"


def ones(*shape: int) -> Array:
    return numpy.ones(shape, numpy.float32)


BASE = {
    f"{EMBEDDING}.weight": ones(40, 32),
    f"{UP}.weight": ones(48, 32),
    f"{UP}.bias": ones(48),
    "model.layers.0.mlp.down_proj.weight": numpy.zeros((32, 48), ml_dtypes.float8_e4m3fn),
    "model.layers.0.mlp.down_proj.weight_scale": ones(1),
    "model.layers.0.mlp.gate_proj.qweight": numpy.zeros((4, 48), numpy.int32),
    "model.layers.0.mlp.gate_proj.weight_scale": ones(1),
    "model.norm.weight": ones(32),
}


@pytest.fixture
def try_to_merge(tmp_path: Path) -> Callable[..., OnecatError]:
    """Gives the error of merging an adapter of these tensors."""
    base = tmp_path / "base"
    base.mkdir()
    write_tensors(base / "model.safetensors", BASE)

    def merge(tensors: dict[str, Array], tied: bool = False, **settings: Any) -> OnecatError:
        config = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "tie_word_embeddings": tied}
        (base / "config.json").write_text(json.dumps(config))
        adapter = write_adapter(tmp_path / "adapter", tensors, **settings)
        with pytest.raises(OnecatError) as caught:
            repack(Request(base, adapter, tmp_path / "out"))
        assert not (tmp_path / "out").exists()
        assert caught.value.next_steps
        return caught.value

    return merge


UP_FACTORS = factors(UP, 48, 32, 0.1)
FIRST, SECOND = UP_FACTORS


@pytest.mark.parametrize(
    ("tensors", "settings", "told"),
    [
        (factors("model.layers.9.mlp.up_proj", 48, 32, 0.1), {}, ["up_proj.lora_A.weight: the base has no such"]),
        (factors(UP, 64, 32, 0.1), {}, ["lora_B.weight: is [64, 4]", "[48, 32] with rank 4 takes [48, 4]"]),
        (factors(UP, 48, 16, 0.1), {}, ["lora_A.weight: is [4, 16]", "takes [4, 32]"]),
        (UP_FACTORS, {"r": 8}, ["lora_A.weight: is [4, 32]", "with rank 8 takes [8, 32]"]),
        (UP_FACTORS, {"target_modules": ["down_proj"]}, ["leave this module out"]),
        (UP_FACTORS, {"exclude_modules": ["up_proj"], "target_modules": ["up_proj"]}, ["leave this module out"]),
        ({FIRST: UP_FACTORS[FIRST]}, {}, ["lora_A.weight: its other matrix is missing"]),
        ({SECOND: UP_FACTORS[SECOND]}, {}, ["lora_B.weight: its other matrix is missing"]),
        ({**UP_FACTORS, f"{UP}.lora_A.default.weight": ones(4, 32)}, {}, ["is the same part as"]),
        ({**UP_FACTORS, f"{UP}.lora_magnitude_vector": ones(48)}, {}, ["belongs to DoRA, and use_dora is not set"]),
        (UP_FACTORS, {"use_dora": True}, ["its lora_magnitude_vector is missing"]),
        ({**UP_FACTORS, f"{UP}.lora_magnitude_vector": ones(32)}, {"use_dora": True}, ["is [32]", "takes [48]"]),
        ({f"{UP}.lora_magnitude_vector": ones(48)}, {"use_dora": True}, ["its matrices are missing"]),
        ({**UP_FACTORS, f"{UP}.lora_B.bias": ones(48)}, {}, ["lora_bias is not set"]),
        ({**UP_FACTORS, f"{UP}.lora_B.bias": ones(32)}, {"lora_bias": True}, ["is [32]", "takes [48]"]),
        ({f"{UP}.bias": ones(32)}, {"bias": "all"}, ["is [32], and the base's", "up_proj.bias is [48]"]),
        ({"score.weight": ones(2, 32)}, {"modules_to_save": ["score"]}, ["the base has no tensor of that name"]),
        ({f"{EMBEDDING}.weight": ones(42, 32)}, {}, ["is [42, 32]", "model.embed_tokens.weight is [40, 32]"]),
        ({"model.norm.weight": ones(16)}, {}, ["is [16], and the base's model.norm.weight is [32]"]),
        (factors("model.layers.0.mlp.down_proj", 32, 48, 0.1), {}, ["states no block", "weight_scale: F32 [1]"]),
        (factors("model.layers.0.mlp.gate_proj", 48, 32, 0.1), {}, ["the base has no such module"]),
        ({f"{EMBEDDING}.token_adapter.trainable_tokens_delta": ones(2, 32)}, {}, ["does not say which rows"]),
        (
            {f"{EMBEDDING}.token_adapter.trainable_tokens_delta": ones(2, 32)},
            {"trainable_token_indices": [1, 40]},
            ["one above the 40"],
        ),
        (
            {f"{EMBEDDING}.token_adapter.trainable_tokens_delta": ones(2, 32)},
            {"trainable_token_indices": [1, 4, 5]},
            ["is [2, 32]", "takes [3, 32]"],
        ),
        ({name: each.astype(numpy.float64) for name, each in UP_FACTORS.items()}, {}, ["is F64, not F32"]),
        ({**UP_FACTORS, f"{UP}.lora_C.weight": ones(1)}, {}, ["lora_C.weight: the base has no tensor"]),
    ],
)  # fmt: skip
def test_names_the_tensors_and_their_shapes(
    tensors: dict[str, Array], settings: dict[str, Any], told: list[str], try_to_merge: Callable[..., OnecatError]
) -> None:
    error = try_to_merge(tensors, **settings)
    text = "\n".join(error.details)
    for each in told:
        assert each in text
    assert "of the adapter cannot be used with this base" in error.found


def test_refuses_several_adapters_in_one_file(try_to_merge: Callable[..., OnecatError]) -> None:
    tensors = {name.replace(".weight", ".one.weight"): each for name, each in UP_FACTORS.items()}
    error = try_to_merge({**tensors, f"{UP}.lora_A.two.weight": ones(4, 32)})
    assert "2 adapters: one, two" in error.found


@pytest.mark.parametrize(
    "tensors",
    [
        {"lm_head.weight": 2 * ones(40, 32)},
        factors("lm_head", 40, 32, 0.1),
        {f"{EMBEDDING}.weight": 2 * ones(40, 32)},
        {f"{EMBEDDING}.lora_embedding_A": ones(4, 40), f"{EMBEDDING}.lora_embedding_B": ones(32, 4)},
        {f"{EMBEDDING}.weight": 2 * ones(40, 32), "lm_head.weight": 3 * ones(40, 32)},
    ],
)
def test_refuses_what_would_untie_the_output_head(
    tensors: dict[str, Array], try_to_merge: Callable[..., OnecatError]
) -> None:
    error = try_to_merge(tensors, tied=True)
    assert any("output head" in line for line in error.details)


def test_says_which_values_are_not_finite(try_to_merge: Callable[..., OnecatError], tmp_path: Path) -> None:
    broken = UP_FACTORS[FIRST].copy()
    broken[1, 2] = numpy.nan
    adapter = write_adapter(tmp_path / "broken", {**UP_FACTORS, FIRST: broken})
    (tmp_path / "base" / "config.json").write_text('{"model_type": "llama", "architectures": ["LlamaForCausalLM"]}')
    with pytest.raises(OnecatError) as caught:
        repack(Request(tmp_path / "base", adapter, tmp_path / "out"))
    assert f"{FIRST} of the adapter holds NaN" in caught.value.found
    assert not (tmp_path / "out" / "config.json").exists()


def make_other_than_an_adapter(kind: str, directory: Path) -> Path:
    directory.mkdir()
    if kind == "pickled":
        (directory / "adapter_config.json").write_text('{"peft_type": "LORA"}')
        (directory / "adapter_model.bin").write_bytes(b"\x80\x02.")
    elif kind == "no tensors":
        (directory / "adapter_config.json").write_text('{"peft_type": "LORA"}')
        write_tensors(directory / "adapter_model.safetensors", {})
    elif kind == "no file":
        (directory / "adapter_config.json").write_text('{"peft_type": "LORA"}')
    elif kind == "cut":
        write_adapter(directory / "whole", UP_FACTORS)
        directory = directory / "whole"
        content = (directory / "adapter_model.safetensors").read_bytes()
        (directory / "adapter_model.safetensors").write_bytes(content[:-7])
    elif kind == "not JSON":
        (directory / "adapter_config.json").write_text("{")
    elif kind == "inner":
        write_adapter(directory / "checkpoint-5", UP_FACTORS)
    elif kind == "absent":
        return directory / "nowhere"
    return directory


@pytest.mark.parametrize(
    ("kind", "told"),
    [
        ("pickled", "reading it runs code"), ("no tensors", "holds no tensor"), ("no file", "has no adapter_model"),
        ("cut", "is cut off"), ("not JSON", "not valid JSON"), ("inner", "no adapter of PEFT"),
        ("absent", "does not exist"), ("empty", "no adapter of PEFT"),
    ],
)  # fmt: skip
def test_says_why_a_directory_is_no_adapter(kind: str, told: str, tmp_path: Path) -> None:
    base = tmp_path / "base"
    base.mkdir()
    write_tensors(base / "model.safetensors", BASE)
    (base / "config.json").write_text('{"model_type": "llama", "architectures": ["LlamaForCausalLM"]}')
    with pytest.raises(OnecatError, match=told) as caught:
        repack(Request(base, make_other_than_an_adapter(kind, tmp_path / "adapter"), tmp_path / "out"))
    assert not (tmp_path / "out").exists()
    if kind == "inner":
        assert "checkpoint-5" in caught.value.next_steps[0]


def test_knows_a_base_and_an_adapter_in_the_wrong_order(tmp_path: Path) -> None:
    adapter = write_adapter(tmp_path / "adapter", UP_FACTORS)
    with pytest.raises(OnecatError, match="is an adapter, not a base"):
        repack(Request(adapter, tmp_path / "base", tmp_path / "out"))
    with pytest.raises(OnecatError, match="is a directory that is read"):
        repack(Request(tmp_path / "base", adapter, adapter))
