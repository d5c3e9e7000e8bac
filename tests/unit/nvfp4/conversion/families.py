"""Published configurations made small, and checkpoints of random weights with the tensors that they describe."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy

from onecat.checkpoints import describe
from onecat.checkpoints.architectures import Architecture
from onecat.checkpoints.quantization.storage import stored_tensors
from onecat.checkpoints.tiny import tokenizer_files
from onecat.nvfp4.rewriting import SourceFiles, SourceTensor
from tests.safetensors_files import write_safetensors

_PUBLISHED = Path(__file__).parents[2] / "checkpoints" / "architectures"
_EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts")
LAYERS, EXPERTS = 4, 4


@cache
def published() -> dict[str, dict[str, Any]]:
    """config.json of all models whose parameters are counted in tests/unit/checkpoints/architectures, by name."""
    rows = [
        row
        for name in ("dense_models.json", "sparse_models.json")
        for row in json.loads((_PUBLISHED / name).read_text(encoding="utf-8"))
    ]
    return {row["model"]: row["config"] for row in rows}


def small(model: str, **sizes: Any) -> dict[str, Any]:
    """A published config.json with few layers and experts, unless it has fewer; `sizes` replace those of any part."""

    def less(part: Mapping[str, Any]) -> dict[str, Any]:
        made: dict[str, Any] = {}
        for name, value in part.items():
            if name in sizes:
                made[name] = sizes[name]
            elif isinstance(value, Mapping):
                made[name] = less(value)
            elif name == "num_hidden_layers":
                made[name] = min(value, LAYERS)
            elif name in _EXPERTS and type(value) is int:
                made[name] = min(value, EXPERTS)
            else:
                made[name] = value
        return made

    return {name: value for name, value in less(published()[model]).items() if name != "quantization_config"}


def tensors(architecture: Architecture) -> dict[str, SourceTensor]:
    """All tensors of a plain checkpoint, as if in one file."""
    found = {}
    for weight in architecture.weights:
        for row in stored_tensors(weight, None, None, architecture.dtype):
            numbers = range(row.count) if "*" in row.name else range(1)
            for number in numbers:
                name = row.name.replace("*", str(number))
                found[name] = SourceTensor("model.safetensors", row.dtype, row.shape, 0, row.bytes // row.count)
    return found


def source(config: dict[str, Any]) -> SourceFiles:
    """Headers alone."""
    return SourceFiles(Path("nowhere"), tensors(describe(config)), {})


def write(directory: Path, config: dict[str, Any], seed: int = 1) -> Path:
    """A checkpoint of random BF16 weights. Experts that Llama 4 stores transposed are written so."""
    random = numpy.random.default_rng(seed)
    transposed = config.get("model_type") == "llama4"
    files: dict[str, tuple[str, tuple[int, ...], bytes]] = {}
    for name, tensor in tensors(describe(config)).items():
        shape = tensor.shape
        if transposed and len(shape) == 3:
            shape = (shape[0], shape[2], shape[1])
        values = random.normal(0.0, 0.05, shape).astype(numpy.float32).astype(ml_dtypes.bfloat16)
        files[name] = ("BF16", shape, values.tobytes())
    directory.mkdir(parents=True)
    write_safetensors(directory / "model.safetensors", files, {"format": "pt"})
    (directory / "config.json").write_text(json.dumps(config), encoding="utf-8")
    for name, document in {**tokenizer_files(), "generation_config.json": {}}.items():
        (directory / name).write_text(json.dumps(document), encoding="utf-8")
    return directory
