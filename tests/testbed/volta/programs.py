"""Runs the programs of this folder in the engine's interpreter, with a source tree of vLLM first on its path."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.testbed.cache import Cache

HERE = Path(__file__).parent

# What torch 2.13.0 pins for Linux (its metadata on the index); the CPU's torch comes without it.
TRITON = "3.7.1"


@dataclass(frozen=True)
class Programs:
    """Where the programs run.

    python: the interpreter of the native vLLM for the CPU. triton: a folder with the package triton. kernels: where
    Triton keeps what it compiled.
    """

    python: Path
    triton: Path
    kernels: Path

    def run(self, program: str, tree: Path, request: Mapping[str, Any]) -> Any:
        """The answer of `program` (a file of this folder) for vLLM as it is in `tree`."""
        environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("VLLM_", "PYTHON"))},
            "PYTHONPATH": os.pathsep.join((str(tree), str(self.triton))),
            "PYTHONDONTWRITEBYTECODE": "1",
            "TRITON_CACHE_DIR": str(self.kernels),
            "CUDA_VISIBLE_DEVICES": "0",
            "OMP_NUM_THREADS": "1",
            "VLLM_NO_USAGE_STATS": "1",
        }
        argv = [str(self.python), str(HERE / program), json.dumps(request)]
        done = subprocess.run(argv, env=environment, cwd=self.kernels, capture_output=True, text=True, timeout=600)
        if done.returncode != 0:
            raise RuntimeError(f"{program} failed on {tree}:\n{done.stderr[-4000:]}")
        return json.loads(done.stdout)


def ensure_triton(python: Path, cache: Cache) -> Path:
    """A folder with torch's own Triton for this interpreter: once about 190 MB of download and 690 MB of disk."""
    tag = subprocess.run(
        [str(python), "-c", "import sys; print(*sys.version_info[:2], sep='')"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    folder = cache.folder("triton") / f"{TRITON}-py{tag}"
    with cache.lock(f"triton-{folder.name}"):
        if not folder.exists():
            partial = folder.with_suffix(".partial")
            shutil.rmtree(partial, ignore_errors=True)
            pip = [str(python), "-m", "pip", "install", "-qq", "--no-cache-dir", "--no-deps", "--only-binary", ":all:"]
            subprocess.run([*pip, "--target", str(partial), f"triton=={TRITON}"], check=True, stdout=sys.stderr)
            partial.rename(folder)
    return folder
