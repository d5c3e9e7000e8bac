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
    plan = plan_dequantisation(original, Target(tmp_path / "plain"), choose(1))
    rewrite(plan.rewrite, original.source)
    made = load_file(tmp_path / "plain" / "model.safetensors")
    expected = load_file(tmp_path / f"{form}-twin" / "model.safetensors")
    assert made.keys() == expected.keys()
    assert sum(plan.modules.values()) == 14
    for name, values in expected.items():
        assert made[name].dtype == values.dtype == numpy.float32
        # The twin multiplies with the reciprocal of compressed-tensors' scale; that is one more rounding.
        numpy.testing.assert_array_max_ulp(made[name], values, maxulp=2)
    assert "quantization_config" not in json.loads((tmp_path / "plain" / "config.json").read_text())
    assert not (tmp_path / "plain" / "quant_config.json").exists()
