"""Makes `vllm_volta` importable with its compiled extension, and torch.ops.vllm_volta complete. vLLM is not needed."""

from __future__ import annotations

import sys
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent.parent
PACKAGES = REPOSITORY / "patches" / "vllm-0.27.1" / "add"


class NotBuilt(Exception):
    """Why the compiled kernels cannot be used."""


def use(directory: Path) -> Path:
    """Load the extension that lies below the directory; returns its file.

    Where a whole package vllm_volta lies around it, as an installed wheel does, that one is imported, otherwise that of
    this checkout. Raises NotBuilt.
    """
    built = sorted(directory.resolve().rglob("_C*.so"), key=lambda path: len(path.parts))
    if not built:
        raise NotBuilt(f"{directory} has no _C*.so of vllm_volta")
    home = built[0].parent
    whole = home.name == "vllm_volta" and (home / "ops.py").is_file()
    sys.path.insert(0, str(home.parent if whole else PACKAGES))
    import vllm_volta

    if not whole:
        vllm_volta.__path__.insert(0, str(home))
    from vllm_volta import ops

    reason = ops.load_extension()
    if reason is not None:
        raise NotBuilt(f"{built[0]}: {reason}")
    return built[0]
