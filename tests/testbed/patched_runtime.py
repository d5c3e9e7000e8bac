"""The native vLLM for the CPU with other Python files: those of our series, or upstream's own.

The tree is a farm of links to the runtime's files, in which the files that the series touches are real ones.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onecat.images import NativeRuntime
from onecat.patching import Series, patched_files, read_members, touched_paths

PLUGIN = "vllm_volta"


@dataclass(frozen=True)
class PatchedRuntime:
    """An interpreter and the folder that goes before its own packages."""

    python: Path
    packages: Path

    def environment(self, **more: str) -> dict[str, str]:
        """What a process of this vLLM needs in its environment, and `more`."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("VLLM_", "PYTHON"))}
        # One thread and 1 GiB of KV cache are plenty for the tiny models.
        limits = {"OMP_NUM_THREADS": "1", "VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_NO_USAGE_STATS": "1"}
        return {**kept, "HF_HUB_OFFLINE": "1", **limits, "PYTHONPATH": str(self.packages), **more}

    def answer(self, program: Path, document: Any, *, timeout: float, **environment: str) -> Any:
        """What a program says to a JSON document; fails the test with its log when it ends badly."""
        argv = [str(self.python), str(program), json.dumps(document)]
        done = subprocess.run(
            argv, env=self.environment(**environment), capture_output=True, text=True, timeout=timeout, check=False
        )
        assert done.returncode == 0, f"{program.name}: exit code {done.returncode}\n{done.stderr[-6000:]}"
        print(done.stderr[-20000:], file=sys.stderr)
        return json.loads(done.stdout)


def lay_out(runtime: NativeRuntime, archive: Path, series: Series, folder: Path, *, patched: bool) -> PatchedRuntime:
    """Make the tree in `folder`: with the series, or with upstream's files and vllm_volta beside them."""
    [installed] = runtime.directory.glob("lib/python3*/site-packages")
    shutil.copytree(installed / "vllm", folder / "vllm", copy_function=os.symlink)

    def is_wanted(path: str) -> bool:
        return path.startswith(("vllm/", f"{PLUGIN}/")) and path.endswith(".py")

    upstream = read_members(archive, series.upstream, {path for path in touched_paths(series) if is_wanted(path)})
    originals = {path: file.content for path, file in upstream.files.items()}
    contents = patched_files(series, originals.get, is_wanted)
    if not patched:
        contents = {path: originals.get(path, content) for path, content in contents.items()}
    for path, content in contents.items():
        (folder / path).parent.mkdir(exist_ok=True)
        (folder / path).unlink(missing_ok=True)
        (folder / path).write_bytes(content)

    metadata = folder / f"{PLUGIN}-0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {PLUGIN}\nVersion: 0\n")
    (metadata / "entry_points.txt").write_text(f"[vllm.general_plugins]\nvolta = {PLUGIN}.plugin:register\n")
    return PatchedRuntime(runtime.python, folder)
