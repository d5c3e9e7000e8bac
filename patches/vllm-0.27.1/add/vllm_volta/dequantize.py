"""Quantised weights as floating point, in plain PyTorch: the same on every device.

Only element-wise arithmetic, no table and no look at values, so that it may be captured in a CUDA graph.
"""

from __future__ import annotations

import torch

NVFP4_BLOCK = 16


def e2m1_values(packed: torch.Tensor) -> torch.Tensor:
    """The float16 values of E2M1 codes (OCP microscaling formats 1.0): 0, 0.5, 1, 1.5, 2, 3, 4, 6 and their negatives.

    packed: uint8 [..., k / 2], of two neighbours the first in the low four bits. Returns [..., k].
    """
    codes = torch.stack((packed & 0xF, packed >> 4), dim=-1).flatten(-2).to(torch.int16)
    # Exponent and mantissa of E2M1 are the lowest exponent bits and the highest mantissa bit of a float16 whose
    # bias is 15 instead of 1. That also holds for 0.5, which is subnormal in both.
    bits = ((codes & 7) << 9) | ((codes & 8) << 12)
    return bits.view(torch.float16) * 2.0**14


def nvfp4(
    packed: torch.Tensor, block_scale: torch.Tensor, global_scale: torch.Tensor, dtype: torch.dtype
) -> torch.Tensor:
    """The weight [n, k] of NVFP4 codes: code * (block scale * global scale) in float32, rounded to `dtype`.

    packed: uint8 [n, k / 2]. block_scale: float8_e4m3fn [n, k / 16]. global_scale: one float32, a multiplier
    (compressed-tensors stores its reciprocal, ModelOpt stores it as weight_scale_2).
    """
    rows, half = packed.shape
    scale = block_scale.to(torch.float32) * global_scale.reshape(1, 1)
    values = e2m1_values(packed).view(rows, half * 2 // NVFP4_BLOCK, NVFP4_BLOCK)
    return (values * scale.unsqueeze(-1)).view(rows, half * 2).to(dtype)


def fp8(weight: torch.Tensor, scale: torch.Tensor, block_n: int, block_k: int, dtype: torch.dtype) -> torch.Tensor:
    """The weight [n, k] of E4M3 codes: code * scale in float32, rounded to `dtype`.

    weight: float8_e4m3fn [n, k]. scale: [ceil(n / block_n), ceil(k / block_k)]; with blocks of 0 x 0 one value for all
    or one for each row.
    """
    rows, columns = weight.shape
    scale = scale.to(torch.float32)
    if block_n == 0:
        return (weight.to(torch.float32) * scale.reshape(-1, 1)).to(dtype)
    spread = scale[:, None, :, None].expand(-1, block_n, -1, block_k).flatten(2).flatten(0, 1)
    return (weight.to(torch.float32) * spread[:rows, :columns]).to(dtype)
