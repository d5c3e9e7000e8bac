"""Checkpoints: what a model directory holds, told from its headers and configuration, and whether it is whole.

In: a directory with config.json, safetensors and a tokenizer. Out: a `Checkpoint` with its `problems`. Weights are
never loaded; `write_tiny_checkpoint` makes a small real one.
"""

from onecat.checkpoints.architectures import Architecture, describe
from onecat.checkpoints.inspection import inspect
from onecat.checkpoints.quantization import Quantization, WeightScheme, read_quantization
from onecat.checkpoints.reconstruction import from_tensors
from onecat.checkpoints.records import Checkpoint, Problem
from onecat.checkpoints.tensors import StoredTensors
from onecat.checkpoints.tiny import TinyShape, write_tiny_checkpoint

__all__ = [
    "Architecture",
    "Checkpoint",
    "Problem",
    "Quantization",
    "StoredTensors",
    "TinyShape",
    "WeightScheme",
    "describe",
    "from_tensors",
    "inspect",
    "read_quantization",
    "write_tiny_checkpoint",
]
