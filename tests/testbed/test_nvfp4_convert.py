"""Converted checkpoints as the engine's own libraries read them, and the command killed and without room."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from onecat.checkpoints import TinyShape, describe, inspect, write_tiny_checkpoint
from onecat.checkpoints.quantization.matching import FUSED
from onecat.errors import ExitCode
from onecat.images.native import NativeRuntime
from onecat.nvfp4.codec import choose
from onecat.nvfp4.conversion import Request, convert
from onecat.nvfp4.conversion.fp8_formats import DeepseekFp8Block
from onecat.nvfp4.conversion.ignoring import unlisted
from onecat.nvfp4.conversion.matrices import matrices
from onecat.nvfp4.conversion.nvfp4_formats import CompressedTensorsNvfp4, ModeloptNvfp4
from onecat.nvfp4.conversion.planning import quantised_documents
from onecat.nvfp4.conversion.selection import select
from onecat.nvfp4.dequantisation import Target, open_original, plan_dequantisation
from onecat.nvfp4.rewriting import rewrite
from tests.testbed.command import Onecat, Result
from tests.testbed.forked_command import start
from tests.testbed.waiting import wait_until
from tests.unit.nvfp4.conversion.families import small, source

READS = Path(__file__).with_name("engine_reads.py")
FAMILIES = (
    "meta-llama/Llama-3.1-8B",
    "Qwen/Qwen3-VL-30B-A3B-Instruct",
    "deepseek-ai/DeepSeek-V3",
    "google/gemma-3-4b-it",
    "Qwen/Qwen3-Next-80B-A3B-Instruct",
    "Qwen/Qwen3.6-35B-A3B",
    "openai/gpt-oss-20b",
)
PARENTS = {shard: fused for fused, shards in FUSED.items() if fused != "w13" for shard in shards}


def engines_names(module: str) -> set[str]:
    """What vLLM calls a module: joined with others, and in its own place for the language model and the tower."""
    outer, _, last = module.rpartition(".")
    joined = f"{outer}.{PARENTS.get(last, last)}" if ".experts." not in module and outer else module
    moved = joined.replace("model.language_model.", "language_model.model.").replace("model.visual.", "visual.")
    return {joined, moved}


def question(family: str, flavour: str) -> dict[str, Any]:
    """What the engine's own configuration class is asked about a family."""
    form = {
        "compressed-tensors": lambda: CompressedTensorsNvfp4(choose(1), "minmax"),
        "modelopt": lambda: ModeloptNvfp4(choose(1), "minmax"),
        "fp8": lambda: DeepseekFp8Block(choose(1)),
    }[flavour]()
    config = small(family)
    selection = select(matrices(describe(config), config, source(config)), form)
    stated = quantised_documents(form, config, selection)["config.json"]["quantization_config"]
    beside = unlisted(selection.left)
    left = {each.matrix.module for each in selection.left if each.matrix.module not in beside}
    if flavour == "fp8":  # its names are mapped one by one, and those of experts asked for in another way
        names = [set(selection.modules), left]
        quantised, left = ({each for each in those if ".experts" not in each} for those in names)
    else:
        quantised = {name for module in selection.modules for name in engines_names(module)}
        left = {name for module in left for name in engines_names(module)}
    fused = {**FUSED, **({"in_proj_ba": ["in_proj_ba"]} if "Qwen3-Next" in family else {})}
    return {"flavour": flavour, "config": stated, "fused": fused, "quantised": sorted(quantised), "left": sorted(left)}


@pytest.mark.engine
def test_the_engines_own_libraries_read_what_onecat_writes(engine_runtime: NativeRuntime, tmp_path: Path) -> None:
    shape = TinyShape(256, 512, layers=2, attention_heads=4, key_value_heads=2, head_dim=64)
    plain = write_tiny_checkpoint(tmp_path / "plain", shape)
    pairs = []
    for scheme in ("nvfp4", "fp8-block"):
        convert(Request(plain, tmp_path / scheme, scheme=scheme))
        original = open_original(tmp_path / scheme)
        twin = plan_dequantisation(original, Target(tmp_path / f"{scheme}-twin", "float32"), choose())
        rewrite(twin.rewrite, original.source)
        pairs.append([str(tmp_path / scheme), str(tmp_path / f"{scheme}-twin")])
    flavours = ("compressed-tensors", "modelopt", "fp8")
    questions = [question(family, flavour) for family in FAMILIES for flavour in flavours]
    done = subprocess.run(
        [engine_runtime.python, "-P", READS],
        input=json.dumps({"load": pairs, "lists": questions}),
        capture_output=True,
        text=True,
        timeout=300,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    answer = json.loads(done.stdout)
    nvfp4, fp8 = answer["load"]
    assert nvfp4["format"] == "nvfp4-pack-quantized" and fp8["format"] == "float-quantized"
    for each in (nvfp4, fp8):
        assert each["status"] == "compressed" and each["names"]
    assert nvfp4["worst"] < 2**-7  # it decompresses in bfloat16
    assert fp8["worst"] == 0
    asked = [f"{family} {flavour}" for family in FAMILIES for flavour in flavours]
    assert {name: wrong for name, wrong in zip(asked, answer["lists"], strict=True) if wrong} == {}


def interrupted(argv: list[str], environment: dict[str, str], seconds: float, how: signal.Signals) -> int:
    """Run a command, send it a signal some seconds after it has begun to write, and return its exit code."""
    target = argv[argv.index("convert") + 2]
    process = start(argv, environment, ("onecat.nvfp4.conversion", "onecat.render.conversions"))
    assert process.pid is not None
    wait_until(lambda: not process.is_alive() or _writes(process.pid, target), 60)
    process.join(seconds)
    if process.exitcode is None:
        os.kill(process.pid, how)
    process.join(60)
    assert process.exitcode is not None
    return process.exitcode


def _writes(process: int, directory: str) -> bool:
    """Whether a process has a file below a directory open."""
    with contextlib.suppress(FileNotFoundError):
        return any(
            str(each.readlink()).startswith(f"{directory}/") for each in Path("/proc", str(process), "fd").iterdir()
        )
    return False


def files(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir() if path.is_file()}


def test_killed_at_ten_moments_the_same_command_ends_with_the_same_bytes(onecat: Onecat, tmp_path: Path) -> None:
    plain = write_tiny_checkpoint(tmp_path / "plain", TinyShape(512, 2048, layers=4, head_dim=128))
    onecat("model", "convert", plain, tmp_path / "whole").expect(0)
    expected = files(tmp_path / "whole")
    argv, moments, codes = onecat.argv("model", "convert", plain, tmp_path / "made"), random.Random(7), []
    for _ in range(10):
        codes.append(interrupted(argv, onecat.environment(), moments.uniform(0, 0.3), signal.SIGKILL))
        if (tmp_path / "made" / "config.json").exists():  # the last thing that is put there
            assert files(tmp_path / "made") == expected
            shutil.rmtree(tmp_path / "made")
    assert codes.count(-signal.SIGKILL) >= 5
    assert interrupted(argv, onecat.environment(), 0.0, signal.SIGINT) == 130
    onecat("model", "convert", plain, tmp_path / "made").expect(0)
    assert files(tmp_path / "made") == expected


def test_a_full_disk_and_forbidden_places_end_in_words(
    onecat: Onecat, tmp_path: Path, small_disk: Callable[[int], Path], run_unprivileged: Callable[..., Result]
) -> None:
    plain = write_tiny_checkpoint(tmp_path / "plain", TinyShape(256, 1024, layers=4))
    full = onecat("model", "convert", plain, small_disk(1) / "made", "--json").expect(ExitCode.NO).json()
    assert full["schema"] == "onecat.error/1" and full["found"].startswith("not enough room")
    with tempfile.TemporaryDirectory() as open_to_all:
        Path(open_to_all).chmod(0o755)
        readable = shutil.copytree(plain, Path(open_to_all, "plain"))
        argv = onecat.argv("model", "convert", readable, Path(open_to_all, "made"))
        forbidden = run_unprivileged(argv, env={**onecat.environment(), "ONECAT_HOME": "/nonexistent"})
    assert forbidden.code == ExitCode.USAGE and "you may not write" in forbidden.stderr
    assert "Traceback" not in forbidden.stderr
    report = tmp_path / "report.json"
    done = onecat("model", "convert", plain, tmp_path / "made", "--report", report).expect(0)
    assert all(len(line) <= 80 or str(tmp_path) in line for line in done.stdout.splitlines())
    assert "\x1b" not in done.stdout + done.stderr
    told = json.loads(report.read_text())
    assert told["schema"] == "onecat.model-convert/1" and len(told["modules"]) == 28
    assert told["bytes_after"] == inspect(tmp_path / "made").weight_bytes
