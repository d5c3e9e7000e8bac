"""Which codec a run uses."""

from __future__ import annotations

import os

from onecat.nvfp4.codec.kernels import Crew
from onecat.nvfp4.codec.numpy_kernels import NumpyKernels
from onecat.nvfp4.codec.records import Codec
from onecat.nvfp4.codec.threaded import ThreadedCodec


def choose(threads: int | None = None) -> Codec:
    """The fastest codec that can run here. threads: at once; None for one on each processor this process may use."""
    return ThreadedCodec(Crew(NumpyKernels(), threads or len(os.sched_getaffinity(0))))
