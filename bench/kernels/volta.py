"""A model of the V100: what bounds a multiplication there, from instruction counts and bytes. No measurement.

Everything is taken to overlap perfectly, so that the bound is the longest of the times that the units need alone; the
work is taken to be spread evenly; latencies, bank conflicts and clocks under load are left out.
A kernel takes at least as long as its bound.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from bench.gpu.card import CYCLES, GROUPS, LANES, Card, Times, moved_cycles, resident_blocks
from bench.gpu.loops import main_loop
from bench.gpu.machine_code import MachineCode
from bench.gpu.units import Unit, access_bytes, tally, weights_of
from bench.kernels.plan import Planner
from bench.kernels.shapes import Layer

PANEL_ROWS = 32
PANEL_COLUMNS = 64
PANEL_WEIGHTS = PANEL_ROWS * PANEL_COLUMNS
NAME = re.compile(r"(?P<format>nvfp4|fp8)_panels_(?P<kind>quad_pairs|octets)_(?P<tokens>\d+)")
"""Of the kernels that multiply."""
BYTES_PER_WEIGHT = {"nvfp4": 0.5 + 1 / 16, "fp8": 1.0}


@dataclass(frozen=True)
class Kernel:
    """A kernel's main loop, and the loop around it that brings the next activations to shared memory.

    counts: warp instructions of a round by unit, for `weights` weights. around: those of a round of the outer loop, in
    which a warp multiplies `around_panels` panels. shared_cycles, around_shared_cycles: of a multiprocessor's shared
    memory and L1 cache, 128 bytes each; every access is taken to move what all lanes ask for, though lanes share
    activations.
    """

    name: str
    format: str
    kind: str
    tokens: int
    warps: int
    bytes_per_weight: float
    registers: int
    spilled: bool
    weights: int
    counts: Counter[Unit]
    shared_cycles: float
    around: Counter[Unit]
    around_shared_cycles: float
    around_panels: float

    def of_panel(self, unit: Unit) -> float:
        """Warp instructions for one panel."""
        panel = self.counts[unit] * PANEL_WEIGHTS / self.weights
        return panel + (self.around[unit] / self.around_panels if self.around_panels else 0.0)

    def per_weight(self, *units: Unit) -> float:
        """Instructions of one thread for one weight: of these units, or of all."""
        return sum(self.of_panel(unit) for unit in units or Unit) * LANES / PANEL_WEIGHTS

    @property
    def panel_shared_cycles(self) -> float:
        around = self.around_shared_cycles / self.around_panels if self.around_panels else 0.0
        return self.shared_cycles * PANEL_WEIGHTS / self.weights + around


def kernel_of(code: MachineCode, name: str) -> Kernel:
    """Raises ValueError when the machine code has another form than this model knows."""
    parts = NAME.fullmatch(name)
    if parts is None:
        raise ValueError(f"{name} is no kernel that multiplies")
    tokens = int(parts["tokens"])
    warps = code.threads[name] // LANES
    loop = main_loop(code.functions[name])
    counted = (*loop.always, *loop.sometimes)
    resources = code.resources[name]
    staged_values = sum(access_bytes(each) // 2 for each in loop.around if each.mnemonic == "STS") * LANES * warps
    return Kernel(
        name=name,
        format=parts["format"],
        kind=parts["kind"],
        tokens=tokens,
        warps=warps,
        bytes_per_weight=BYTES_PER_WEIGHT[parts["format"]],
        registers=resources.registers,
        spilled=resources.spilled_bytes > 0,
        weights=weights_of(loop.always, -(-tokens // 8)),
        counts=tally(counted),
        shared_cycles=moved_cycles(counted),
        around=tally(loop.around),
        around_shared_cycles=moved_cycles(loop.around),
        around_panels=staged_values / tokens / PANEL_COLUMNS,
    )


@dataclass(frozen=True)
class Bound(Times):
    """resident: thread blocks on a multiprocessor."""

    blocks: int
    resident: int


def bound(card: Card, kernel: Kernel, planner: Planner, layer: Layer, m: int) -> Bound:
    """Of m tokens (at most the kernel's) with the layer's weight. A thread block keeps one multiprocessor busy."""
    panels = -(-layer.k // PANEL_COLUMNS)
    row_blocks = -(-layer.n // (PANEL_ROWS * kernel.warps))
    resident = resident_blocks(card, kernel.registers, kernel.warps)
    blocks = planner.blocks(m, layer.n, layer.k, card.multiprocessors, resident)
    # Warps past the last group of rows work like the others.
    work = row_blocks * kernel.warps * panels
    busy = min(card.multiprocessors, blocks)
    parts = busy * 4 * card.clock
    weight_bytes = -(-layer.n // PANEL_ROWS) * panels * PANEL_WEIGHTS * kernel.bytes_per_weight
    staged_bytes = row_blocks * panels * PANEL_COLUMNS * m * 2
    seconds = {
        "memory": (weight_bytes + m * layer.k * 2 + m * layer.n * 2) / card.memory_rate,
        "L2": (weight_bytes + staged_bytes) / (card.l2_rate * card.clock),
        "issue": sum(kernel.of_panel(unit) for unit in Unit) * work / parts,
        "shared memory": kernel.panel_shared_cycles * work / (busy * card.clock),
    }
    for name, units in GROUPS.items():
        seconds[name] = sum(kernel.of_panel(unit) * CYCLES[unit] for unit in units) * work / parts
    return Bound(seconds, blocks, resident)


def slices(kernels: Iterable[Kernel], m: int) -> list[tuple[Kernel, int]]:
    """How m tokens are multiplied one after the other: each slice's kernel, of these, and tokens.

    As csrc/bindings.cpp does it: as many as the kernel for the most tokens takes, then the rest, each by the kernel for
    the fewest tokens that takes them.
    """
    by_tokens = sorted(kernels, key=lambda kernel: kernel.tokens)
    most = by_tokens[-1].tokens
    counts = [most] * (m // most) + ([m % most] if m % most else [])
    return [(next(kernel for kernel in by_tokens if kernel.tokens >= count), count) for count in counts]


def budget_per_weight(card: Card, bytes_per_weight: float) -> dict[str, float]:
    """Instructions of one thread for one weight that a unit can do while the weight comes from memory."""
    cycles = card.multiprocessors * 4 * LANES * card.clock * bytes_per_weight / card.memory_rate
    return {"issue": cycles, "two cycles": cycles / 2}


def dequantised_seconds(card: Card, bytes_per_weight: float, fp16_tflops: float, layer: Layer, m: int) -> float:
    """Bound of the other way for many tokens: the weight becomes fp16 in memory, then FP16 tensor cores multiply."""
    return layer.weights * (bytes_per_weight + 2) / card.memory_rate + half_seconds(card, fp16_tflops, layer, m)


def half_seconds(card: Card, fp16_tflops: float, layer: Layer, m: int) -> float:
    """Bound of the multiplication with the weight in fp16, at the data sheet's peaks."""
    moved = 2 * (layer.weights + m * layer.k + m * layer.n)
    return max(2.0 * m * layer.weights / (fp16_tflops * 1e12), moved / card.memory_rate)
