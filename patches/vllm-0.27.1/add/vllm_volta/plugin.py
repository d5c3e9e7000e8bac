"""What vLLM calls before it does anything else, in each of its processes.

What is registered depends on the platform:
- CUDA, compute capability 7.0 to 7.4: the kernels for linear layers, before vLLM's own, and, where its compiled kernels
  are, the attention backend CUSTOM, which the patch 0005-selection puts before vLLM's own on these devices;
- CPU: the kernels for linear layers, after vLLM's own, so that NVFP4 and FP8 checkpoints can be served without a GPU;
- anything else: no kernel, vLLM has better ones.
The name quasar_nvfp4 is known everywhere.

Environment variables, the same in all processes of an engine:
- VLLM_VOLTA_DISABLE=1 switches all of it off.
- VLLM_VOLTA_FORCE=1 registers the kernels before vLLM's own on any CUDA device, and the attention backend, which
  `--attention-backend CUSTOM` then names.
- VLLM_VOLTA_ATTENTION=0 leaves attention to vLLM's own backends; so does `--attention-backend TRITON_ATTN`.
- VLLM_VOLTA_GDN=0 leaves vLLM's lists of what Triton tries for gated delta nets (gdn.py); =1 replaces them on any CUDA
  device. Unset: on 7.0 to 7.4.
- VLLM_VOLTA_PANELS=0 keeps weights as checkpoints have them: a tile of a weight becomes floating point at each call
  and cuBLAS multiplies with it. =1 makes panels of weights (panels.py) even without compiled kernels for them. Unset:
  panels where the compiled kernels are and the model is float16.
- VLLM_VOLTA_FRAGMENTS=quad-pairs or octets: the tensor cores that panels are made for, those of 7.0 or those of 8.0 and
  later. Unset: those of the device. Devices of 8.0 and later run both, quad pairs slowly.
- VLLM_DISABLED_KERNELS, vLLM's own: VoltaNvFp4LinearKernel, VoltaFp8LinearKernel or both, with a comma.
"""

from __future__ import annotations

import functools
import inspect
import os

DISABLE = "VLLM_VOLTA_DISABLE"
FORCE = "VLLM_VOLTA_FORCE"
PANELS = "VLLM_VOLTA_PANELS"
FRAGMENTS = "VLLM_VOLTA_FRAGMENTS"
ATTENTION = "VLLM_VOLTA_ATTENTION"
ATTENTION_BACKEND = "vllm_volta.attention.VoltaAttentionBackend"
# The name of these kernels in --linear-backend.
BACKEND = "volta"


@functools.cache
def register() -> None:
    """Register what this platform needs; further calls in the same process do nothing."""
    from vllm.logger import init_logger

    from vllm_volta import compile_cache

    logger = init_logger(f"vllm.{__name__}")
    compile_cache.add_variables((DISABLE, FORCE, PANELS, FRAGMENTS, ATTENTION))
    if _is_set(DISABLE):
        logger.info("vllm_volta is switched off by %s", DISABLE)
        return

    from vllm_volta import gdn, quasar

    quasar.register()
    gdn.register(logger)
    if (place := _place()) is not None:
        _register_kernels(prepend=place == "before", logger=logger)


def _place() -> str | None:
    """Where the kernels go in vLLM's lists on this platform: before or after its own; None for nowhere."""
    from vllm.platforms import current_platform

    if current_platform.is_cpu():
        return "after"
    if not current_platform.is_cuda():
        return None
    if _is_set(FORCE):
        return "before"
    return "before" if is_volta() else None


def is_volta() -> bool:
    """Whether the current CUDA device is one of compute capability 7.0 to 7.4."""
    from vllm.platforms import current_platform

    capability = current_platform.get_device_capability()
    return capability is not None and (7, 0) <= tuple(capability) < (7, 5)


def _is_set(switch: str) -> bool:
    return os.environ.get(switch, "0") not in ("", "0")


def _register_kernels(prepend: bool, logger) -> None:
    from vllm.model_executor.kernels.linear import register_linear_kernel
    from vllm.platforms import current_platform

    from vllm_volta.extension import load_extension
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
        why = load_extension()
        if why is None:
            logger.info("vllm_volta multiplies and dequantises with its compiled kernels")
        else:
            logger.warning("vllm_volta dequantises with PyTorch, its compiled kernels are not there: %s", why)
        _register_attention(why, logger)


def _register_attention(missing: str | None, logger) -> None:
    """Register the attention backend on CUDA, or say why not. missing: why there are no compiled kernels, or None."""
    from vllm.v1.attention.backends.registry import AttentionBackendEnum, register_backend

    if os.environ.get(ATTENTION, "1") == "0":
        logger.info("vllm_volta leaves attention to vLLM's own backends: %s=0", ATTENTION)
    elif missing is not None:
        logger.warning("vllm_volta leaves attention to vLLM's own backends, its kernels are not there: %s", missing)
    elif AttentionBackendEnum.CUSTOM.is_overridden():
        taken = AttentionBackendEnum.CUSTOM.get_path()
        logger.warning("vllm_volta leaves attention to %s, which another plugin registered as CUSTOM", taken)
    else:
        register_backend(AttentionBackendEnum.CUSTOM, ATTENTION_BACKEND)
        chosen = "chosen" if is_volta() else "not chosen on this device, but by --attention-backend CUSTOM,"
        logger.info(
            "vllm_volta registered the attention backend CUSTOM, %s for float16; --attention-backend TRITON_ATTN or "
            "%s=0 takes vLLM's own",
            chosen,
            ATTENTION,
        )
