"""`onecat model dequantize` as a person types it."""

from __future__ import annotations

import json
from pathlib import Path

from tests.unit.cli.in_process import run_onecat
from tests.unit.nvfp4.dequantisation.checkpoints import PROJECTION, checkpoint, e4m3, scales

FP8 = {"quantization_config": {"quant_method": "fp8"}}


def write(directory: Path) -> Path:
    stored = {"weight": e4m3(16, 32), "weight_scale": scales(1), "input_scale": scales(1)}
    return checkpoint(directory / "c", {f"{PROJECTION}.{part}": each for part, each in stored.items()}, FP8)


def test_a_plan_then_the_checkpoint(tmp_path: Path) -> None:
    argv = ("model", "dequantize", str(write(tmp_path)), str(tmp_path / "new"), "--dtype", "float16")
    planned = run_onecat(*argv, "--dry-run")
    assert planned.returncode == 0 and not (tmp_path / "new").exists()
    assert planned.stdout.splitlines() == [
        "1 module of fp8-tensor would become float16, beside 0 plain tensors",
        f"left out: 1 scale of activations or of the KV cache, as {PROJECTION}.input_scale",
        "520 B -> 1.02 kB in 1 weight file; nothing was written",
    ]
    done = run_onecat(*argv, "--json")
    document = json.loads(done.stdout)
    assert done.returncode == 0 and document.pop("seconds") >= 0
    assert document == {
        "schema": "onecat.model-dequantize/1", "source": str(tmp_path / "c"), "target": str(tmp_path / "new"),
        "dry_run": False, "dtype": "float16", "modules": {"fp8-tensor": 1}, "kept": 0,
        "dropped": [f"{PROJECTION}.input_scale"], "files": ["model.safetensors"], "source_bytes": 520,
        "target_bytes": 1024, "reused": [],
    }  # fmt: skip
    assert json.loads((tmp_path / "new" / "config.json").read_text())["torch_dtype"] == "float16"


def test_wrong_words(tmp_path: Path) -> None:
    place = write(tmp_path)
    for arguments, told in (
        (("--shard-size", "5XB"), "Invalid value for --shard-size: '5XB' is no size"),
        (("--shard-size", "0.4"), "no size above 0"),
        (("--dtype", "int8"), "one of: float16, bfloat16, float32"),
    ):
        done = run_onecat("model", "dequantize", str(place), str(tmp_path / "new"), *arguments)
        assert done.returncode == 2 and told in done.stderr and not (tmp_path / "new").exists()
    missing = run_onecat("model", "dequantize", str(tmp_path / "nothing"), str(tmp_path / "new"))
    assert missing.returncode == 2 and "nothing does not exist" in missing.stderr
