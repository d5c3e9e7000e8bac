"""csrc/panel_plan.h, compiled with g++: how the launcher cuts a multiplication into thread blocks."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

SOURCE = """#include "panel_plan.h"
extern "C" void plan(const int* given, int* found) {
  const auto plan = vllm_volta::plan_panels(given[0], given[1], given[2], {given[3], given[4], given[5]},
                                            {given[6], given[7]});
  found[0] = plan.blocks;
  found[1] = plan.chunk;
  found[2] = plan.shared_bytes;
}
extern "C" int tokens(int m) { return vllm_volta::kernel_tokens(m); }
"""


@dataclass(frozen=True)
class Plan:
    """blocks: thread blocks. chunk: columns of activations staged at once. shared_bytes: for them."""

    blocks: int
    chunk: int
    shared_bytes: int


@dataclass(frozen=True)
class Planner:
    """tokens: the number of columns of the kernel for m tokens. plan: of m, n, k, multiprocessors, bytes of shared
    memory of each, thread blocks on each that registers allow, bytes of shared memory a kernel has beside."""

    tokens: Callable[[int], int]
    plan: Callable[[int, int, int, int, int, int, int], Plan]


def compiled_planner(sources: Path, scratch: Path) -> Planner:
    source, library = scratch / "plan.cpp", scratch / "plan.so"
    source.write_text(SOURCE, encoding="utf-8")
    command = ["g++", "-std=c++20", "-O1", "-shared", "-fPIC", f"-I{sources}", str(source), "-o", str(library)]
    subprocess.run(command, check=True)
    loaded = ctypes.CDLL(str(library))

    def plan(m: int, n: int, k: int, count: int, shared: int, blocks: int, static: int) -> Plan:
        given = (ctypes.c_int * 8)(m, n, k, count, shared, 0, blocks, static)
        found = (ctypes.c_int * 3)()
        loaded.plan(given, found)
        return Plan(*found)

    return Planner(loaded.tokens, plan)
