"""csrc/panel_plan.h, compiled with g++: how the launcher cuts a multiplication into thread blocks."""

from __future__ import annotations

import ctypes
import subprocess
from dataclasses import dataclass
from pathlib import Path

SOURCE = """#include "panel_plan.h"
using namespace vllm_volta;
extern "C" int blocks(int m, int n, int k, int multiprocessors, int resident) {
  return plan_panels(m, n, k, multiprocessors, resident).blocks;
}
extern "C" int tokens(int m) { return PANEL_TOKENS[panel_kernel(m)]; }
extern "C" int warps(int m) { return PANEL_KERNEL_WARPS[panel_kernel(m)]; }
"""


@dataclass(frozen=True)
class Planner:
    """panel_plan.h as a library."""

    library: ctypes.CDLL

    def tokens(self, m: int) -> int:
        """The number of tokens in the name of the kernel for m tokens."""
        return int(self.library.tokens(m))

    def warps(self, m: int) -> int:
        """Warps of its thread blocks, each for 32 rows."""
        return int(self.library.warps(m))

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
