"""Proves without a GPU that an image can run its engine on one: `selftest.py [CHECK...]`, one line per check.

Reads selftest.json beside it. Ends with status 1 when a check fails, and says what was found, what was expected, and
what to do. Needs nothing but the image: no driver, no libcuda, no network.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import json
import mmap
import os
import re
import struct
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

FATBIN_MAGIC = 0xBA55ED50
"""First word of a fat binary (fatbinary_section.h and the output of fatbinary(1) of CUDA 12.6)."""
FATBIN_HEADER = struct.Struct("<IHHQ")
"""magic, version, size of this header, size of all entries behind it."""
FATBIN_ENTRY = struct.Struct("<HHIQIIHHI")
"""kind, version, size of this header, of the payload, of what it unpacks to, options, CUDA minor, major, SM."""
PTX, CUBIN = 1, 2


class Failure(Exception):
    """A check that failed: what was found, what was expected, what to do next."""

    def __init__(self, found: str, expected: str, following: str) -> None:
        super().__init__(found)
        self.found, self.expected, self.following = found, expected, following


def section(data: bytes | mmap.mmap, name: bytes) -> bytes:
    """The bytes of one section of a 64-bit little-endian ELF file, empty where it has none (elf(5))."""
    if data[:6] != b"\x7fELF\x02\x01":
        return b""
    (start,) = struct.unpack_from("<Q", data, 0x28)
    size, count, strings = struct.unpack_from("<HHH", data, 0x3A)
    headers = [struct.unpack_from("<IIQQQQ", data, start + index * size) for index in range(count)]
    names = headers[strings][4]
    for offset, _, _, _, place, length in headers:
        if data[names + offset : names + offset + len(name) + 1] == name + b"\0":
            return bytes(data[place : place + length])
    return b""


def device_code(fatbins: bytes) -> Iterator[tuple[int, int]]:
    """Kind (PTX, CUBIN) and architecture (as 70) of each entry of the fat binaries in a .nv_fatbin section."""
    position = 0
    while position + FATBIN_HEADER.size <= len(fatbins):
        magic, _, header, size = FATBIN_HEADER.unpack_from(fatbins, position)
        if magic != FATBIN_MAGIC:  # The linker aligns each with zeros.
            position += 8
            continue
        entry, end = position + header, position + header + size
        while entry + FATBIN_ENTRY.size <= min(end, len(fatbins)):
            kind, _, head, payload, _, _, _, _, architecture = FATBIN_ENTRY.unpack_from(fatbins, entry)
            if head < FATBIN_ENTRY.size:
                break
            yield kind, architecture
            entry += head + payload
        position = end


def runs_on(code: Sequence[tuple[int, int]], architecture: int) -> bool:
    """Whether a GPU of this architecture has something to run: machine code of its own major, or PTX not newer."""
    return any(
        (kind == CUBIN and arch // 10 == architecture // 10 and arch <= architecture)
        or (kind == PTX and arch <= architecture)
        for kind, arch in code
    )


def told(code: Sequence[tuple[int, int]]) -> str:
    names = {f"{'sm' if kind == CUBIN else 'compute'}_{architecture}" for kind, architecture in code}
    return ", ".join(sorted(names)) or "nothing"


def check_torch(wanted: dict) -> str:
    """PyTorch holds code for the architectures."""
    import torch

    # torch.cuda.get_arch_list() says the same, but nothing without a GPU in older releases (pytorch issue 169414).
    flags = getattr(torch._C, "_cuda_getArchFlags", lambda: None)()
    listed = (flags or "").split()
    for architecture in wanted["architectures"]:
        if f"sm_{architecture}" not in listed:
            raise Failure(
                f"torch {torch.__version__} holds code for {', '.join(listed) or 'no GPU'}",
                f"sm_{architecture} among them",
                "give the index with PyTorch's wheels for the CUDA release of this profile: --torch-index-url URL",
            )
    return f"torch {torch.__version__} holds {', '.join(listed)}"


def check_code(wanted: dict) -> str:
    """Every CUDA extension of the engine holds code for the architectures."""
    with_code = 0
    for package in wanted["packages"]:
        folder = package_folder(package)
        for path in sorted(folder.rglob("*.so")):
            with path.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data:
                code = list(device_code(section(data, b".nv_fatbin") + section(data, b"__nv_relfatbin")))
            if not code:
                continue
            with_code += 1
            for architecture in wanted["architectures"]:
                if not runs_on(code, architecture):
                    raise Failure(
                        f"{path.relative_to(folder.parent)} holds {told(code)}",
                        f"sm_{architecture}, or PTX of compute_{architecture} or older",
                        f"build the wheel with TORCH_CUDA_ARCH_LIST that has {architecture // 10}.{architecture % 10}, "
                        "or give another one: --wheel FILE",
                    )
    if not with_code:
        raise Failure(
            f"no extension of {', '.join(wanted['packages'])} holds GPU code",
            "a wheel that was built for CUDA",
            "build it from source, or give another one: --wheel FILE",
        )
    return f"{with_code} extensions hold code for {', '.join(f'sm_{each}' for each in wanted['architectures'])}"


def package_folder(package: str) -> Path:
    """Where a package is installed, without importing it."""
    found = importlib.util.find_spec(package)
    if found is None or not found.submodule_search_locations:
        raise Failure(
            f"there is no package {package}",
            f"the engine's wheel with {package} in it",
            "build it from source with the profile's patches, or give another one: --wheel FILE",
        )
    return Path(next(iter(found.submodule_search_locations)))


def check_imports(wanted: dict) -> str:
    """The engine's modules import, and what others look it up by is registered."""
    for name in wanted["modules"]:
        try:
            importlib.import_module(name)
        except Exception as error:
            raise Failure(
                f"import {name}: {type(error).__name__}: {error}",
                "an import without a GPU",
                "read the lines above; a missing package belongs into the folder of --find-links or into the lock",
            ) from error
    for group, names in wanted["entry_points"].items():
        registered = {each.name for each in importlib.metadata.entry_points(group=group)}
        for name in names:
            if name not in registered:
                raise Failure(
                    f"{group} has {', '.join(sorted(registered)) or 'nothing'}",
                    f"an entry point {name}",
                    "build the wheel from the patched source: onecat patch list",
                )
    return f"{', '.join(wanted['modules'])} import"


def check_operators(wanted: dict) -> str:
    """The extensions load, and the operators have kernels for CUDA."""
    with tempfile.TemporaryDirectory() as folder:
        environment = dict(os.environ)
        environment["LD_LIBRARY_PATH"] = f"{folder}:{environment.get('LD_LIBRARY_PATH', '')}"
        libraries = [path for name in wanted["packages"] for path in package_folder(name).rglob("*.so")]
        if not driver_is_there():
            make_driver(libraries, Path(folder))
        asked = json.dumps([wanted["extensions"], wanted["operators"]])
        done = subprocess.run(
            [sys.executable, "-c", ASK_OPERATORS, asked], env=environment, capture_output=True, text=True
        )
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise Failure(
            last,
            f"{', '.join(wanted['extensions'])} load, with kernels for CUDA",
            "build the wheel for this Python and this torch, or give another one: --wheel FILE",
        )
    return f"{len(wanted['operators'])} operators have CUDA kernels"


ASK_OPERATORS = """
import importlib, json, sys
import torch
extensions, operators = json.loads(sys.argv[1])
for name in extensions:
    importlib.import_module(name)
lacking = [name for name in operators if not torch._C._dispatch_has_kernel_for_dispatch_key(name, "CUDA")]
if lacking:
    sys.exit("no CUDA kernel is registered for " + ", ".join(lacking))
"""


def driver_is_there() -> bool:
    import ctypes

    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    return True


def make_driver(libraries: Sequence[Path], folder: Path) -> None:
    """A libcuda.so.1 that has the functions which the libraries are linked to and cannot do anything.

    The driver comes from the host when a container starts; loading an extension must not need it.
    """
    functions = set()
    for library in libraries:
        functions |= set(re.findall(rb"\0(cu[A-Z]\w+)(?=\0)", section(library.read_bytes(), b".dynstr")))
    source = folder / "driver.c"
    source.write_text("".join(f"int {name.decode()}(void) {{ return 999; }}\n" for name in sorted(functions)))
    compile_library(["gcc"], source, folder / "libcuda.so.1", "-Wl,-soname,libcuda.so.1")


def compile_library(compiler: Sequence[str], source: Path, library: Path, *options: str) -> None:
    command = [*compiler, "-shared", "-fPIC", "-o", str(library), str(source), *options]
    try:
        done = subprocess.run(command, capture_output=True, text=True)
    except FileNotFoundError as error:
        raise Failure(
            f"there is no {compiler[0]}", "a C and a C++ compiler: Triton needs them at run time", MISSING
        ) from error
    if done.returncode != 0:
        reason = next((line for line in done.stderr.splitlines() if "error" in line), done.stderr.strip())
        raise Failure(reason, "compilers and Python's headers: Triton needs them at run time", MISSING)


MISSING = "the runtime stage installs g++, gcc, libc6-dev and this Python's -dev package: keep its lines"


def check_compilers(wanted: dict) -> str:
    """C and C++ with Python's headers compile, as Triton's launcher and PyTorch's compiler do at run time."""
    headers = f"-I{sysconfig.get_path('include')}"
    with tempfile.TemporaryDirectory() as folder:
        for compiler, name, include in (("gcc", "launcher.c", "Python.h"), ("g++", "kernel.cpp", "vector")):
            source = Path(folder) / name
            source.write_text(f"#include <{include}>\n")
            compile_library([compiler], source, Path(folder) / f"{name}.so", headers)
    return "gcc, g++ and Python.h are there"


def check_triton(wanted: dict) -> str:
    """One Triton kernel compiles to machine code for each architecture, in a cache of its own."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "kernel.py"
        source.write_text(KERNEL)
        environment = {**os.environ, "TRITON_CACHE_DIR": str(Path(folder) / "cache")}
        command = [sys.executable, str(source), *map(str, wanted["architectures"])]
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode != 0:
        raise Failure(
            (done.stderr.strip().splitlines() or ["no message"])[-1][:300],
            f"a kernel compiled for {', '.join(f'sm_{each}' for each in wanted['architectures'])}",
            "keep Triton at the version that this torch pins: image.variables.triton in the profile",
        )
    return done.stdout.strip()


KERNEL = """
import sys

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource


@triton.jit
def add(first, second, result, count, BLOCK: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = places < count
    tl.store(result + places, tl.load(first + places, inside) + tl.load(second + places, inside), inside)


types = {"first": "*fp16", "second": "*fp16", "result": "*fp16", "count": "i32", "BLOCK": "constexpr"}
for architecture in map(int, sys.argv[1:]):
    source = ASTSource(add, types, constexprs={"BLOCK": 128})
    cubin = triton.compile(source, target=GPUTarget("cuda", architecture, 32)).asm["cubin"]
    print(f"triton {triton.__version__} compiles {len(cubin)} bytes for sm_{architecture}")
"""


def check_user(wanted: dict) -> str:
    """The user is nobody in particular and can write the caches, as can any other."""
    if os.getuid() == 0:
        raise Failure("the image runs as root", "a user without root's rights", "keep the USER line of the Dockerfile")
    for variable in ("TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", "VLLM_CACHE_ROOT", "HOME"):
        folder = Path(os.environ.get(variable) or "/nonexistent")
        if not os.access(folder, os.W_OK | os.X_OK):
            raise Failure(
                f"user {os.getuid()} cannot write {folder} ({variable})",
                "folders that every user may write",
                "keep the lines of the Dockerfile that make them",
            )
    return f"user {os.getuid()} can write the caches"


CHECKS: dict[str, Callable[[dict], str]] = {
    "torch": check_torch,
    "code": check_code,
    "compilers": check_compilers,
    "imports": check_imports,
    "operators": check_operators,
    "triton": check_triton,
    "user": check_user,
}


def main(names: Sequence[str]) -> int:
    """Run the checks of these names, all without any; the exit status."""
    wanted = json.loads(Path(__file__).with_name("selftest.json").read_text())
    failed = 0
    for name in names or CHECKS:
        try:
            print(f"selftest {name}: ok, {CHECKS[name](wanted)}", flush=True)
        except Failure as failure:
            failed += 1
            print(f"selftest {name}: FAILED", file=sys.stderr)
            print(f"onecat: found: {failure.found}", file=sys.stderr)
            print(f"onecat: expected: {failure.expected}", file=sys.stderr)
            print(f"onecat: next: {failure.following}", file=sys.stderr, flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
