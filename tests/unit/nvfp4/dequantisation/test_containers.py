"""Every container that the testbed makes becomes the values that its codes mean by the formats' definitions."""

from __future__ import annotations

import json
from pathlib import Path

import numpy
import pytest
from safetensors.numpy import load_file

from onecat.nvfp4.codec import choose
from onecat.nvfp4.dequantisation import Target, open_original, plan_dequantisation
from onecat.nvfp4.rewriting import rewrite
from tests.testbed.quantised_checkpoints import FORMS, write


@pytest.mark.parametrize("form", FORMS)
def test_values_are_those_of_the_twin(form: str, tmp_path: Path) -> None:
    original = open_original(write(tmp_path, form))
    plan = plan_dequantisation(original, Target(tmp_path / "plain"), choose())
    rewrite(plan.rewrite, original.source)
    made = load_file(tmp_path / "plain" / "model.safetensors")
    expected = load_file(tmp_path / f"{form}-twin" / "model.safetensors")
    assert made.keys() == expected.keys()
    assert sum(plan.modules.values()) == 14
    for name, values in expected.items():
        assert made[name].dtype == values.dtype == numpy.float32
        # The twin multiplies with the reciprocal of compressed-tensors' scale; that is one more rounding.
        numpy.testing.assert_array_max_ulp(made[name], values, maxulp=2)


@pytest.mark.parametrize("form", FORMS)
def test_nothing_says_that_it_is_quantised(form: str, tmp_path: Path) -> None:
    original = open_original(write(tmp_path, form))
    plan = plan_dequantisation(original, Target(tmp_path / "plain", "float16"), choose())
    rewrite(plan.rewrite, original.source)
    config = json.loads((tmp_path / "plain" / "config.json").read_text())
    assert "quantization_config" not in config and config["torch_dtype"] == "float16"
    assert {path.name for path in (tmp_path / "plain").iterdir() if path.is_file()} == {
        *("config.json", "generation_config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json")
    }
    assert {values.dtype for values in load_file(tmp_path / "plain" / "model.safetensors").values()} == {
        numpy.dtype(numpy.float16)
    }
