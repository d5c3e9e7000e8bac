"""Which variants Triton tries of the kernels for gated delta nets (GDN) on compute capability 7.0 to 7.4.

The layers of Qwen3-Next, Qwen3.5 and later compute a prompt with Triton kernels of flash linear attention. At an
engine's first start Triton compiles and times every variant of each that vLLM lists: tiles, warps, stages. The lists
are made for tensor cores, which Triton does not use below 8.0: there it multiplies with FP32 FMA and keeps the operands
in registers. So, of Triton 3.7.1 and its ptxas 12.8:

- Stages change nothing. Triton's NVIDIA backend pipelines loops from 8.0 on; the PTX of two to four is the same.
- 16 of the 31 different variants need far more registers than a thread can have. ptxas then gives up, leaves them 32
  registers and moves everything else through memory, 6 to 83 KB for each thread. Of the kernel that carries the state
  along the prompt all of vLLM's variants are of this kind.

The variants below, looked at for heads of 128, take a processor at most four seconds each, at most 33 KB of shared
memory, and spill at most 1.6 KB. They are among those with the smallest bounds on a V100 for prompts of 2048 tokens, by
their instructions and what they move through shared memory and L1; none has been timed there. vLLM has Triton time 64
tokens and keeps the winner for all prompts, so no variant is here whose worth depends on how many there are. Variants
differ in who computes what: each result is the sum of the same products. Kernels that are not named here keep vLLM's
lists.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

SWITCH = "VLLM_VOLTA_GDN"


@dataclass(frozen=True)
class Variant:
    """Warps of a thread block, and tiles: the kernel's compile-time arguments by name."""

    warps: int
    tiles: Mapping[str, int] = field(default_factory=dict)


_OPERATIONS = "vllm.third_party.flash_linear_attention.ops"

VARIANTS: Mapping[str, tuple[Variant, ...]] = MappingProxyType(
    {
        f"{_OPERATIONS}.chunk_delta_h.chunk_gated_delta_rule_fwd_kernel_h_blockdim64": (
            Variant(8, {"BV": 32}),
            Variant(4, {"BV": 16}),
            Variant(8, {"BV": 16}),
        ),
        f"{_OPERATIONS}.chunk_o.chunk_fwd_kernel_o": (
            Variant(8, {"BK": 32, "BV": 64}),
            Variant(4, {"BK": 16, "BV": 64}),
        ),
        f"{_OPERATIONS}.chunk_scaled_dot_kkt.chunk_scaled_dot_kkt_fwd_kernel": (
            Variant(4, {"BK": 32}),
            Variant(2, {"BK": 32}),
        ),
        f"{_OPERATIONS}.solve_tril.merge_16x16_to_64x64_inverse_kernel": (Variant(2), Variant(4)),
        f"{_OPERATIONS}.wy_fast.recompute_w_u_fwd_kernel": (Variant(4), Variant(8)),
    }
)
"""By the kernel's module and name, the most promising first."""


def is_wanted() -> bool:
    """Whether the lists are to be replaced: on 7.0 to 7.4; elsewhere, or not at all, where VLLM_VOLTA_GDN says so."""
    from vllm.platforms import current_platform

    from vllm_volta.plugin import is_volta

    if not current_platform.is_cuda():
        return False
    if choice := os.environ.get(SWITCH):
        return choice != "0"
    return is_volta()


def register(logger: Any) -> None:
    """Replace the lists where that is wanted.

    The kernels' modules ask for the device's properties when they are imported, which no process may do before it has
    chosen its device. So the lists are replaced when a module makes its autotuners, and at once in modules that are
    there.
    """
    if not is_wanted():
        return
    from triton.runtime.autotuner import Autotuner

    initialise = Autotuner.__init__

    @functools.wraps(initialise)
    def initialise_with_our_variants(self: Any, *arguments: Any, **options: Any) -> None:
        initialise(self, *arguments, **options)
        _replace_variants(self, logger)

    Autotuner.__init__ = initialise_with_our_variants
    for path in VARIANTS:
        module, _, name = path.rpartition(".")
        kernel = getattr(sys.modules.get(module), name, None)
        while kernel is not None and not isinstance(kernel, Autotuner):
            kernel = getattr(kernel, "fn", None)
        if kernel is not None:
            _replace_variants(kernel, logger)
    logger.info(
        "vllm_volta has Triton try few variants of the prefill kernels of gated delta nets, those for GPUs without "
        "tensor cores that Triton uses; %s=0 leaves vLLM's lists",
        SWITCH,
    )


def _replace_variants(autotuner: Any, logger: Any) -> None:
    import triton

    function = autotuner.base_fn
    variants = VARIANTS.get(f"{function.__module__}.{function.__name__}")
    if variants is None:
        return
    theirs = {name for config in autotuner.configs for name in config.kwargs}
    ours = {name for variant in variants for name in variant.tiles}
    if theirs != ours:
        logger.warning(
            "vllm_volta leaves vLLM's variants of %s: it has tiles %s, not %s",
            function.__name__,
            sorted(theirs),
            sorted(ours),
        )
        return
    logger.debug("%d variants of %s instead of %d", len(variants), function.__name__, len(autotuner.configs))
    autotuner.configs = [triton.Config(dict(each.tiles), num_warps=each.warps, num_stages=1) for each in variants]
