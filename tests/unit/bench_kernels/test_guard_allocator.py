"""The allocator that puts zones around each tensor, over the host's memory."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from bench.gpu import guard

PROGRAM = """\
import ctypes, sys
library = ctypes.CDLL(sys.argv[1])
library.guarded_allocate.restype = ctypes.c_void_p
library.guarded_allocate.argtypes = [ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p]
library.guarded_free.argtypes = [ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p]
library.guarded_broken.restype = library.guarded_live.restype = ctypes.c_longlong
size, offset = 1000, int(sys.argv[2])
memory = library.guarded_allocate(size, 0, None)
print(set(ctypes.string_at(memory, size)) == {0xFF}, library.guarded_live())
ctypes.memset(memory, 0, size)
if offset:
    ctypes.memset(memory + offset, 7, 1)
print(library.guarded_broken())
library.guarded_free(memory, size, 0, None)
print(library.guarded_broken() > 0, library.guarded_live())
"""


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("guard")
    guard.build(folder / "guard_allocator.so")
    driver = Path(__file__).with_name("fake_driver.cpp")
    subprocess.run(["g++", "-shared", "-fPIC", str(driver), "-o", str(folder / "libcuda.so.1")], check=True)
    return folder


@pytest.mark.parametrize(
    ("offset", "broken", "said"),
    [
        pytest.param(0, 0, "", id="within"),
        pytest.param(999, 0, "", id="the last byte"),
        pytest.param(1000, 1, "the zone after 1000 bytes", id="right after the end"),
        pytest.param(1000 + 65535, 1, "was written to at byte 65535", id="far after the end"),
        pytest.param(-1, 1, "the zone before 1000 bytes", id="right before the start"),
    ],
)
def test_writes_outside_are_found(offset: int, broken: int, said: str, libraries: Path) -> None:
    command = [sys.executable, "-c", PROGRAM, str(libraries / "guard_allocator.so"), str(offset)]
    environment = {**os.environ, "LD_LIBRARY_PATH": str(libraries)}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    assert done.stdout.splitlines() == ["True 1", str(broken), f"{broken > 0} 0"]
    assert (said in done.stderr) if said else done.stderr == ""
