"""Quantised weights as the panels of csrc/panels.h, and back, in plain PyTorch: the same on every device.

A panel's layout moves whole axes of the weight and packs the codes of neighbouring weights into 16-bit halves of words,
so views, permutations and shifts make it. Work goes in slices of SLICE_ELEMENTS weights: beside the weight and its
panels, memory holds a few copies of one slice.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch

from vllm_volta.dequantize import NVFP4_BLOCK

# The kinds of fragments, with the numbers of `enum Fragments`: the order of tensor cores of 7.0, and of 8.0 and later.
QUAD_PAIRS, OCTETS = 0, 1
PANEL_ROWS = 32
PANEL_COLUMNS = 64
NVFP4_PANEL_BYTES = PANEL_ROWS * PANEL_COLUMNS // 2
FP8_PANEL_BYTES = PANEL_ROWS * PANEL_COLUMNS
PANEL_SCALE_BYTES = PANEL_ROWS * PANEL_COLUMNS // NVFP4_BLOCK
# What a code's bits, read as float16, have to be multiplied by to give its value (the exponents' biases differ).
NVFP4_UNIT = 2.0**14
FP8_UNIT = 2.0**8

# 4 Mi weights: about 80 MiB of intermediate results.
SLICE_ELEMENTS = 1 << 22


@dataclass(frozen=True)
class HalfWord:
    """Where the codes of one 16-bit half of a word have their bits.

    bits: of a code without its sign. signs, magnitudes: of each code the place of its sign and of its lowest bit.
    """

    bits: int
    signs: tuple[int, ...]
    magnitudes: tuple[int, ...]

    @property
    def codes(self) -> int:
        return len(self.signs)

    def pack(self, codes: torch.Tensor) -> torch.Tensor:
        """uint8 [..., codes] to int16 [...]."""
        wide = codes.to(torch.int16)
        half = torch.zeros_like(wide[..., 0])
        for index, (sign, lowest) in enumerate(zip(self.signs, self.magnitudes, strict=True)):
            code = wide[..., index]
            half |= ((code >> self.bits) << sign) | ((code & self._mask) << lowest)
        return half

    def unpack(self, half: torch.Tensor) -> torch.Tensor:
        """int16 [...] to uint8 [..., codes]."""
        codes = [
            (((half >> sign) & 1) << self.bits) | ((half >> lowest) & self._mask)
            for sign, lowest in zip(self.signs, self.magnitudes, strict=True)
        ]
        return torch.stack(codes, dim=-1).to(torch.uint8)

    @property
    def _mask(self) -> int:
        return (1 << self.bits) - 1


NVFP4_HALF = HalfWord(bits=3, signs=(15, 12, 14, 13), magnitudes=(9, 6, 3, 0))
FP8_HALF = HalfWord(bits=7, signs=(15, 14), magnitudes=(7, 0))


def nvfp4_panels(packed: torch.Tensor, block_scale: torch.Tensor, fragments: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Panels of an NVFP4 weight: codes uint8 [groups, panels, 1024], scales uint8 [groups, panels, 128].

    packed, block_scale: as in dequantize.nvfp4, k a multiple of 16. A negative block scale becomes positive and the
    signs of its codes turn, which changes no value. Raises ValueError when a block scale is not a number.
    """
    rows, columns = packed.shape[0], packed.shape[1] * 2
    groups, width = _panels_of(rows, columns)
    codes = packed.new_empty((groups, width, NVFP4_PANEL_BYTES))
    scales = packed.new_empty((groups, width, PANEL_SCALE_BYTES))
    for first, last in _slices(rows, columns):
        scale_codes = block_scale[first:last].view(torch.uint8)
        if ((scale_codes & 0x7F) == 0x7F).any():
            raise ValueError("some block scales are not numbers")
        pairs = packed[first:last]
        values = torch.stack((pairs & 0xF, pairs >> 4), dim=-1).flatten(-2)
        values ^= ((scale_codes >> 7) << 3).repeat_interleave(NVFP4_BLOCK, dim=1)
        some = slice(first // PANEL_ROWS, -(-last // PANEL_ROWS))
        codes[some] = _nvfp4_codes(_padded(values, width * PANEL_COLUMNS), fragments)
        scales[some] = _scales(_padded(scale_codes & 0x7F, width * PANEL_COLUMNS // NVFP4_BLOCK), fragments)
    return codes, scales


def nvfp4_rows(
    codes: torch.Tensor, scales: torch.Tensor, first: int, last: int, columns: int, fragments: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows `first` to `last` of an NVFP4 weight, as dequantize.nvfp4 takes them, from its panels."""
    some, inside = _groups_with(first, last)
    halves = codes[some].view(torch.int16).unflatten(-1, (2, PANEL_ROWS, 2, 2, 2))
    # Piece, lane, step of the piece, half of the pairs, half of the word, pair; from there to _weights_of.
    pairs = NVFP4_HALF.unpack(halves).permute(0, 1, 2, 4, 3, 5, 7, 6)
    values = _weights_of(pairs.reshape(*pairs.shape[:2], 4, PANEL_ROWS, 8, 2), fragments)[inside, :columns]
    block_scale = _scales_of(scales[some], fragments)[inside, : columns // NVFP4_BLOCK]
    return values[:, 0::2] | (values[:, 1::2] << 4), block_scale.contiguous().view(torch.float8_e4m3fn)


def fp8_panels(weight: torch.Tensor, fragments: int) -> torch.Tensor:
    """Panels of an FP8 weight: codes uint8 [groups, panels, 2048].

    weight: float8_e4m3fn [n, k], any strides. Raises ValueError when a value is not a number.
    """
    rows, columns = weight.shape
    groups, width = _panels_of(rows, columns)
    codes = torch.empty((groups, width, FP8_PANEL_BYTES), dtype=torch.uint8, device=weight.device)
    for first, last in _slices(rows, columns):
        values = weight[first:last].view(torch.uint8)
        if ((values & 0x7F) == 0x7F).any():
            raise ValueError("some values are not numbers")
        some = slice(first // PANEL_ROWS, -(-last // PANEL_ROWS))
        codes[some] = _fp8_codes(_padded(values, width * PANEL_COLUMNS), fragments)
    return codes


def fp8_rows(codes: torch.Tensor, first: int, last: int, columns: int, fragments: int) -> torch.Tensor:
    """Rows `first` to `last` of an FP8 weight, float8_e4m3fn [last - first, columns], from its panels."""
    some, inside = _groups_with(first, last)
    halves = codes[some].view(torch.int16).unflatten(-1, (4, PANEL_ROWS, 4, 2))
    # Step, lane, word, half of the word, pair; from there to _weights_of.
    pairs = FP8_HALF.unpack(halves).transpose(-1, -2)
    values = _weights_of(pairs.reshape(*pairs.shape[:2], 4, PANEL_ROWS, 8, 2), fragments)[inside, :columns]
    return values.contiguous().view(torch.float8_e4m3fn)


def _panels_of(rows: int, columns: int) -> tuple[int, int]:
    """Groups of rows, and panels of each."""
    return -(-rows // PANEL_ROWS), -(-columns // PANEL_COLUMNS)


def _slices(rows: int, columns: int) -> Iterator[tuple[int, int]]:
    step = max(PANEL_ROWS, SLICE_ELEMENTS // columns // PANEL_ROWS * PANEL_ROWS)
    for first in range(0, rows, step):
        yield first, min(first + step, rows)


def _groups_with(first: int, last: int) -> tuple[slice, slice]:
    """The groups that have these rows, and the rows among those of the groups."""
    begin = first // PANEL_ROWS
    offset = begin * PANEL_ROWS
    return slice(begin, -(-last // PANEL_ROWS)), slice(first - offset, last - offset)


def _padded(values: torch.Tensor, columns: int) -> torch.Tensor:
    """uint8 [rows, columns], rows a multiple of PANEL_ROWS; zeros where `values` has nothing."""
    rows = -(-values.shape[0] // PANEL_ROWS) * PANEL_ROWS
    if values.shape == (rows, columns):
        return values
    padded = values.new_zeros((rows, columns))
    padded[: values.shape[0], : values.shape[1]] = values
    return padded


def _nvfp4_codes(values: torch.Tensor, fragments: int) -> torch.Tensor:
    lanes = _lanes_of(values, fragments)
    # Step as piece and step of the piece; pair as word and pair of the word.
    lanes = lanes.unflatten(2, (2, 2)).unflatten(5, (2, 4)).permute(0, 1, 2, 4, 3, 5, 7, 6)
    return NVFP4_HALF.pack(lanes).reshape(*lanes.shape[:2], -1).view(torch.uint8)


def _fp8_codes(values: torch.Tensor, fragments: int) -> torch.Tensor:
    lanes = _lanes_of(values, fragments).unflatten(4, (4, 2)).transpose(-1, -2)
    return FP8_HALF.pack(lanes).reshape(*lanes.shape[:2], -1).view(torch.uint8)


def _lanes_of(values: torch.Tensor, fragments: int) -> torch.Tensor:
    """[groups * 32, panels * 64] to [group, panel, step (4), lane (32), pair (8), column of the pair (2)]."""
    groups, panels = values.shape[0] // PANEL_ROWS, values.shape[1] // PANEL_COLUMNS
    if fragments == QUAD_PAIRS:
        # Row: lane bits 3 2, lane bit 4, lane bits 1 0. Column: step, pair, column of the pair.
        axes = values.view(groups, 4, 2, 4, panels, 4, 8, 2).permute(0, 4, 5, 2, 1, 3, 6, 7)
    else:
        # Row: pair bit 2, pair bit 0, lane bits 4 3 2. Column: lane bits 1 0, step, pair bit 1, column of the pair.
        axes = values.view(groups, 2, 2, 8, panels, 4, 4, 2, 2).permute(0, 4, 6, 3, 5, 1, 7, 2, 8)
    return axes.reshape(groups, panels, 4, PANEL_ROWS, 8, 2)


def _weights_of(lanes: torch.Tensor, fragments: int) -> torch.Tensor:
    """What _lanes_of undoes."""
    groups, panels = lanes.shape[:2]
    if fragments == QUAD_PAIRS:
        axes = lanes.view(groups, panels, 4, 2, 4, 4, 8, 2).permute(0, 4, 3, 5, 1, 2, 6, 7)
    else:
        axes = lanes.view(groups, panels, 4, 8, 4, 2, 2, 2, 2).permute(0, 5, 7, 3, 1, 4, 2, 6, 8)
    return axes.reshape(groups * PANEL_ROWS, panels * PANEL_COLUMNS)


def _scales(block_scale: torch.Tensor, fragments: int) -> torch.Tensor:
    """uint8 [groups * 32, panels * 4] to [groups, panels, 128]: four bytes for each lane."""
    groups, panels = block_scale.shape[0] // PANEL_ROWS, block_scale.shape[1] // 4
    if fragments == QUAD_PAIRS:
        axes = block_scale.view(groups, 4, 2, 4, panels, 4).permute(0, 4, 2, 1, 3, 5)
    else:
        axes = block_scale.view(groups, 4, 8, panels, 4).permute(0, 3, 2, 4, 1)
    return axes.reshape(groups, panels, PANEL_SCALE_BYTES)


def _scales_of(scales: torch.Tensor, fragments: int) -> torch.Tensor:
    """What _scales undoes."""
    groups, panels = scales.shape[:2]
    if fragments == QUAD_PAIRS:
        axes = scales.view(groups, panels, 2, 4, 4, 4).permute(0, 3, 2, 4, 1, 5)
    else:
        axes = scales.view(groups, panels, 8, 4, 4).permute(0, 4, 2, 1, 3)
    return axes.reshape(groups * PANEL_ROWS, panels * 4)
