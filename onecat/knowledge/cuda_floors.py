"""Reads the table of what newer GPUs need of CUDA and NCCL as typed records."""

from __future__ import annotations

import functools
from dataclasses import dataclass

from onecat.knowledge.tables import frozen, table


@dataclass(frozen=True)
class CudaTarget:
    """cuda: the first toolkit that makes code for this compute capability."""

    compute_capability: str
    cuda: str
    source: tuple[str, ...]


@dataclass(frozen=True)
class NcclFloor:
    """version: the first NCCL that works between several GPUs of this compute capability; why: what earlier ones do."""

    compute_capability: str
    version: str
    why: str
    source: tuple[str, ...]


@functools.cache
def cuda_targets() -> tuple[CudaTarget, ...]:
    """Every compute capability that not all CUDA toolkits in use know."""
    return tuple(CudaTarget(**frozen(row)) for row in table("cuda_floors.yaml")["targets"])


@functools.cache
def nccl_floors() -> tuple[NcclFloor, ...]:
    """Every compute capability that not all NCCL releases in use work with."""
    return tuple(NcclFloor(**frozen(row)) for row in table("cuda_floors.yaml")["nccl"])
