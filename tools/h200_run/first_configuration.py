"""Lets Triton take the first configuration of each autotuned kernel; a plugin of the group `vllm.general_plugins`.

It does nothing unless H200_FIRST_CONFIGURATION is 1. Linear attention (GDN) has 88 configurations in 6 kernels, which
take two minutes of an engine's start to compile and to time; every one of them computes the same.
"""

from __future__ import annotations

import functools
import os
from typing import Any

SWITCH = "H200_FIRST_CONFIGURATION"


@functools.cache
def install() -> None:
    """Drop the other configurations when a kernel is first launched; with one left, Triton times nothing."""
    if os.environ.get(SWITCH) != "1":
        return
    from triton.runtime.autotuner import Autotuner

    run = Autotuner.run

    @functools.wraps(run)
    def run_first(self: Any, *arguments: Any, **options: Any) -> Any:
        self.configs = self.configs[:1]
        return run(self, *arguments, **options)

    Autotuner.run = run_first
