"""Checkpoints: what a model directory holds, told from its headers and configuration, and whether it is whole.

In: a directory with config.json, safetensors and a tokenizer. Out: a `Checkpoint` with its `problems`. Weights are
never loaded; `write_tiny_checkpoint` makes a small real one.
"""

from onecat.checkpoints.inspection import inspect
from onecat.checkpoints.records import Checkpoint, Problem
from onecat.checkpoints.tiny import TinyShape, write_tiny_checkpoint

__all__ = ["Checkpoint", "Problem", "TinyShape", "inspect", "write_tiny_checkpoint"]
