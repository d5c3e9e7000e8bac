"""What the plugin and our patches make of a CUDA device of compute capability 7.0 (fake_cuda of ../volta).

`python choices.py '{"backend": "module.Class"}'` writes what was chosen under which circumstances as JSON. backend: the
path of a class that stands for a registered attention backend.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path += [str(Path(__file__).parents[1] / "volta"), str(Path(__file__).parent)]

import fake_cuda  # type: ignore[import-not-found]  # noqa: E402


def main() -> None:
    output, sys.stdout = sys.stdout, sys.stderr  # vLLM's log goes to standard output
    request = json.loads(sys.argv[1])
    fake_cuda.install(fake_cuda.DEVICES[7, 0], flash_attention=False)
    import torch
    from vllm.config import VllmConfig, set_current_vllm_config
    from vllm.model_executor.kernels import linear
    from vllm.model_executor.layers.quantization.compressed_tensors.schemes import CompressedTensorsW4A4Fp4
    from vllm.model_executor.layers.quantization.fp8 import Fp8Config
    from vllm.model_executor.layers.quantization.utils import quant_utils as keys
    from vllm_volta import plugin

    lines: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("vllm").addHandler(handler)
    found: dict[str, Any] = {}

    def said(action: Callable[[], Any]) -> list[str]:
        lines.clear()
        action()
        return list(lines)

    def kernels() -> dict[str, Any]:
        half, shape = torch.float16, (4096, 4096)
        block = keys.kFp8Dynamic128Sym, keys.kFp8Static128BlockSym
        return {
            "nvfp4": answer(linear.init_nvfp4_linear_kernel),
            "nvfp4 a16": answer(linear.init_nvfp4_linear_kernel, True),
            "fp8 block": answer(linear.init_fp8_linear_kernel, *block, half, half, shape),
            "minimum nvfp4": CompressedTensorsW4A4Fp4.get_min_capability(),
            "minimum fp8": Fp8Config.get_min_capability(),
        }

    config = VllmConfig()
    with set_current_vllm_config(config):
        os.environ[plugin.DISABLE] = "1"
        found["disabled"] = {"log": said(plugin.register.__wrapped__), **kernels()}
        os.environ[plugin.DISABLE] = "0"
        found["places"] = places()
        os.environ[plugin.FORCE] = "1"
        found["forced places"] = places()
        os.environ[plugin.FORCE] = "0"

        log = said(plugin.register)
        found["registered"] = {"again": said(plugin.register), "log": log, "choice": said(kernels), **kernels()}
        os.environ["VLLM_DISABLED_KERNELS"] = "VoltaNvFp4LinearKernel"
        found["one kernel disabled"] = kernels()
        os.environ["VLLM_DISABLED_KERNELS"] = ""
        for backend in ("volta", "marlin"):
            config.kernel_config.linear_backend = backend
            found[f"backend {backend}"] = kernels()
        config.kernel_config.linear_backend = "auto"

    found["attention"] = attention(request["backend"])
    json.dump(found, output)


def places() -> dict[str, str | None]:
    """Where our kernels go on CUDA devices of some compute capabilities."""
    from vllm.platforms import current_platform
    from vllm.platforms.interface import DeviceCapability
    from vllm_volta import plugin

    platform, found = type(current_platform), {}
    kept = platform.get_device_capability
    for capability in ((7, 0), (7, 2), (7, 5), (8, 0), (9, 0)):
        platform.get_device_capability = classmethod(lambda cls, device_id=0, c=capability: DeviceCapability(*c))
        found[".".join(map(str, capability))] = plugin._place()
    platform.get_device_capability = kept
    return found


def answer(choose: Callable[..., Any], *arguments: Any) -> str:
    """The name of the chosen class, or why there is none."""
    try:
        return type(choose(*arguments)).__name__
    except ValueError as error:
        return str(error)


def attention(backend: str) -> dict[str, Any]:
    """The order of attention backends, without and with a registered one."""
    import torch
    from vllm.platforms import cuda, current_platform
    from vllm.platforms.interface import DeviceCapability
    from vllm.v1.attention.backends.registry import AttentionBackendEnum, register_backend
    from vllm.v1.attention.selector import AttentionSelectorConfig

    def order(capability: tuple[int, int]) -> list[str]:
        cuda._get_backend_priorities.cache_clear()
        return [each.name for each in cuda._get_backend_priorities(False, DeviceCapability(*capability))]

    config = AttentionSelectorConfig(head_size=128, dtype=torch.float16, kv_cache_dtype="auto", block_size=None)
    found: dict[str, Any] = {"7.0": order((7, 0)), "7.5": order((7, 5)), "8.0": order((8, 0))}
    register_backend(AttentionBackendEnum.CUSTOM, backend)
    found |= {"7.0 with CUSTOM": order((7, 0)), "8.0 with CUSTOM": order((8, 0))}
    found["chosen"] = current_platform.get_attn_backend_cls(None, config, 32)
    return found


if __name__ == "__main__":
    main()
