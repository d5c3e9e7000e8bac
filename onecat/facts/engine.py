"""What was seen of an engine: its Python environment, and logs of its servers."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class EngineEnvironment:
    """One Python environment with PyTorch, as PyTorch itself describes it.

    where: `host`, the image's name, or the capture's that tells it.
    cuda_architectures: torch.cuda.get_arch_list(), as ("sm_70", "compute_90"). compiler_version: of nvcc.
    error: why a GPU calculation in it failed; gpu_ok: whether one was right.
    """

    where: str
    torch_version: str | None = None
    torch_cuda_version: str | None = None
    cuda_architectures: tuple[str, ...] | None = None
    compiler_version: str | None = None
    cuda_available: bool | None = None
    engine_version: str | None = None
    python_version: str | None = None
    packages: tuple[tuple[str, str], ...] = ()
    gpu_ok: bool | None = None
    error: str | None = None


@dataclass(frozen=True)
class ServerLog:
    """A log of a server. name: of its file. lines: its text, shortened in the middle where it is long."""

    name: str
    lines: tuple[str, ...]
    engine_version: str | None = None
