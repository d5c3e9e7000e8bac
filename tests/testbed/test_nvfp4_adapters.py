"""`onecat model repack` against the real PEFT: what it merges, and which modules its patterns mean."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy
import pytest
from safetensors.numpy import load_file

from onecat.nvfp4.adapters import Request, repack
from onecat.nvfp4.adapters.settings import pattern_of, read_settings
from onecat.nvfp4.adapters.targets import is_target
from tests.testbed.cache import Cache

if TYPE_CHECKING:
    from onecat.images import NativeRuntime

PACKAGES = ("peft==0.21.2", "accelerate==1.12.0")
"""1.2 MB without their dependencies, which the engine's environment has."""
PROGRAM = Path(__file__).with_name("peft_merge_program.py")

LINEAR = ["q_proj", "v_proj", "down_proj"]
CASES: dict[str, dict[str, Any]] = {
    "plain": {"base": "llama", "options": {"r": 4, "lora_alpha": 8, "target_modules": LINEAR}},
    "bfloat16": {"base": "llama", "dtype": "bfloat16", "options": {"r": 4, "target_modules": LINEAR}},
    "float16": {"base": "llama", "dtype": "float16", "options": {"r": 4, "target_modules": LINEAR}},
    "patterns": {
        "base": "llama",
        "options": {
            "r": 8, "lora_alpha": 16, "target_modules": "all-linear", "use_rslora": True,
            "rank_pattern": {"^model.layers.0.self_attn.q_proj": 2, r"layers\.1\..*\.v_proj": 3, "up_proj": 5, "k": 1},
            "alpha_pattern": {"k_proj": 32, ".*gate_proj": 1.5},
        },
    },
    "regex": {"base": "llama", "options": {"r": 2, "target_modules": r".*layers\.[01]\.mlp\.(gate|up)_proj"}},
    "layers": {
        "base": "llama",
        "options": {
            "r": 2, "target_modules": ["q_proj", "k_proj"], "layers_to_transform": [1], "layers_pattern": "layers",
            "exclude_modules": ["k_proj"],
        },
    },
    "dora": {
        "base": "llama",
        "options": {"r": 4, "lora_alpha": 8, "target_modules": ["q_proj", "embed_tokens"], "use_dora": True},
    },
    "embedding": {"base": "llama", "options": {"r": 4, "target_modules": ["embed_tokens", "o_proj", "lm_head"]}},
    "saved": {"base": "llama", "options": {"r": 4, "target_modules": LINEAR, "modules_to_save": ["lm_head", "norm"]}},
    "rows": {"base": "llama", "options": {"r": 4, "target_modules": LINEAR, "trainable_token_indices": [3, 95, 7]}},
    "tied-rows": {"base": "tied", "options": {"r": 4, "target_modules": LINEAR, "trainable_token_indices": [3, 95]}},
    "every-bias": {"base": "llama", "options": {"r": 4, "target_modules": ["q_proj"], "bias": "all"}},
    "own-bias": {"base": "llama", "options": {"r": 4, "target_modules": ["q_proj"], "bias": "lora_only"}},
    "factor-bias": {"base": "llama", "options": {"r": 4, "target_modules": ["q_proj"], "lora_bias": True}},
    "joined": {
        "base": "gpt2",
        "options": {"r": 4, "target_modules": ["c_attn", "c_proj"], "fan_in_fan_out": True},
    },
    "joined-dora": {
        "base": "gpt2",
        "options": {"r": 4, "target_modules": ["c_attn", "c_proj"], "fan_in_fan_out": False, "use_dora": True},
    },
}  # fmt: skip

MODULES = [
    "model.layers.0.self_attn.q_proj", "model.layers.1.self_attn.q_proj", "model.layers.11.mlp.up_proj",
    "model.layers.1.mlp.experts.11.up_proj", "model.vision.blocks.1.q_proj", "model.embed_tokens", "lm_head", "q_proj",
    "model.layers.1.self_attn.my_q_proj", "model.norm", "score",
]  # fmt: skip
TARGETS: list[dict[str, Any]] = [
    {"target_modules": ["q_proj"]},
    {"target_modules": ["model.layers.1.self_attn.q_proj", "up_proj"], "layers_to_transform": [0]},
    {"target_modules": ["q_proj", "up_proj"], "layers_to_transform": 1},
    {"target_modules": ["q_proj", "up_proj"], "layers_to_transform": [1, 11], "layers_pattern": ["blocks", "layers"]},
    {"target_modules": ["q_proj", "up_proj"], "layers_to_transform": [1], "layers_pattern": "experts"},
    {"target_modules": r".*\.q_proj"},
    {"target_modules": r".*q_proj", "exclude_modules": r".*vision.*"},
    {"target_modules": ["q_proj", "lm_head"], "exclude_modules": ["self_attn.q_proj"]},
    {"target_modules": ["q_proj", "lm_head", "norm"], "modules_to_save": ["lm_head", "norm", "self_attn"]},
]
PATTERNS = [
    ["q_proj", "self_attn.q_proj"], ["^q_proj", "proj"], [r".*\.up_proj", "up_proj"], ["layers.1.*"], ["lm_head$"],
]  # fmt: skip


@pytest.fixture(scope="module")
def peft_packages(cache: Cache) -> Path:
    """A folder with PEFT, kept between runs."""
    folder = cache.folder("peft") / "-".join(PACKAGES)
    if not folder.exists():
        partial = folder.with_name(f".{os.getpid()}")
        argv = [sys.executable, "-m", "pip", "install", "-qq", "--no-deps", "--target", str(partial), *PACKAGES]
        subprocess.run(argv, check=True)
        partial.rename(folder)
    return folder


@pytest.fixture(scope="module")
def merged_by_peft(
    engine_runtime: NativeRuntime, peft_packages: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, dict[str, Any]]:
    """Bases, adapters and merges of all cases, and PEFT's answers about names."""
    directory = tmp_path_factory.mktemp("peft")
    asked = {
        "directory": str(directory),
        "cases": CASES,
        "targets": [[options, MODULES] for options in TARGETS],
        "patterns": [[patterns, MODULES] for patterns in PATTERNS],
    }
    environment = {**os.environ, "PYTHONPATH": str(peft_packages), "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [str(engine_runtime.python), str(PROGRAM), json.dumps(asked)],
        env=environment, capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-6000:]
    return directory, json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("name", CASES)
def test_merges_what_peft_merges(name: str, merged_by_peft: tuple[Path, dict[str, Any]], tmp_path: Path) -> None:
    directory, _ = merged_by_peft
    base = directory / "bases" / CASES[name]["base"]
    outcome = repack(Request(base, directory / name / "adapter", tmp_path / "ours"))
    ours, theirs, before = (
        load_file(each / "model.safetensors") for each in (tmp_path / "ours", directory / name / "merged", base)
    )
    assert ours.keys() == theirs.keys() == before.keys()
    for tensor, values in theirs.items():
        largest = numpy.abs(values).max()
        # PEFT rounds products of 16-bit matrices to their type before it adds them.
        numpy.testing.assert_allclose(ours[tensor], values, rtol=0, atol=2e-6 * largest, err_msg=tensor)
    changed = {each for each, values in theirs.items() if not numpy.array_equal(values, before[each])}
    assert {each for each, values in ours.items() if not numpy.array_equal(values, before[each])} == changed
    assert changed
    assert all(each.kept == pytest.approx(1, abs=1e-4) for each in outcome.modules if each.kept is not None)


def test_means_the_modules_that_peft_means(merged_by_peft: tuple[Path, dict[str, Any]]) -> None:
    _, answers = merged_by_peft
    for options, theirs in zip(TARGETS, answers["targets"], strict=True):
        settings = read_settings({"peft_type": "LORA", **options}, "adapter_config.json")
        assert [is_target(settings, module) for module in MODULES] == theirs, options


def test_finds_the_pattern_that_peft_finds(merged_by_peft: tuple[Path, dict[str, Any]]) -> None:
    _, answers = merged_by_peft
    for patterns, theirs in zip(PATTERNS, answers["patterns"], strict=True):
        assert [pattern_of(dict.fromkeys(patterns, 1), module) for module in MODULES] == theirs
