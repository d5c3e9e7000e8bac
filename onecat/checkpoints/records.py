"""What is known of a checkpoint without loading a weight."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from onecat.checkpoints.architectures import Architecture
from onecat.checkpoints.quantization import Quantization
from onecat.checkpoints.tensors import StoredTensors

Severity = Literal["fail", "warn", "info"]
"""fail: an engine refuses the checkpoint or answers wrongly. warn: it may. info: worth knowing."""


@dataclass(frozen=True)
class Problem:
    """Something that will stop or spoil serving. `where` is the file; `code` is stable."""

    code: str
    text: str
    where: str
    fix: str
    severity: Severity = "fail"


@dataclass(frozen=True)
class Checkpoint:
    """One model directory, or what stands in for one (a config.json, headers, a listing of a remote directory).

    architecture: what config.json says the model is made of. quantization: what is claimed of its storage, None for
    weights as they were trained. tensors: what the headers of the weight files hold, empty without weight files.
    weight_bytes: bytes of all tensors; without headers the sizes of the listed weight files, else computed from the
    architecture. parameters: of the model, each packed element counted and draft layers left out; measured: whether
    both come from headers. files: weight files that an engine would load.
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
