"""Dequantised checkpoints hold what the tools that made the format say: compressed-tensors and transformers."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from onecat.checkpoints import TinyShape, write_tiny_checkpoint
from onecat.images import NativeRuntime
from tests.testbed import command, nvfp4_dequantisation
from tests.testbed.quantised_checkpoints import write

pytestmark = pytest.mark.testbed

PROGRAM = Path(nvfp4_dequantisation.__file__).with_name("library_answers.py")
SHAPE = TinyShape(hidden_size=256, intermediate_size=512, layers=1, head_dim=64)
"""compressed-tensors 0.17.0 takes a matrix of one block of columns for one with a scale for each row."""
MATRICES, WEIGHTS = 7, 12


def ask(runtime: NativeRuntime, question: dict[str, Any]) -> Any:
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    argv = [str(runtime.python), str(PROGRAM), json.dumps(question)]
    done = subprocess.run(argv, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-6000:]
    return json.loads(done.stdout)


def test_libraries_agree(onecat: command.Onecat, engine_runtime: NativeRuntime, tmp_path: Path) -> None:
    original = write_tiny_checkpoint(tmp_path / "original", SHAPE)
    for scheme, dtype in (("nvfp4", "bfloat16"), ("fp8-block", "float32")):
        quantised, target = str(tmp_path / scheme), str(tmp_path / f"{scheme}-{dtype}")
        onecat("model", "convert", str(original), quantised, "--scheme", scheme).expect(0)
        onecat("model", "dequantize", quantised, target, "--dtype", dtype).expect(0)
    written = write(tmp_path / "written", "nvfp4", seed=5)  # not by our convert
    onecat("model", "dequantize", str(written), str(tmp_path / "written-plain")).expect(0)

    nvfp4, fp8 = str(tmp_path / "nvfp4"), str(tmp_path / "fp8-block")
    answers = ask(
        engine_runtime,
        {
            # compressed-tensors decompresses NVFP4 into bfloat16 whatever is asked for, and FP8 by way of that type
            # unless it is asked for float32.
            "loaded": [[nvfp4, f"{nvfp4}-bfloat16", "bfloat16"], [fp8, f"{fp8}-float32", "float32"]],
            "decompressed": [
                [fp8, f"{fp8}-float32"],
                [str(written), str(tmp_path / "written-plain")],
            ],
            "tokens": [1, 2, 3, 200],
        },
    )
    assert answers["decompressed"] == [
        {"compared": MATRICES, "different": []},
        {"compared": 14, "different": []},
    ]
    for answer in answers["loaded"]:
        assert (answer["compared"], answer["different"]) == (WEIGHTS, [])
    # With FP8 the quantised model's activations are rounded too, so that only NVFP4 A16 answers alike.
    quantised, plain = answers["loaded"][0]["logits"]
    assert quantised == plain and len(set(plain)) > 10
