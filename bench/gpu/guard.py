"""Claims with every tensor between guard zones (guard_allocator.cpp), in a process of its own."""

from __future__ import annotations

import argparse
import ctypes
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TypeVar

from bench.gpu.claims import Claim

SOURCE = Path(__file__).with_name("guard_allocator.cpp")
SomeClaim = TypeVar("SomeClaim", bound=Claim)


def build(library: Path) -> None:
    """The allocator as a shared library. Raises CalledProcessError with g++'s text on standard error."""
    command = ["g++", "-shared", "-fPIC", "-std=c++17", "-O1", "-Wall", str(SOURCE), "-o", str(library), "-ldl"]
    subprocess.run(command, check=True)


def inside(scratch: Path, claims: Callable[[], Sequence[Claim]]) -> None:
    """Let torch take its memory between guard zones, try the claims, and print a JSON document: the claims, the zones
    that were written to, and how many allocations were watched. For a process that has not used the GPU yet.

    scratch: where the allocator is built.
    """
    library = scratch / "guard_allocator.so"
    build(library)
    import torch

    allocator = torch.cuda.memory.CUDAPluggableAllocator(str(library), "guarded_allocate", "guarded_free")
    torch.cuda.memory.change_current_allocator(allocator)
    torch.cuda.init()
    torch.cuda.set_device(0)
    torch.cuda.synchronize()  # makes the context that the allocator's functions need
    guard = ctypes.CDLL(str(library))
    guard.guarded_broken.restype = guard.guarded_live.restype = ctypes.c_longlong
    tried = claims()
    probe = torch.zeros(4, device="cuda")
    watched = guard.guarded_live()
    del probe
    print(json.dumps({"broken": guard.guarded_broken(), "live": watched, "claims": [asdict(claim) for claim in tried]}))


def program(description: str | None, claims: Callable[[Path, int], Sequence[Claim]]) -> None:
    """What `outside` starts: tries the claims between guard zones. claims: of the extension's folder and a seed."""
    arguments = argparse.ArgumentParser(description=description)
    arguments.add_argument("--extension", type=Path, required=True)
    arguments.add_argument("--scratch", type=Path, required=True, help="where the allocator is built")
    arguments.add_argument("--seed", type=int, default=11)
    given = arguments.parse_args()
    inside(given.scratch, lambda: claims(given.extension, given.seed))


def outside(
    program: Path, arguments: Sequence[str], log: Path, seconds: float, claim: type[SomeClaim]
) -> tuple[list[SomeClaim], int, str]:
    """Run a file that calls `program`: the claims, the number of broken zones, and what the process said.

    The program gets the arguments and `--scratch FOLDER`. One that fails or takes too long counts as a broken zone.
    """
    with tempfile.TemporaryDirectory() as scratch:
        command = [sys.executable, str(program), *arguments, "--scratch", scratch]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=seconds)
        except subprocess.TimeoutExpired:
            return [], 1, f"it took more than {seconds:.0f} s"
    log.write_text(done.stdout + done.stderr, encoding="utf-8")
    if done.returncode != 0:
        return [], 1, f"it ended with {done.returncode}: {done.stderr.strip()[-1500:]}"
    document = json.loads(done.stdout.splitlines()[-1])
    claims = [claim(**each) for each in document["claims"]]
    if document["live"] < 1:
        return claims, 1, "the allocator was not in use"
    said = [line for line in done.stderr.splitlines() if line.startswith("guard_allocator")]
    return claims, int(document["broken"]), "\n".join(said[:5])
