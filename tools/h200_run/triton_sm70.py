"""Compiles captured Triton kernels for a V100 (sm_70): `python triton_sm70.py CAPTURED RESULT [STAND_IN]`.

CAPTURED: a folder that `triton_capture` wrote. RESULT: a JSON file, a row for each kernel; a table goes to standard
output. STAND_IN: the folder of `fake_cuda.py` (tests/testbed/volta), for machines without a GPU. Nothing is launched.
"""

from __future__ import annotations

import collections
import concurrent.futures
import importlib
import importlib.util
import json
import multiprocessing
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

SHARED_MEMORY = 98304
"""Bytes that a block can have on compute capability 7.0 (CUDA C++ Programming Guide, technical specifications)."""
WIDE_HEADS = 256
SET_BY_GPU = {"launch_pdl": False}
"""Constants that vLLM sets by the GPU it finds, as it sets them on 7.0 (is_arch_support_pdl of its platforms)."""
HEADER = """import triton
import triton.language as tl
from torch._inductor.runtime import triton_helpers
from torch._inductor.runtime.triton_helpers import libdevice, math as tl_math


@triton.jit
"""
"""What the sources that torch.compile generates take for granted."""


def main() -> None:
    """Compile all kernels in several processes and print the table."""
    captured, result = Path(sys.argv[1]), Path(sys.argv[2])
    lines = {line for file in sorted(captured.glob("*.jsonl")) for line in file.read_text().splitlines()}
    kernels = [json.loads(line) for line in sorted(lines)]
    # The same kernel compiled twice differs at most in where it comes from.
    unique = {json.dumps({**kernel, "module": None, "shared_memory_here": None}): kernel for kernel in kernels}
    context = multiprocessing.get_context("spawn")
    workers = min(os.cpu_count() or 1, 24, len(unique) or 1)
    with concurrent.futures.ProcessPoolExecutor(workers, context, prepare, tuple(sys.argv[3:4])) as pool:
        rows = list(pool.map(compiled, unique.values(), chunksize=4))
    result.write_text(json.dumps(rows, indent=1))
    print_table(rows)


def prepare(stand_in: str | None = None) -> None:
    """Make vLLM's kernels importable in a worker."""
    if stand_in is not None:
        sys.path.insert(0, stand_in)
        import fake_cuda  # type: ignore[import-not-found]

        fake_cuda.install(fake_cuda.DEVICES[(7, 0)], flash_attention=False)


def compiled(kernel: dict[str, Any]) -> dict[str, Any]:
    """What became of one kernel: shared memory and machine code in bytes, or why it failed."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    if "undescribed" in kernel:
        return {"kernel": kernel["name"], "constants": {}, "failed": f"not captured: {kernel['undescribed']}"}
    constants = {tuple(path): value for path, value in kernel["constants"]}
    row = {
        "kernel": kernel["name"],
        "module": kernel["module"],
        "options": kernel["options"],
        "constants": {".".join(map(str, path)): value for path, value in constants.items()},
        "shared_memory_here": kernel["shared_memory_here"],
    }
    try:
        function = function_of(kernel)
        names = function.arg_names
        constants = {path: SET_BY_GPU.get(names[path[0]], value) for path, value in constants.items()}
        row["constants"] = {".".join([names[path[0]], *map(str, path[1:])]): value for path, value in constants.items()}
        source = ASTSource(
            function,
            kernel["signature"],
            {path: decoded(value) for path, value in constants.items()},
            {tuple(path): value for path, value in kernel["attributes"]},
        )
        options = {name: value for name, value in kernel["options"].items() if value is not None}
        done = triton.compile(source, target=GPUTarget("cuda", 70, 32), options=options)
        return row | {"shared_memory": done.metadata.shared, "machine_code": len(done.asm["cubin"])}
    except Exception as error:  # noqa: BLE001 - whatever fails is a row of the table
        cause: BaseException = error
        while cause.__cause__ is not None:
            cause = cause.__cause__
        return row | {"failed": f"{type(cause).__name__}: {cause}"}


def function_of(kernel: dict[str, Any]) -> Any:
    """The kernel's function: from its module where that can be imported and holds it, else from its source text."""
    from triton.runtime.jit import JITFunction

    try:
        found = getattr(importlib.import_module(kernel["module"]), kernel["name"], None)
    except ImportError:
        found = None
    while found is not None and not isinstance(found, JITFunction):
        found = getattr(found, "fn", None)
    if found is not None:
        return found
    with tempfile.NamedTemporaryFile("w", suffix=".py", delete=False) as file:
        file.write(HEADER + kernel["source"])
    spec = importlib.util.spec_from_file_location(Path(file.name).stem, file.name)
    module = importlib.util.module_from_spec(spec)  # type: ignore[arg-type]
    spec.loader.exec_module(module)  # type: ignore[union-attr]
    return getattr(module, kernel["name"])


def decoded(value: Any) -> Any:
    """A constant from what `triton_capture.encoded` made of it."""
    import triton.language as tl

    if not isinstance(value, dict):
        return value
    if "dtype" in value:
        return tl.dtype(value["dtype"])
    if "tuple" in value:
        return tuple(decoded(each) for each in value["tuple"])
    if "function" in value:
        module, name = value["function"].split(":")
        return function_of({"module": module, "name": name, "source": ""})
    raise ValueError(f"a constant that cannot be carried over: {value}")


def is_wide_attention(row: dict[str, Any]) -> bool:
    """Whether it is attention with heads of 256 or more, known to be bad on Volta: the work of another issue."""
    sizes = [value for name, value in row["constants"].items() if "HEAD_SIZE" in name and isinstance(value, int)]
    return "attention" in row["kernel"] and max(sizes, default=0) >= WIDE_HEADS


def print_table(rows: list[dict[str, Any]]) -> None:
    """A line for each kernel: how many variants, how many assemble, their shared memory, and the first failure."""
    groups = collections.defaultdict(list)
    for row in rows:
        groups[is_wide_attention(row), row["kernel"]].append(row)
    print(f"{'kernel':56} variants  fit  fail  shared memory in bytes")
    for (wide, name), group in sorted(groups.items()):
        sizes = [row["shared_memory"] for row in group if "failed" not in row]
        fit = sum(size <= SHARED_MEMORY for size in sizes)
        span = f"{min(sizes)} to {max(sizes)}" if sizes else ""
        mark = " (wide heads)" if wide else ""
        print(f"{name[:42] + mark:56} {len(group):8} {fit:4} {len(group) - len(sizes):5}  {span}")
        for failure in sorted({row["failed"].strip().splitlines()[-1][:150] for row in group if "failed" in row})[:2]:
            print(f"    {failure}")
    good = sum(row.get("shared_memory", SHARED_MEMORY + 1) <= SHARED_MEMORY for row in rows)
    print(f"{good} of {len(rows)} compiled kernels assemble for sm_70 and fit 96 KiB")


if __name__ == "__main__":
    main()
