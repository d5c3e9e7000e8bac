"""Writes down each kernel that Triton compiles in a vLLM process; a plugin of the group `vllm.general_plugins`.

It does nothing unless H200_TRITON_CAPTURE names a folder. Each process writes a file of its own there, one JSON object
a line: what `triton_sm70.py` needs to compile the same kernel for another GPU. Kernels of torch.compile are among them.
"""

from __future__ import annotations

import functools
import json
import os
from pathlib import Path
from typing import Any

FOLDER = "H200_TRITON_CAPTURE"


@functools.cache
def install() -> None:
    """Let triton.compile note what it is asked for; the name is looked up at each function's first launch."""
    if not os.environ.get(FOLDER):
        return
    folder = Path(os.environ[FOLDER])
    folder.mkdir(parents=True, exist_ok=True)
    import triton
    import triton.compiler.compiler as compiler

    compile_kernel = compiler.compile

    @functools.wraps(compile_kernel)
    def noting(src: Any, *arguments: Any, **options: Any) -> Any:
        kernel = compile_kernel(src, *arguments, **options)
        if isinstance(src, compiler.ASTSource):
            try:
                line = json.dumps(described(src, kernel))
            except Exception as error:  # noqa: BLE001 - the engine goes on; the table tells of it
                line = json.dumps({"name": src.name, "undescribed": repr(error)})
            with (folder / f"kernels-{os.getpid()}.jsonl").open("a") as lines:
                lines.write(line + "\n")
        return kernel

    compiler.compile = noting
    triton.compiler.compile = noting
    triton.compile = noting


def described(src: Any, kernel: Any) -> dict[str, Any]:
    """A kernel's function, the types and constants it was compiled for, and its options."""
    function = src.fn
    options = {name: getattr(kernel.metadata, name, None) for name in ("num_warps", "num_stages", "enable_fp_fusion")}
    return {
        "name": function.__name__,
        "module": function.__module__,
        "source": function.src,
        "signature": src.signature,
        "constants": [[list(path), encoded(value)] for path, value in src.constants.items()],
        "attributes": [[list(path), value] for path, value in src.attrs.items()],
        "options": options,
        "shared_memory_here": kernel.metadata.shared,
    }


def encoded(value: Any) -> Any:
    """A constant as JSON: a number, text or None as it is, anything else as an object that says what it is."""
    from triton.language import constexpr, dtype
    from triton.runtime.jit import JITFunction

    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, constexpr):
        return encoded(value.value)
    if isinstance(value, dtype):
        return {"dtype": value.name}
    if isinstance(value, (tuple, list)):
        return {"tuple": [encoded(each) for each in value]}
    if isinstance(value, JITFunction):
        return {"function": f"{value.__module__}:{value.__name__}"}
    return {"unknown": repr(value)}
