"""The memory model against a real vLLM for the CPU: what it loads, and how it divides its KV cache, to the byte."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import dataclass
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
from tests.unit.planner.memory.kv_examples import (
    GIB,
    QWEN36_27B,
    QWEN36_35B,
    deepseek_v4_flash,
    dense,
    latent,
    settings,
    windowed,
)

pytestmark = pytest.mark.engine

PROGRAM = Path(__file__).parent / "memory" / "ask.py"
HOST = Device(None, 16 * GIB)
LENGTH = 1024
WITHOUT_LATENT = {"VLLM_MLA_DISABLE": "1"}
"""vLLM has no latent attention for CPUs: such a model keeps keys and values there."""


@dataclass(frozen=True)
class Question:
    """A made-up model, and the memory on each of its GPUs."""

    architecture: Architecture
    settings: MemorySettings
    available: tuple[int, ...]


def gemma4() -> Architecture:
    full, rest = tuple(range(5, 30, 6)), tuple(index for index in range(30) if index % 6 != 5)
    return Architecture(
        layers=30,
        caches=(KeyValueLayers(full, 16, 2, 512, 512), KeyValueLayers(rest, 16, 8, 256, 256, window=1024)),
    )


def llama4() -> Architecture:
    full, rest = tuple(range(3, 48, 4)), tuple(index for index in range(48) if index % 4 != 3)
    return Architecture(
        layers=48, caches=(KeyValueLayers(full, 40, 8, 128, 128), KeyValueLayers(rest, 40, 8, 128, 128, chunk=8192))
    )


def mimo() -> Architecture:
    full = (0, *range(5, 48, 6))
    rest = tuple(index for index in range(48) if index not in full)
    return Architecture(
        layers=48, caches=(KeyValueLayers(full, 64, 4, 192, 128), KeyValueLayers(rest, 64, 8, 192, 128, window=128))
    )


def whisper() -> Architecture:
    own = tuple(range(32))
    return Architecture(
        layers=32, caches=(KeyValueLayers(own, 20, 20, 64, 64), KeyValueLayers(own, 20, 20, 64, 64, cross=True))
    )


def question(architecture: Architecture, gib: float, **given: Any) -> Question:
    asked = settings(**{"max_model_len": 32768, **given})
    return Question(architecture, asked, (int(gib * GIB),) * asked.pipeline_parallel)


DRAFT = {"draft_layers": 1, "speculative_tokens": 3}
QUESTIONS = {
    "dense": question(dense(32, 32, 8, 128), 10),
    "dense, 8 ranks of 4 heads": question(dense(48, 32, 4, 128), 3.3, tensor_parallel=8),
    "dense, 3 stages": question(dense(32, 32, 8, 128), 5, pipeline_parallel=3),
    "nvfp4": question(dense(32, 32, 8, 128), 5, kv_cache_dtype="nvfp4"),
    "int8 by token and head": question(dense(32, 32, 8, 128), 5, kv_cache_dtype="int8_per_token_head"),
    "int4 by token and head": question(dense(32, 32, 8, 128), 5, kv_cache_dtype="int4_per_token_head"),
    "windows": question(windowed(30, 6, 1024), 5),
    "windows that do not divide evenly": question(windowed(62, 6, 1024), 8, max_model_len=131072),
    "windows, 2 stages": question(windowed(62, 6, 1024), 4, pipeline_parallel=2),
    "windows without the hybrid manager": question(windowed(30, 6, 1024), 5, hybrid_manager=False),
    "windows that are most of it": question(windowed(36, 2, 128, size=64), 2, max_model_len=131072),
    "too little": question(windowed(30, 6, 1024), 0.3, max_model_len=131072),
    "heads of two sizes": question(gemma4(), 10),
    "values smaller than keys": question(mimo(), 10, tensor_parallel=4, kv_cache_dtype="fp8"),
    "chunks": question(llama4(), 12, max_model_len=131072),
    "an encoder": question(whisper(), 3, max_model_len=448, max_num_batched_tokens=1500),
    "latent": question(latent(61, 512, 64), 30, tensor_parallel=8, capability=90),
    "latent in FP8": question(latent(61, 512, 64), 30, kv_cache_dtype="fp8", capability=90),
    "latent, 4 stages": question(latent(61, 512, 64), 7, pipeline_parallel=4),
    "sparse": question(latent(61, 512, 64, index=128), 30, kv_cache_dtype="fp8_ds_mla"),
    "sparse, 2 stages": question(latent(61, 512, 64, index=128), 30, kv_cache_dtype="fp8_ds_mla", pipeline_parallel=2),
    "compressed": question(deepseek_v4_flash(), 7.7, kv_cache_dtype="fp8"),
    "compressed, too little": question(deepseek_v4_flash(), 2, kv_cache_dtype="fp8"),
    "states": question(QWEN36_35B, 5.98, kv_cache_dtype="fp8"),
    "states, prefixes not kept": question(QWEN36_35B, 5.98, prefix_caching=False),
    "states and a draft": question(QWEN36_27B, 11.05, kv_cache_dtype="fp8_e5m2", tensor_parallel=2, **DRAFT),
    "states, 2 stages": question(QWEN36_27B, 4, pipeline_parallel=2),
    "states, scales by token and head": question(QWEN36_27B, 9, kv_cache_dtype="int8_per_token_head", **DRAFT),
}  # fmt: skip


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
        # The second form of kv_b_proj belongs to latent attention.
        computed -= sum(each.elements for each in checkpoint.architecture.weights if "kv_b_proj" in each.name) * 2
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
