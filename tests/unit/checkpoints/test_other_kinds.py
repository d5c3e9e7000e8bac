"""Directories that people take for a checkpoint: each is told what it is and what to do, by inspect and by verify."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from onecat.checkpoints import inspect, write_tiny_checkpoint
from onecat.checkpoints.integrity import Request, verify
from onecat.checkpoints.other_kinds import other_kind
from onecat.pull.places import state_directory
from onecat.pull.state import PullState, write_state

REVISION = "a" * 40


def adapter(path: Path) -> None:
    path.mkdir()
    stated = {"peft_type": "LORA", "base_model_name_or_path": "org/base", "r": 16}
    (path / "adapter_config.json").write_text(json.dumps(stated))
    tiny = write_tiny_checkpoint(path / "tmp")
    (tiny / "model.safetensors").rename(path / "adapter_model.safetensors")
    shutil.rmtree(tiny)


def prompt_adapter(path: Path) -> None:
    adapter(path)
    (path / "adapter_config.json").write_text('{"peft_type": "PREFIX_TUNING"}')


def pipeline(path: Path) -> None:
    (path / "transformer").mkdir(parents=True)
    (path / "transformer" / "config.json").write_text("{}")
    (path / "model_index.json").write_text('{"_class_name": "FluxPipeline"}')


def hub_cache(path: Path) -> None:
    (path / "snapshots" / REVISION).mkdir(parents=True)
    (path / "snapshots" / ("b" * 40)).mkdir(parents=True)
    (path / "refs").mkdir()
    (path / "refs" / "main").write_text(REVISION)
    (path / "blobs").mkdir()


def gguf(path: Path) -> None:
    path.mkdir()
    for name in ("m-Q4_K_M.gguf", "m-Q8_0.gguf"):
        (path / name).write_bytes(b"GGUF\3\0\0\0")


def above(path: Path) -> None:
    write_tiny_checkpoint(path / "one")
    write_tiny_checkpoint(path / "two")


@pytest.mark.parametrize(
    ("make", "code", "told", "fix"),
    [
        (
            adapter,
            "adapter",
            "an adapter (LORA) for org/base",
            "serve org/base with --enable-lora --lora-modules NAME=",
        ),
        (prompt_adapter, "adapter", "an adapter (PREFIX_TUNING)", "merge it into its base model"),
        (pipeline, "diffusion-pipeline", "(FluxPipeline)", "diffusers"),
        (hub_cache, "hub-cache", "with 2 snapshots", f"/snapshots/{REVISION}"),
        (gguf, "gguf", "m-Q4_K_M.gguf, m-Q8_0.gguf", "llama-server -m "),
        (above, "directory-of-models", "2 models (one, two)", "/m/one"),
    ],
)
def test_what_no_engine_loads_is_one_failure_that_says_what_it_is(
    tmp_path: Path, make: Callable[[Path], None], code: str, told: str, fix: str
) -> None:
    make(tmp_path / "m")
    (problem,) = inspect(tmp_path / "m").problems
    assert (problem.code, problem.severity, problem.where) == (code, "fail", str(tmp_path / "m"))
    assert told in problem.text and fix in problem.fix
    faults = [each for each in verify(Request(tmp_path / "m")).faults if each.severity == "fail"]
    assert [(each.code, each.text, each.fix) for each in faults] == [(code, problem.text, problem.fix)]


def test_pickles_are_loaded_by_engines_and_told_by_their_size(tmp_path: Path) -> None:
    path = write_tiny_checkpoint(tmp_path / "m")
    weights = (path / "model.safetensors").rename(path / "pytorch_model.bin")
    (path / "training_args.bin").write_bytes(b"x")
    seen = inspect(path)
    assert [(each.code, each.severity) for each in seen.problems] == [("pickled-weights", "warn")]
    assert (seen.files, seen.weight_bytes) == (("pytorch_model.bin",), weights.stat().st_size)
    assert [(each.code, each.severity) for each in verify(Request(path)).faults] == [("pickled-weights", "warn")]


def test_mistrals_own_format_needs_no_config(tmp_path: Path) -> None:
    path = write_tiny_checkpoint(tmp_path / "m")
    (path / "model.safetensors").rename(path / "consolidated.safetensors")
    (path / "config.json").rename(path / "params.json")
    assert [(each.code, each.severity) for each in inspect(path).problems] == [("mistral-format", "info")]
    assert [(each.code, each.severity) for each in verify(Request(path)).faults] == [("mistral-format", "info")]


def test_a_checkpoint_is_no_other_kind_whatever_lies_beside_it(tmp_path: Path) -> None:
    path = write_tiny_checkpoint(tmp_path / "m")
    for name in ("adapter_config.json", "model_index.json", "params.json"):
        (path / name).write_text("{}")
    (path / "m.gguf").write_bytes(b"GGUF")
    (path / "pytorch_model.bin").write_bytes(b"x")
    (path / "onnx").mkdir()
    (path / "onnx" / "config.json").write_text("{}")
    (path / "snapshots").mkdir()
    assert other_kind(path) is None


def test_a_snapshot_of_links_is_a_checkpoint_and_a_link_to_nothing_is_told_once(tmp_path: Path) -> None:
    tiny = write_tiny_checkpoint(tmp_path / "tiny")
    blobs, snapshot = tmp_path / "hub" / "blobs", tmp_path / "hub" / "snapshots" / REVISION
    blobs.mkdir(parents=True)
    snapshot.mkdir(parents=True)
    for number, file in enumerate(sorted(tiny.iterdir())):
        shutil.copy(file, blobs / str(number))
        (snapshot / file.name).symlink_to(f"../../blobs/{number}")
    assert inspect(snapshot).problems == ()
    (snapshot / "model.safetensors").resolve().unlink()
    assert [(each.code, each.severity) for each in inspect(snapshot).problems] == [("dead-link", "fail")]
    faults = verify(Request(snapshot)).faults
    assert [each.code for each in faults if each.severity == "fail"] == ["dead-link"]


def test_a_shard_that_the_numbers_count_must_be_there_without_an_index_too(tmp_path: Path) -> None:
    path = write_tiny_checkpoint(tmp_path / "m")
    (path / "model.safetensors").rename(path / "model-00002-of-00003.safetensors")
    missing = [(each.code, Path(each.where).name) for each in inspect(path).problems]
    assert missing == [
        ("missing-shard", "model-00001-of-00003.safetensors"),
        ("missing-shard", "model-00003-of-00003.safetensors"),
    ]


def test_a_pull_that_has_not_ended_is_told_first(tmp_path: Path) -> None:
    path = write_tiny_checkpoint(tmp_path / "m")
    state_directory(path).mkdir()
    write_state(path, PullState("org/name", None, False, {}))
    (problem,) = inspect(path).problems
    assert (problem.code, problem.severity) == ("incomplete-download", "fail")
    assert "org/name" in problem.text and "onecat model pull" in problem.fix
    write_state(path, PullState("org/name", None, True, {}))
    assert inspect(path).problems == ()


@pytest.mark.parametrize("beside", [{}, {"quantization_config": {"group_size": 64, "bits": 4}}])
def test_what_mlx_packed_is_told_from_its_configuration_alone(tmp_path: Path, beside: dict[str, object]) -> None:
    path = write_tiny_checkpoint(tmp_path / "m") / "config.json"
    config = json.loads(path.read_text()) | {"quantization": {"group_size": 64, "bits": 4}, **beside}
    path.write_text(json.dumps(config))
    (problem,) = inspect(path).problems
    assert (problem.code, problem.severity) == ("mlx", "fail")
    assert "4 bits in groups of 64 as MLX" in problem.text
    config["quantization_config"] = {"quant_method": "gptq", "group_size": 64, "bits": 4}
    path.write_text(json.dumps(config))
    assert "mlx" not in [each.code for each in inspect(path).problems]
