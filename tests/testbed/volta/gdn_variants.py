"""The kernels of gated delta nets on one device: `python gdn_variants.py DOCUMENT`, JSON on standard output.

Nothing is launched: vLLM's own wrappers choose types, grids and tiles for tensors on the CPU, and what Triton would
time is compiled down to machine code.

DOCUMENT (JSON): cuobjdump (the path of that tool).
Answers: wanted (by compute capability and switch, whether the lists are replaced); how many variants Triton would try
of each kernel, and the log: off (switched off), on, loaded later (modules that are loaded then), other tiles (of a
kernel that has other tiles than we know of); stages (how many different PTX texts one kernel has with 1, 2 and 4
stages); compiled (each variant's kernel, warps, tiles, shared memory, registers, stack in bytes).
"""

from __future__ import annotations

import importlib
import json
import logging
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import fake_cuda  # type: ignore[import-not-found]

HEADS, KEY_HEADS, SIZE, TOKENS = 48, 16, 128, 64
"""Qwen3.6-27B's layers, and the tokens of vLLM's own warm-up."""
RESOURCES = re.compile(r"REG:(\d+) STACK:(\d+)")


def main() -> None:
    """Write the answers."""
    request = json.loads(sys.argv[1])
    output, sys.stdout = sys.stdout, sys.stderr  # vLLM's log goes to standard output
    fake_cuda.install(fake_cuda.DEVICES[7, 0], flash_attention=False)
    from vllm_volta import gdn

    lines: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
    logger = logging.getLogger("gdn")
    logger.setLevel(logging.INFO)
    logger.addHandler(handler)

    answers: dict[str, Any] = {"wanted": wanted()}
    os.environ[gdn.SWITCH] = "0"
    gdn.register(logger)
    answers["off"] = {"counts": counts(gdn.VARIANTS), "log": list(lines)}
    del os.environ[gdn.SWITCH]
    gdn.register(logger)
    answers["on"] = {"counts": counts(gdn.VARIANTS), "log": list(lines)}
    for module in {path.rpartition(".")[0] for path in gdn.VARIANTS}:
        importlib.reload(sys.modules[module])
    answers["loaded later"] = {"counts": counts(gdn.VARIANTS)}
    lines.clear()
    answers["other tiles"] = {"counts": with_other_tiles(gdn.VARIANTS), "log": list(lines)}
    answers |= {"stages": stages(), "compiled": compiled(request["cuobjdump"])}
    json.dump(answers, output)


def wanted() -> dict[str, bool]:
    """Whether the lists are replaced: by compute capability, and by what the switch says there."""
    from vllm.platforms import current_platform
    from vllm.platforms.interface import DeviceCapability
    from vllm_volta import gdn

    platform, found = type(current_platform), {}
    kept = platform.get_device_capability
    for capability in ((7, 0), (7, 2), (7, 5), (8, 0), (9, 0)):
        platform.get_device_capability = classmethod(lambda cls, device_id=0, c=capability: DeviceCapability(*c))
        for choice in ("", "0", "1"):
            os.environ[gdn.SWITCH] = choice
            found[f"{capability[0]}.{capability[1]} {choice}".strip()] = gdn.is_wanted()
    platform.get_device_capability = kept
    del os.environ[gdn.SWITCH]
    return found


def autotuner(path: str) -> Any:
    """That of a kernel, by the kernel's module and name."""
    from triton.runtime.autotuner import Autotuner

    module, _, name = path.rpartition(".")
    kernel = getattr(importlib.import_module(module), name)
    while not isinstance(kernel, Autotuner):
        kernel = kernel.fn
    return kernel


def counts(paths: Iterable[str]) -> dict[str, int]:
    """How many variants Triton would try."""
    return {path: len(autotuner(path).configs) for path in paths}


def with_other_tiles(paths: Iterable[str]) -> int:
    """How many variants Triton would try of a kernel of a known name that has other tiles than we know of."""
    import triton

    [path] = [path for path in paths if path.endswith("chunk_fwd_kernel_o")]
    function = autotuner(path).fn
    return len(triton.autotune([triton.Config({"BK": 32}), triton.Config({"BK": 64})], key=[])(function).configs)


def stages() -> int:
    """Of the kernel with the most work for a pipeline: a loop of loads and multiplications."""
    from vllm.third_party.flash_linear_attention.ops import chunk_scaled_dot_kkt as module

    return len({kkt(module, num_warps=4, num_stages=count, BK=32).asm["ptx"] for count in (1, 2, 4)})


def kkt(module: Any, **options: Any) -> Any:
    """The first kernel of the prefill, compiled."""
    import torch

    key = torch.zeros(1, TOKENS, KEY_HEADS, SIZE, dtype=torch.float16)
    rate = torch.zeros(1, TOKENS, HEADS)
    kernel = module.chunk_scaled_dot_kkt_fwd_kernel.fn.fn
    return kernel.warmup(
        key,
        rate,
        rate,
        torch.zeros(1, TOKENS, HEADS, 64),
        None,
        None,
        TOKENS,
        H=HEADS,
        Hg=KEY_HEADS,
        K=SIZE,
        BT=64,
        IS_VARLEN=False,
        USE_G=True,
        CAST_DOT_TO_K_DTYPE=False,
        grid=(1,),
        **options,
    )


def compiled(cuobjdump: str) -> list[dict[str, Any]]:
    """Every variant of every kernel that the prefill of a layer launches."""
    import torch
    from triton.runtime.autotuner import Autotuner
    from vllm.third_party.flash_linear_attention.ops.chunk import chunk_gated_delta_rule_fwd

    found: list[dict[str, Any]] = []

    def compile_all(self: Any, *arguments: Any, warmup: bool, **options: Any) -> None:
        kernels = self.warmup(*arguments, **options)
        for config, kernel in zip(self.configs, kernels, strict=True):
            registers, stack = resources(kernel.asm["cubin"], cuobjdump)
            found.append(
                {
                    "kernel": self.base_fn.__name__,
                    "warps": config.num_warps,
                    "tiles": config.kwargs,
                    "shared_memory": kernel.metadata.shared,
                    "registers": registers,
                    "stack": stack,
                }
            )

    Autotuner.run = compile_all
    half = torch.float16
    key = torch.zeros(1, TOKENS, KEY_HEADS, SIZE, dtype=half)
    rate = torch.zeros(1, TOKENS, HEADS)
    chunk_gated_delta_rule_fwd(
        key,
        key.clone(),
        torch.zeros(1, TOKENS, HEADS, SIZE, dtype=half),
        rate,
        rate.clone(),
        0.1,
        torch.zeros(1, HEADS, SIZE, SIZE),
        True,
        cu_seqlens=torch.tensor([0, TOKENS], dtype=torch.int32),
    )
    return found


def resources(machine_code: bytes, cuobjdump: str) -> tuple[int, int]:
    """Registers and bytes of stack of a thread."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "kernel.cubin"
        file.write_bytes(machine_code)
        done = subprocess.run([cuobjdump, "-res-usage", str(file)], capture_output=True, text=True, check=True)
    [(registers, stack)] = RESOURCES.findall(done.stdout)
    return int(registers), int(stack)


if __name__ == "__main__":
    main()
