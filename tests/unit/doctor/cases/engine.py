"""Environments with PyTorch."""

from __future__ import annotations

from onecat.facts import EngineEnvironment, Facts
from tests.unit.doctor.cases.form import Case, case
from tests.unit.doctor.examples import CPU, HEALTHY, WITHOUT_GPU
from tests.unit.doctor.host_examples import KNOWN, known


def torch(available: bool | None, cuda: str | None = "12.6") -> Facts:
    return known(engines=(EngineEnvironment("host", "2.10.0", cuda, cuda_available=available),))


CASES: list[Case] = [
    case("engine.cuda-available", "pass", "PyTorch 2.10.0 sees GPUs", torch(True)),
    case("engine.cuda-available", "warn", "PyTorch 2.10.0 sees no GPU", torch(False)),
    case("engine.cuda-available", "warn", "built without CUDA", torch(False, None)),
    case("engine.cuda-available", "skip", "uses no NVIDIA GPU", torch(False), CPU),
    case("engine.cuda-available", "skip", "no environment with PyTorch", torch(None)),
    case("engine.cuda-available", "skip", "no environment with PyTorch", KNOWN),
    case("engine.cuda-available", "skip", "there is no NVIDIA GPU", WITHOUT_GPU),
    case("engine.cuda-available", "skip", "no environment with PyTorch", HEALTHY),
]
