"""Quantised weights for the harness: random or made for a purpose, as panels and in float64.

The float64 values come from the codes as a checkpoint has them, by reference.py; the panels from the package's repack.
So a mistake in either the repack or a kernel shows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from vllm_volta import panels

from bench.kernels import reference

FORMATS = ("nvfp4", "fp8 tensor", "fp8 channel", "fp8 block")
FP8_BLOCK = 128


@dataclass(frozen=True)
class Weight:
    """A weight [n, k] and the arguments that the operators take for it.

    scales: the words of E4M3 scales of NVFP4, the float32 scales of blocks of FP8, or None. factors: NVFP4's row_scale
    of each fused matrix of `widths` rows.
    """

    format: str
    n: int
    k: int
    codes: torch.Tensor
    scales: torch.Tensor | None
    row_scale: torch.Tensor
    arrivals: torch.Tensor
    fragments: int
    exact: torch.Tensor | None = None
    block: int = 0
    widths: tuple[int, ...] = ()
    factors: tuple[float, ...] = ()

    def on(self, device: torch.device) -> Weight:
        """The same on another device, without its float64 values."""
        scales = None if self.scales is None else self.scales.to(device)
        codes, row_scale, arrivals = (each.to(device) for each in (self.codes, self.row_scale, self.arrivals))
        return replace(self, codes=codes, scales=scales, row_scale=row_scale, arrivals=arrivals, exact=None)

    @property
    def stored_bytes(self) -> int:
        held = [self.codes, self.row_scale, *([] if self.scales is None else [self.scales])]
        return sum(each.numel() * each.element_size() for each in held)

    def panels(self, x: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
        """x [m, k] times the weight by the kernels for panels, whatever m."""
        operators = torch.ops.vllm_volta
        if self.format == "nvfp4":
            return operators.nvfp4_panels(
                x, self.codes, self.scales, self.row_scale, bias, self.arrivals, self.n, self.k, self.fragments
            )
        return operators.fp8_panels(
            x, self.codes, self.scales, self.row_scale, bias, self.arrivals, self.n, self.k, self.block, self.block,
            self.fragments,
        )  # fmt: skip

    def linear(self, x: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
        """x [..., k] times the weight as a layer of vLLM does it."""
        operators = torch.ops.vllm_volta
        if self.format == "nvfp4":
            return operators.nvfp4_panel_linear(
                x, self.codes, self.scales, self.row_scale, bias, self.arrivals, self.n, self.k, self.widths,
                self.factors, self.fragments,
            )  # fmt: skip
        return operators.fp8_panel_linear(
            x, self.codes, self.scales, self.row_scale, bias, self.arrivals, self.n, self.k, self.block, self.block,
            self.fragments,
        )  # fmt: skip

    def dequantized(self, first: int, last: int) -> torch.Tensor:
        """Rows first to last in fp16: of NVFP4 without the row's factor, times 2^-14; of FP8 the whole value."""
        operators = torch.ops.vllm_volta
        if self.format == "nvfp4":
            return operators.dequantize_nvfp4_panels(self.codes, self.scales, first, last, self.k, self.fragments)
        # row_scale of the multiplication holds 2^8, which undoes the kernels' 2^-8.
        return operators.dequantize_fp8_panels(
            self.codes, self.scales, self.row_scale, first, last, self.k, self.block, self.block, self.fragments
        )


def _looked_up(values: list[float], codes: torch.Tensor) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64, device=codes.device)[codes.long()]


def _arrivals(codes: torch.Tensor) -> torch.Tensor:
    """As vllm_volta.layout.new_arrivals, which needs vLLM: one for each group of rows."""
    return torch.zeros(codes.shape[0], dtype=torch.int32, device=codes.device)


def nvfp4(
    nibbles: torch.Tensor,
    scale_codes: torch.Tensor,
    widths: tuple[int, ...],
    globals_: tuple[float, ...],
    fragments: int,
) -> Weight:
    """From codes 0 to 15 [n, k], E4M3 codes [n, k / 16] and a float32 factor for each fused matrix."""
    n, k = nibbles.shape
    device = nibbles.device
    packed = (nibbles[:, 0::2] | (nibbles[:, 1::2] << 4)).contiguous()
    codes, scales = panels.nvfp4_panels(packed, scale_codes.view(torch.float8_e4m3fn), fragments)
    per_row = torch.tensor(globals_, dtype=torch.float32, device=device).repeat_interleave(
        torch.tensor(widths, device=device)
    )
    row_scale = per_row * 2.0**14
    values = _looked_up(reference.e2m1_values(), nibbles)
    spread = _looked_up(reference.e4m3_values(), scale_codes).repeat_interleave(reference.NVFP4_BLOCK, dim=1)
    exact = values * spread * per_row.double()[:, None]
    factors = tuple(torch.tensor(globals_, dtype=torch.float32).mul(2.0**14).tolist())
    return Weight(
        "nvfp4", n, k, codes, scales, row_scale, _arrivals(codes), fragments, exact, 0, widths, factors
    )  # fmt: skip


def fp8(values: torch.Tensor, row_scale: torch.Tensor, block_scale: torch.Tensor | None, fragments: int) -> Weight:
    """From E4M3 codes [n, k], a float32 factor for each row [n], and one for each 128 x 128 block or None."""
    n, k = values.shape
    exact = _looked_up(reference.e4m3_values(), values) * row_scale.double()[:, None]
    if block_scale is not None:
        spread = block_scale.double().repeat_interleave(FP8_BLOCK, 0).repeat_interleave(FP8_BLOCK, 1)
        exact *= spread[:n, :k]
    name = "fp8 block" if block_scale is not None else "fp8 channel"
    codes = panels.fp8_panels(values.view(torch.float8_e4m3fn), fragments)
    block = FP8_BLOCK if block_scale is not None else 0
    return Weight(name, n, k, codes, block_scale, row_scale * 2.0**8, _arrivals(codes), fragments, exact, block)


def random_weight(format_: str, n: int, k: int, fragments: int, generator: torch.Generator) -> Weight:
    """Every code, scales over some powers of two, values of the size that weights have."""
    device = generator.device

    def whole(low: int, high: int, *shape: int) -> torch.Tensor:
        return torch.randint(low, high, shape, dtype=torch.uint8, device=device, generator=generator)

    if format_ == "nvfp4":
        widths = (n,) if n < 64 else (n // 32 // 2 * 32, n - n // 32 // 2 * 32)
        # Block scales of 0.5 to 448, some negative: those are what the repack turns.
        scales = whole(0x30, 0x7F, n, k // 16) | (whole(0, 2, n, k // 16) << 7)
        return nvfp4(whole(0, 16, n, k), scales, widths, (0.0007, 0.0011)[: len(widths)], fragments)
    values = whole(0, 0x7F, n, k) | (whole(0, 2, n, k) << 7)

    def factors(*shape: int) -> torch.Tensor:
        return torch.rand(shape, device=device, generator=generator) * 0.001 + 0.0002

    if format_ == "fp8 tensor":
        return fp8(values, factors(1).expand(n).contiguous(), None, fragments)
    if format_ == "fp8 channel":
        return fp8(values, factors(n), None, fragments)
    blocks = factors(-(-n // FP8_BLOCK), -(-k // FP8_BLOCK))
    return fp8(values, torch.ones(n, device=device), blocks, fragments)


def random_panels(format_: str, n: int, k: int, fragments: int, generator: torch.Generator) -> Weight:
    """Random bits as panels, for timing: no float64 values, never zeros, never NaN."""
    device = generator.device
    groups, width = -(-n // 32), -(-k // 64)

    def random_bytes(*shape: int) -> torch.Tensor:
        return torch.randint(0, 256, shape, dtype=torch.uint8, device=device, generator=generator)

    row_scale = torch.full((n,), 0.5, device=device)
    if format_ == "nvfp4":
        scales = random_bytes(groups, width, 128) % 24 + 0x28
        codes = random_bytes(groups, width, 1024)
        return Weight(
            "nvfp4", n, k, codes, scales, row_scale, _arrivals(codes), fragments, None, 0, (n,), (0.5,)
        )  # fmt: skip
    codes = random_bytes(groups, width, 2048)
    # The highest exponent bit of both codes of each half word (panels.h): without it no code is NaN.
    codes.view(torch.int16).bitwise_and_(0xDFBF - 0x10000)
    scales = None
    if format_ == "fp8 block":
        shape = (-(-n // FP8_BLOCK), -(-k // FP8_BLOCK))
        scales = torch.rand(shape, device=device, generator=generator) + 0.5
    block = FP8_BLOCK if scales is not None else 0
    return Weight(format_, n, k, codes, scales, row_scale, _arrivals(codes), fragments, None, block)
