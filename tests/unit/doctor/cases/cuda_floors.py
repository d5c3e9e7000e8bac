"""GPUs that are newer than the CUDA or NCCL of an engine."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from onecat.facts import EngineEnvironment, Facts
from tests.unit.doctor.cases.form import Case, both, case
from tests.unit.doctor.examples import HEALTHY, WITHOUT_GPU, v100, with_gpus


def blackwell(capability: str, *engines: EngineEnvironment) -> Facts:
    gpus = (v100(index, name="NVIDIA GeForce RTX 5090", compute_capability=capability) for index in (0, 1))
    return replace(with_gpus(*gpus), engines=engines)


def engine(**changes: Any) -> EngineEnvironment:
    return replace(EngineEnvironment("image", torch_version="2.9.0+cu128", torch_cuda_version="12.8"), **changes)


def nccl(version: str) -> EngineEnvironment:
    return engine(packages=(("numpy", "2.1.0"), ("nvidia-nccl-cu12", version)))


CASES: list[Case] = [
    case("cuda.target", "info", "no code for compute capability 12.1", blackwell("12.1", engine())),
    case("cuda.target", "pass", "CUDA 12.8 knows", blackwell("12.0", engine())),
    case("cuda.target", "pass", "CUDA 12.8 knows", replace(HEALTHY, engines=(engine(),))),
    case("cuda.target", "skip", "no PyTorch", HEALTHY),
    case("cuda.target", "skip", "no PyTorch", blackwell("12.1", engine(torch_cuda_version="x"))),
    case(
        "cuda.target",
        "skip",
        "compute capability of a GPU",
        replace(with_gpus(v100(0, name="Quadro X", compute_capability=None)), engines=(engine(),)),
    ),
    case("cuda.target", "skip", "no NVIDIA GPU", WITHOUT_GPU),
    case("cuda.nccl-version", "warn", "NCCL 2.25.1 is too old", blackwell("12.0", nccl("2.25.1"))),
    both("cuda.nccl-version", ("pass", "2.26.2"), ("pass", "2.30"), blackwell("12.0", nccl("2.26.2"), nccl("2.30.4"))),
    case("cuda.nccl-version", "pass", "NCCL 2.18.1", replace(HEALTHY, engines=(nccl("2.18.1"),))),
    case("cuda.nccl-version", "skip", "version of NCCL", blackwell("12.0", engine())),
    case("cuda.nccl-version", "skip", "one GPU only", with_gpus(v100(0))),
]
