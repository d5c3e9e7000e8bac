"""Random quantised matrices whose values FP16 holds exactly, and those values.

Scales of whole matrices are powers of two: then code * block scale * matrix scale is a number of FP16, and a plain copy
of the checkpoint holds the same weights, not rounded ones. What two engines make of the two copies differs by nothing
but the order of their sums.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
"""Values of the eight codes without their sign bit (OCP Microscaling Formats 1.0, section 5.3.3)."""
NVFP4_BLOCK = 16
"""Values of a row that share an E4M3 scale."""


@dataclass(frozen=True)
class Nvfp4:
    """codes: uint8 [n, k / 2], the even column in the low half; block_scale: E4M3 [n, k / 16]; scale: of the matrix."""

    codes: torch.Tensor
    block_scale: torch.Tensor
    scale: float


@dataclass(frozen=True)
class Fp8:
    """codes: E4M3 [n, k]; scale: of the matrix."""

    codes: torch.Tensor
    scale: float


def random_nvfp4(n: int, k: int, scale: float, generator: torch.Generator) -> Nvfp4:
    """All 16 codes alike, block scales from 0.5 to 1.875: values of 3.3 * scale in the quadratic mean."""
    device = generator.device
    codes = torch.randint(0, 256, (n, k // 2), dtype=torch.uint8, device=device, generator=generator)
    scales = torch.randint(0x30, 0x40, (n, k // NVFP4_BLOCK), dtype=torch.uint8, device=device, generator=generator)
    return Nvfp4(codes, scales.view(torch.float8_e4m3fn), scale)


def random_fp8(n: int, k: int, scale: float, generator: torch.Generator) -> Fp8:
    """Codes of both signs from 2^-4 to 1.875: values of 0.8 * scale in the quadratic mean."""
    device = generator.device
    codes = torch.randint(0x18, 0x40, (n, k), dtype=torch.uint8, device=device, generator=generator)
    signs = torch.randint(0, 2, (n, k), dtype=torch.uint8, device=device, generator=generator)
    return Fp8((codes | signs << 7).view(torch.float8_e4m3fn), scale)


def nvfp4_values(matrix: Nvfp4) -> torch.Tensor:
    """The matrix in FP16 [n, k].

    Raises ValueError when FP16 cannot hold a value exactly.
    """
    n, half = matrix.codes.shape
    halves = torch.stack((matrix.codes & 15, matrix.codes >> 4), dim=-1).reshape(n, 2 * half).to(torch.int32)
    table = torch.tensor([*E2M1, *(-value for value in E2M1)], device=halves.device)
    scales = matrix.block_scale.to(torch.float32).repeat_interleave(NVFP4_BLOCK, dim=1)
    return _exact(table[halves] * scales * matrix.scale)


def fp8_values(matrix: Fp8) -> torch.Tensor:
    """The matrix in FP16 [n, k].

    Raises ValueError when FP16 cannot hold a value exactly.
    """
    return _exact(matrix.codes.to(torch.float32) * matrix.scale)


def _exact(values: torch.Tensor) -> torch.Tensor:
    half = values.to(torch.float16)
    if not torch.equal(half.to(torch.float32), values):
        raise ValueError("FP16 cannot hold these values exactly")
    return half
