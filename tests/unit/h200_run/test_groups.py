"""The steps that the groups of the engine runs consist of, as the command line lists them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

TOOL = Path(__file__).resolve().parents[3] / "tools" / "h200_run" / "engine_runs.py"
GPU = "GPU 0: NVIDIA H200 (UUID: GPU-1)"


def listed(work: Path, *arguments: str, gpus: int = 1) -> list[str]:
    """Names of the steps, with an nvidia-smi that lists so many GPUs."""
    tools = work / "bin"
    tools.mkdir(parents=True, exist_ok=True)
    listing = "\n".join([GPU] * gpus)
    (tools / "nvidia-smi").write_text(f"#!/bin/sh\ncat <<END\n{listing}\nEND\n")
    (tools / "nvidia-smi").chmod(0o755)
    environment = {**os.environ, "H200_WORK": str(work), "PATH": f"{tools}:{os.environ['PATH']}"}
    command = [sys.executable, str(TOOL), *arguments, "--list"]
    output = subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout
    return [line.split()[0] for line in output.splitlines()]


def job(work: Path, name: str) -> dict[str, Any]:
    """A step's job file."""
    read: dict[str, Any] = json.loads((work / "jobs" / f"{name}.json").read_text())
    return read


def test_attention_is_compared_with_the_same_weights_and_upstreams_attention(tmp_path: Path) -> None:
    names = listed(tmp_path, "attention")
    assert len(names) == len(set(names))
    for model in ("qwen3.6", "gemma4", "llama-w4a16", "small-w4a16"):
        ours, theirs = job(tmp_path, f"{model}-attention"), job(tmp_path, f"{model}-volta")
        assert {f"{model}-attention", f"{model}-volta", f"{model}-attention-quad-pairs"} <= set(names)
        assert ours["references"] == {kind: [f"{model}-volta", kind] for kind in ("eager", "graphs")}
        assert ours["pieces"] == theirs["pieces"]
        for kind in ("eager", "graphs"):
            other = theirs["engines"][kind] | {"attention_backend": "CUSTOM"}
            assert other == ours["engines"][kind]
            assert theirs["engines"][kind]["attention_backend"] == "TRITON_ATTN"
    drafted = job(tmp_path, "llama-w4a16-attention-ngram")
    assert drafted["references"] == {"graphs": ["llama-w4a16-attention", "graphs"]}
    assert drafted["engines"]["graphs"]["speculative_config"]["method"] == "ngram"


def test_only_chooses_steps_by_pattern_and_leaves_what_prepares_them(tmp_path: Path) -> None:
    prepared = listed(tmp_path, "prepare")
    names = listed(tmp_path, "prepare", "texts", "cut", "--only", "small-fp8*", "gemma4*")
    assert names[: len(prepared)] == prepared
    chosen = {"small-fp8-volta", "small-fp8-plain", "gemma4-volta", "gemma4-plain", "gemma4-quad-pairs"}
    assert set(names[len(prepared) :]) == chosen


def test_several_gpus_are_used_only_where_they_are(tmp_path: Path) -> None:
    assert listed(tmp_path / "one", "gpus") == []
    names = listed(tmp_path / "two", "gpus", gpus=2)
    assert "small-w4a16-attention-tp2" in names
    assert "llama-w4a16-volta-pp2-no-p2p" in names
    lanes = {gpus: len(lanes_of(tmp_path / str(gpus), gpus)) for gpus in (1, 2)}
    assert lanes == {1: 1, 2: 2}


def lanes_of(work: Path, gpus: int) -> list[Any]:
    """Servers that are measured one after the other, for each GPU."""
    listed(work, "streams", gpus=gpus)
    lanes: list[Any] = job(work, "streams")["lanes"]
    return lanes
