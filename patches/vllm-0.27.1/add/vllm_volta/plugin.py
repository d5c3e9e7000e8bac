"""What vLLM calls before it does anything else, in each of its processes.

What is registered depends on the platform:
- CUDA, compute capability 7.0 to 7.4: the kernels, before vLLM's own;
- CPU: the kernels, after vLLM's own, so that NVFP4 and FP8 checkpoints can be served without a GPU;
- anything else: no kernel, vLLM has better ones.
The name quasar_nvfp4 is known everywhere. VLLM_VOLTA_DISABLE=1 switches all of it off.
"""

from __future__ import annotations

import functools
import inspect
import os

DISABLE = "VLLM_VOLTA_DISABLE"
# The name of these kernels in --linear-backend.
BACKEND = "volta"


@functools.cache
def register() -> None:
    """Register what this platform needs; further calls in the same process do nothing."""
    from vllm.logger import init_logger

    logger = init_logger(f"vllm.{__name__}")
    if os.environ.get(DISABLE, "0") not in ("", "0"):
        logger.info("vllm_volta is switched off by %s", DISABLE)
        return

    from vllm_volta import quasar

    quasar.register()
    if (place := _place()) is not None:
        _register_kernels(prepend=place == "before", logger=logger)


def _place() -> str | None:
    """Where the kernels go in vLLM's lists on this platform: before or after its own; None for nowhere."""
    from vllm.platforms import current_platform

    if current_platform.is_cpu():
        return "after"
    capability = current_platform.get_device_capability() if current_platform.is_cuda() else None
    return "before" if capability is not None and (7, 0) <= tuple(capability) < (7, 5) else None


def _register_kernels(prepend: bool, logger) -> None:
    from vllm.model_executor.kernels.linear import register_linear_kernel
    from vllm.platforms import current_platform

    from vllm_volta import ops
    from vllm_volta.fp8 import VoltaFp8LinearKernel
    from vllm_volta.nvfp4 import VoltaNvFp4LinearKernel

    kernels = {
        "nvfp4": VoltaNvFp4LinearKernel,
        "fp8": VoltaFp8LinearKernel,
        "fp8_block": VoltaFp8LinearKernel,
        "wfp8a16": VoltaFp8LinearKernel,
    }
    is_patched = "prepend" in inspect.signature(register_linear_kernel).parameters
    options = {"prepend": prepend, "backend": BACKEND} if is_patched else {}
    registered = []
    for kernel_type, kernel in kernels.items():
        try:
            register_linear_kernel(kernel, current_platform._enum, kernel_type, **options)
        except ValueError as error:
            logger.warning("vllm_volta cannot register %s for %s: %s", kernel.__name__, kernel_type, error)
        else:
            registered.append(f"{kernel.__name__} for {kernel_type}")
    logger.info("vllm_volta registered %s", ", ".join(registered))
    if not is_patched:
        logger.warning(
            "This vLLM lacks the patches 0004-admission and 0005-selection: it keeps its own kernels before those of "
            "vllm_volta, takes no other kernel than Marlin for NVFP4 without activation scales, and refuses most "
            "quantised checkpoints below compute capability 7.5"
        )
    if current_platform.is_cuda():
        why = ops.load_extension()
        if why is None:
            logger.info("vllm_volta dequantises with its compiled kernels")
        else:
            logger.warning("vllm_volta dequantises with PyTorch, its compiled kernels are not there: %s", why)
