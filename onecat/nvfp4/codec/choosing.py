"""Which codec a run uses."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

from onecat.nvfp4.codec.kernels import Crew
from onecat.nvfp4.codec.numpy_kernels import NumpyKernels
from onecat.nvfp4.codec.records import Codec
from onecat.nvfp4.codec.threaded import ThreadedCodec
from onecat.paths import home

LARGE = 4 * 10**9
"""Bytes of weights from which compiled loops pay: the first time, compiling takes as long as numpy takes for these."""


def choose(threads: int | None = None, work: int | None = None) -> Codec:
    """The codec that is done first here; all give the same bits.

    threads: at once; None for one on each processor this process may use. work: bytes of the weights; None when few.
    """
    if work is not None and work >= LARGE and is_numba_there():
        try:
            return compiled(threads)
        except RuntimeError:
            # Nowhere to keep machine code: each run would compile anew.
            pass
    return interpreted(threads)


def interpreted(threads: int | None = None) -> Codec:
    """The codec in numpy, which is always there."""
    return ThreadedCodec(Crew(NumpyKernels(), _threads(threads)))


def compiled(threads: int | None = None) -> Codec:
    """The codec whose loops numba compiles, for which `onecat[fast]` must be installed.

    Machine code is kept in onecat's cache, unless NUMBA_CACHE_DIR names another folder. Raises ImportError, and
    RuntimeError when there is no folder that numba could write to.
    """
    import numba

    if not os.environ.get("NUMBA_CACHE_DIR"):
        numba.config.CACHE_DIR = str(home().cache / "numba")  # type: ignore[attr-defined]
    from onecat.nvfp4.codec.numba_kernels import NumbaKernels

    return ThreadedCodec(Crew(NumbaKernels(), _threads(threads)))


def is_numba_there() -> bool:
    """Whether `compiled` can be called."""
    return importlib.util.find_spec("numba") is not None


def weights_in(directory: Path) -> int:
    """The bytes of the weight files of a checkpoint, for `choose`. Raises OSError when they cannot be looked at."""
    return sum(each.stat().st_size for each in directory.glob("*.safetensors"))


def _threads(wanted: int | None) -> int:
    return wanted or len(os.sched_getaffinity(0))
