"""A small checkpoint in two files, and a plan that makes another of it."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy

from onecat.nvfp4.rewriting import Contents, Made, Rewrite, Shard, SourceFiles, Step, open_source
from tests.safetensors_files import write_safetensors

FILES = ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")
ROWS = 8
Make = Callable[[SourceFiles], Contents]


def write_source(directory: Path, rows: int = ROWS) -> Path:
    """Write the checkpoint: of each file three weights of `rows` rows and one vector."""
    directory.mkdir(parents=True)
    random = numpy.random.default_rng(7)
    for number, file in enumerate(FILES):
        tensors = {
            f"layers.{number}.{name}": ("F32", (rows, 16), random.standard_normal((rows, 16), numpy.float32).tobytes())
            for name in "abc"
        }
        vector = random.standard_normal(16, numpy.float32).tobytes()
        write_safetensors(directory / file, {**tensors, f"layers.{number}.norm": ("F32", (16,), vector)})
    (directory / "config.json").write_text('{"model_type": "llama"}')
    (directory / "tokenizer.json").write_text('{"version": "1.0"}')
    (directory / "pooling").mkdir()
    (directory / "pooling/config.json").write_text("{}")
    return directory


def halved(name: str, seconds: float = 0.0) -> Make:
    """Half the weight in half precision, and the largest value of each row."""

    def make(source: SourceFiles) -> Contents:
        time.sleep(seconds)
        weight = source.read(name)
        half = numpy.empty(weight.shape, "<f2")
        numpy.multiply(weight, 0.5, out=half, casting="unsafe")  # without a second array in single precision
        return Contents([half, weight.max(axis=1)], {"largest": float(weight.max())})

    return make


def plan(
    source: Path,
    target: Path,
    *,
    identity: Mapping[str, Any] | None = None,
    makes: Mapping[str, Make] | None = None,
    seconds: float = 0.0,
    **options: Any,
) -> tuple[Rewrite, SourceFiles]:
    """The plan and what it reads. makes: by module, in place of `halved`. seconds: that each step takes longer."""
    read = open_source(source, FILES)
    shards = []
    for number, file in enumerate(FILES):
        steps = []
        for name in (f"layers.{number}.{each}" for each in "abc"):
            rows = read.tensors[name].shape[0]
            outputs = (Made(name, "F16", (rows, 16)), Made(f"{name}.rows", "F32", (rows,)))
            steps.append(Step(name, outputs, (name,), (makes or {}).get(name, halved(name, seconds))))
        norm = f"layers.{number}.norm"
        steps.insert(1, Step(norm, (Made(norm, "F32", (16,)),), (norm,)))
        shards.append(Shard(file, tuple(steps)))
    documents = {
        "config.json": '{"model_type": "llama", "half": true}\n',
        "model.safetensors.index.json": json.dumps({"weight_map": {}}),
    }
    copied = ("tokenizer.json", "pooling/config.json")
    return Rewrite(source, target, tuple(shards), documents, copied, identity or {"search": "mse"}, **options), read


def everything(directory: Path) -> dict[str, bytes]:
    """All files below a directory."""
    return {str(each.relative_to(directory)): each.read_bytes() for each in directory.rglob("*") if each.is_file()}
