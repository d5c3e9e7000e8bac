"""csrc/panel_plan.h, compiled with g++: how the launcher cuts a multiplication into thread blocks."""

from __future__ import annotations

import ctypes
import subprocess
from dataclasses import dataclass
from pathlib import Path

SOURCE = """#include "panel_plan.h"
extern "C" int blocks(int m, int n, int k, int multiprocessors, int resident) {
  return vllm_volta::plan_panels(m, n, k, multiprocessors, resident).blocks;
}
"""


@dataclass(frozen=True)
class Planner:
    """panel_plan.h as a library."""

    library: ctypes.CDLL

    def blocks(self, m: int, n: int, k: int, multiprocessors: int, resident: int) -> int:
        """Thread blocks that m tokens and a weight [n, k] are given, where a multiprocessor holds `resident`."""
        return int(self.library.blocks(m, n, k, multiprocessors, resident))


def compiled_planner(sources: Path, scratch: Path) -> Planner:
    """Raises CalledProcessError when g++ refuses."""
    source, library = scratch / "plan.cpp", scratch / "plan.so"
    source.write_text(SOURCE, encoding="utf-8")
    command = ["g++", "-std=c++20", "-O1", "-shared", "-fPIC", f"-I{sources}", str(source), "-o", str(library)]
    subprocess.run(command, check=True)
    return Planner(ctypes.CDLL(str(library)))
