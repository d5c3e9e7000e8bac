"""Which codec a run uses."""

from __future__ import annotations

import os

from onecat.nvfp4.codec.records import Codec


def choose(threads: int | None = None) -> Codec:
    """The fastest codec that can run here. threads: at once; None for one on each processor this process may use."""
    from onecat.nvfp4.codec.numpy_codec import NumpyCodec

    return NumpyCodec(threads or len(os.sched_getaffinity(0)))
