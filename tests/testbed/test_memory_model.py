"""The memory model against a real vLLM for the CPU: what it loads, and how it divides its KV cache, to the byte."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from onecat.checkpoints import Checkpoint, inspect
from onecat.checkpoints.architectures import Architecture, KeyValueLayers
from onecat.images import NativeRuntime
from onecat.planner.memory import Device, MemorySettings, resolved_settings
from onecat.planner.memory.kv_cache import kv_capacity, needed_for
from onecat.planner.memory.kv_cache.capacity import division_of
from onecat.planner.memory.stages import stage_layers
from onecat.planner.memory.weights import rotary_bytes, weight_bytes
from tests.testbed.memory.checkpoints import CONFIGURATIONS, write_checkpoint
from tests.testbed.memory.specs import workers_of
from tests.unit.planner.memory.kv_examples import GIB
from tests.unit.planner.memory.kv_questions import QUESTIONS, Question

pytestmark = pytest.mark.engine

PROGRAM = Path(__file__).parent / "memory" / "ask.py"
HOST = Device(None, 16 * GIB)
LENGTH = 1024
WITHOUT_LATENT = {"VLLM_MLA_DISABLE": "1"}
"""vLLM has no latent attention for CPUs: such a model keeps keys and values there."""


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("models")
    return {name: write_checkpoint(name, folder / name) for name in CONFIGURATIONS}


@pytest.fixture(scope="module")
def engine(
    engine_runtime: NativeRuntime, models: dict[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, dict[str, dict[str, Any]]]:
    """All answers of one engine process: importing it takes longer than all that it is asked."""
    arguments = {
        "dtype": "bfloat16", "enforce_eager": True, "skip_tokenizer_init": True, "max_model_len": LENGTH,
        "max_num_seqs": 4, "max_num_batched_tokens": LENGTH,
    }  # fmt: skip
    loaded = [
        {
            "path": str(path),
            "arguments": arguments,
            "environment": WITHOUT_LATENT if "kv_lora_rank" in CONFIGURATIONS[name] else {},
        }
        for name, path in models.items()
    ]
    request = {"models": loaded, "layers": [_request(each) for each in QUESTIONS.values()]}
    home = tmp_path_factory.mktemp("engine")
    done = subprocess.run(
        [str(engine_runtime.python), str(PROGRAM)], input=json.dumps(request),
        env={"HOME": str(home), "PATH": os.environ["PATH"]}, cwd=home, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-4000:]
    answers = json.loads(done.stdout)
    return {
        "models": dict(zip(models, answers["models"], strict=True)),
        "layers": dict(zip(QUESTIONS, answers["layers"], strict=True)),
    }


def _request(asked: Question) -> dict[str, Any]:
    stages = stage_layers(asked.architecture, asked.settings.pipeline_parallel)
    limits = division_of(asked.architecture, asked.settings, stages).limits
    return {
        "workers": workers_of(asked.architecture, asked.settings, stages),
        "available": asked.available,
        "settings": {
            "max_model_len": asked.settings.max_model_len,
            "state_mode": limits.state_mode,
            "hybrid_manager": asked.settings.hybrid_manager,
            "encoder": limits.encoder,
            "in_flight": limits.in_flight,
        },
    }


def _on_cpu(checkpoint: Checkpoint) -> MemorySettings:
    flags = {"max-model-len": LENGTH, "max-num-seqs": 4, "max-num-batched-tokens": LENGTH, "dtype": "bfloat16"}
    return resolved_settings(flags, checkpoint.architecture, HOST, "0.27.1", platform="cpu")


def _as_keys_and_values(checkpoint: Checkpoint) -> Architecture:
    """Latent attention as the engine has it on CPUs: keys of both parts for each head, values padded to their size."""
    architecture = checkpoint.architecture
    if "kv_lora_rank" not in CONFIGURATIONS[Path(checkpoint.directory).name]:
        return architecture
    size = 32 + 32
    return architecture.replaced(caches=(KeyValueLayers(tuple(range(4)), 4, 4, size, size),))


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_it_holds_the_bytes_that_onecat_computes(
    name: str, models: dict[str, Path], engine: dict[str, dict[str, dict[str, Any]]]
) -> None:
    """Parameters and tables of sines; that it loaded them proves the names and shapes that onecat describes."""
    checkpoint, answer = inspect(models[name]), engine["models"][name]
    asked = _on_cpu(checkpoint)
    [stage] = stage_layers(checkpoint.architecture, 1)
    computed = weight_bytes(checkpoint, asked, stage, HOST)
    if name == "deepseek-v2":
        # Latent attention keeps the part of kv_b_proj for keys in a second form; the CPU's attention does not.
        computed -= sum(each.elements for each in checkpoint.architecture.weights if "kv_b_proj" in each.name) // 2 * 2
    assert answer["weights"] + answer["tables"] == computed
    assert answer["tables"] == rotary_bytes(checkpoint.architecture, asked)


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_its_kv_cache_is_divided_as_onecat_computes(
    name: str, models: dict[str, Path], engine: dict[str, dict[str, dict[str, Any]]]
) -> None:
    checkpoint, answer = inspect(models[name]), engine["models"][name]
    asked, architecture = _on_cpu(checkpoint), _as_keys_and_values(checkpoint)
    assert answer["prefix_caching"] == asked.prefix_caching
    assert answer["max_num_batched_tokens"] == asked.max_num_batched_tokens
    _compare(answer, Question(architecture, asked, tuple(answer["available"])))


@pytest.mark.parametrize("name", QUESTIONS)
def test_its_manager_divides_layers_as_onecat_does(name: str, engine: dict[str, dict[str, dict[str, Any]]]) -> None:
    """Models that no CPU runs: the engine's manager is given the records of their layers."""
    _compare(engine["layers"][name], QUESTIONS[name])


def _compare(answer: dict[str, Any], asked: Question) -> None:
    architecture, given = asked.architecture, asked.settings
    stages = stage_layers(architecture, given.pipeline_parallel)
    found = kv_capacity(architecture, given, stages, asked.available)
    assert found is not None
    # The engine looks no further than max_model_len.
    assert min(found.largest_max_model_len, given.max_model_len) == answer["largest"]
    assert list(needed_for(architecture, given, stages, given.max_model_len)) == answer["needed"]
    assert found.groups == answer["groups"]
    if answer["tokens"] is None:
        assert found.largest_max_model_len < given.max_model_len
        return
    assert (found.blocks, found.tokens) == (answer["blocks"], answer["tokens"])
    assert found.max_concurrency == answer["concurrency"]
