"""What is known of a checkpoint without loading a weight."""

from __future__ import annotations

from dataclasses import dataclass, field

from onecat.checkpoints.architectures import Architecture
from onecat.checkpoints.quantization import Quantization
from onecat.checkpoints.tensors import StoredTensors


@dataclass(frozen=True)
class Problem:
    """Something that will stop or spoil serving. `where` is the file; `code` is stable."""

    code: str
    text: str
    where: str
    fix: str


@dataclass(frozen=True)
class Checkpoint:
    """One model directory, or what stands in for one (a config.json, headers, a listing of a remote directory).

    architecture: what config.json says the model is made of. quantization: what is claimed of its storage, None for
    weights as they were trained. tensors: what the headers of the weight files hold, empty without weight files.
    weight_bytes: bytes of all tensors, computed from the architecture where there are no weight files. parameters:
    of the model, each packed element counted; measured: whether both come from headers. files: weight files.
    """

    directory: str
    architecture: Architecture = Architecture()
    quantization: Quantization | None = None
    tensors: tuple[StoredTensors, ...] = field(default=(), repr=False)
    weight_bytes: int = 0
    parameters: int = 0
    measured: bool = True
    files: tuple[str, ...] = ()
    problems: tuple[Problem, ...] = ()
