"""Adapters as PEFT's save_pretrained leaves them, made of arrays."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy
from numpy.typing import NDArray

from onecat.nvfp4.tensor_types import NUMPY_TYPES
from tests.safetensors_files import write_safetensors

Array = NDArray[Any]
NAMES = {dtype: name for name, dtype in NUMPY_TYPES.items()}
BF16 = ml_dtypes.bfloat16


def write_adapter(directory: Path, tensors: Mapping[str, Array], **settings: Any) -> Path:
    """Write an adapter whose tensors' names begin behind `base_model.model.`; returns its directory."""
    directory.mkdir(parents=True)
    document = {"peft_type": "LORA", "r": 4, "lora_alpha": 8, "bias": "none", **settings}
    (directory / "adapter_config.json").write_text(json.dumps(document))
    write_tensors(
        directory / "adapter_model.safetensors", {f"base_model.model.{name}": each for name, each in tensors.items()}
    )
    return directory


def write_tensors(path: Path, tensors: Mapping[str, Array]) -> None:
    """Write a weight file of arrays."""
    stored = {name: (NAMES[each.dtype], each.shape, each.tobytes()) for name, each in tensors.items()}
    write_safetensors(path, stored, {"format": "pt"})


def factors(module: str, rows: int, columns: int, size: float, rank: int = 4, seed: int = 5) -> dict[str, Array]:
    """The matrices of a module; size: of an element of their product, on average."""
    random = numpy.random.default_rng(seed)
    spread = (size / rank**0.5) ** 0.5
    return {
        f"{module}.lora_A.weight": (random.normal(0, spread, (rank, columns))).astype(numpy.float32),
        f"{module}.lora_B.weight": (random.normal(0, spread, (rows, rank))).astype(numpy.float32),
    }
