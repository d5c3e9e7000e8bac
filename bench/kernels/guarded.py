"""Claims of correctness.py with every tensor between guard zones (guard_allocator.cpp), in a process of its own.

Prints one JSON document: the claims, the zones that were written to, and the allocator's messages. run.py starts it.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(REPOSITORY))

SOURCE = Path(__file__).with_name("guard_allocator.cpp")


def build(library: Path) -> None:
    """The allocator as a shared library. Raises CalledProcessError with g++'s text on standard error."""
    command = ["g++", "-shared", "-fPIC", "-std=c++17", "-O1", "-Wall", str(SOURCE), "-o", str(library), "-ldl"]
    subprocess.run(command, check=True)


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--extension", type=Path, required=True)
    arguments.add_argument("--scratch", type=Path, required=True, help="where the allocator is built")
    arguments.add_argument("--seed", type=int, default=11)
    given = arguments.parse_args()
    library = given.scratch / "guard_allocator.so"
    build(library)

    import torch

    allocator = torch.cuda.memory.CUDAPluggableAllocator(str(library), "guarded_allocate", "guarded_free")
    torch.cuda.memory.change_current_allocator(allocator)
    torch.cuda.init()
    torch.cuda.set_device(0)
    torch.cuda.synchronize()  # makes the context that the allocator's functions need
    guard = ctypes.CDLL(str(library))
    guard.guarded_broken.restype = guard.guarded_live.restype = ctypes.c_longlong

    from bench.kernels import installation

    installation.use(given.extension)
    from bench.kernels import correctness

    device = torch.device("cuda", 0)
    bench = correctness.Bench(device, torch.Generator(device).manual_seed(given.seed), quick=True)
    claims = correctness.try_claims(bench, {name: correctness.PORTABLE[name] for name in correctness.GUARDED})
    probe = torch.zeros(4, device=device)
    watched = guard.guarded_live()
    del probe
    document = {"broken": guard.guarded_broken(), "live": watched, "claims": [asdict(claim) for claim in claims]}
    print(json.dumps(document))
    return 0


if __name__ == "__main__":
    sys.exit(main())
