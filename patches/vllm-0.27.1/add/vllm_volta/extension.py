"""The compiled operators of torch.ops.vllm_volta (csrc/bindings.cpp), where they were built: for float16 on CUDA."""

from __future__ import annotations

import importlib
import importlib.util

import torch

EXTENSION = "vllm_volta._C"

# The shapes that compilers are told live as long as this object.
_LIBRARY = torch.library.Library("vllm_volta", "FRAGMENT")


def load_extension() -> str | None:
    """Load the compiled kernels if they were built; returns why they are not there, None when they are."""
    if importlib.util.find_spec(EXTENSION) is None:
        return "they were not built"
    try:
        importlib.import_module(EXTENSION)
    except ImportError as error:
        return str(error)
    register_fakes(_LIBRARY)
    return None


def serves(x: torch.Tensor, operator: str) -> bool:
    """Whether this operator was compiled and is for activations like these."""
    return x.is_cuda and x.dtype == torch.float16 and hasattr(torch.ops.vllm_volta, operator)


def register_fakes(library: torch.library.Library) -> None:
    """Tell compilers the shapes of what the compiled operators return."""
    for name, fake in FAKES.items():
        library._register_fake(name, fake)


def _dequantize_nvfp4(
    packed: torch.Tensor, block_scale: torch.Tensor, global_scale: torch.Tensor, n: int, k: int
) -> torch.Tensor:
    return packed.new_empty((n, k), dtype=torch.float16)


def _dequantize_fp8(weight: torch.Tensor, scale: torch.Tensor, block_n: int, block_k: int) -> torch.Tensor:
    return weight.new_empty(weight.shape, dtype=torch.float16)


def _nvfp4_panels(
    x: torch.Tensor,
    codes: torch.Tensor,
    scales: torch.Tensor,
    row_scale: torch.Tensor,
    bias: torch.Tensor | None,
    arrivals: torch.Tensor,
    n: int,
    k: int,
    fragments: int,
) -> torch.Tensor:
    return x.new_empty((x.shape[0], n))


def _fp8_panels(
    x: torch.Tensor,
    codes: torch.Tensor,
    block_scale: torch.Tensor | None,
    row_scale: torch.Tensor,
    bias: torch.Tensor | None,
    arrivals: torch.Tensor,
    n: int,
    k: int,
    block_n: int,
    block_k: int,
    fragments: int,
) -> torch.Tensor:
    return x.new_empty((x.shape[0], n))


def _dequantize_nvfp4_panels(
    codes: torch.Tensor, scales: torch.Tensor, first: int, last: int, k: int, fragments: int
) -> torch.Tensor:
    return codes.new_empty((last - first, k), dtype=torch.float16)


def _dequantize_fp8_panels(
    codes: torch.Tensor,
    block_scale: torch.Tensor | None,
    row_scale: torch.Tensor,
    first: int,
    last: int,
    k: int,
    block_n: int,
    block_k: int,
    fragments: int,
) -> torch.Tensor:
    return codes.new_empty((last - first, k), dtype=torch.float16)


def _nothing(*_: object) -> None:
    """Of operators that write to what they are given."""


FAKES = {
    "dequantize_nvfp4": _dequantize_nvfp4,
    "dequantize_fp8": _dequantize_fp8,
    "nvfp4_panels": _nvfp4_panels,
    "fp8_panels": _fp8_panels,
    "dequantize_nvfp4_panels": _dequantize_nvfp4_panels,
    "dequantize_fp8_panels": _dequantize_fp8_panels,
    "write_cache": _nothing,
    "paged_attention": _nothing,
}
