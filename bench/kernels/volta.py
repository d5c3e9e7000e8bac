"""A model of the V100: what bounds a multiplication there, from instruction counts and bytes. No measurement.

Everything is taken to overlap perfectly, so that the bound is the longest of the times that the units need alone; the
work is taken to be spread evenly; latencies, bank conflicts and clocks under load are left out.
A kernel takes at least as long as its bound.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from bench.kernels.loops import Loop, main_loop
from bench.kernels.machine_code import MachineCode
from bench.kernels.plan import Plan, Planner
from bench.kernels.sass import Instruction
from bench.kernels.shapes import Layer
from bench.kernels.units import Unit, access_bytes, tally, weights_of

LANES = 32
PANEL_WARPS = 4
BLOCK_ROWS = 128


@dataclass(frozen=True)
class Card:
    """What a card offers; rates of each multiprocessor are for one cycle.

    clock: the one at which the data sheet's tensor throughput comes out: 512 multiplications and additions in a
    multiprocessor's eight tensor cores in each cycle (Volta white paper).
    """

    name: str
    multiprocessors: int
    clock: float
    memory_rate: float  # bytes per second
    l2_rate: float  # bytes per cycle, all multiprocessors together
    shared_bytes: int
    registers: int


def v100(name: str, bandwidth_gb_s: float, fp16_tflops: float) -> Card:
    """80 multiprocessors, 96 KB of shared memory and 65536 registers each (CUDA C++ programming guide, 7.0).

    L2: 2048 bytes per cycle (A100 white paper, which compares its own with that of the V100).
    """
    clock = fp16_tflops * 1e12 / (80 * 8 * 64 * 2)
    return Card(name, 80, clock, bandwidth_gb_s * 1e9, 2048, 96 * 1024, 65536)


CYCLES = {
    Unit.INTEGER: 2,  # 16 lanes for a warp's 32, in each of the four parts
    Unit.FP32: 2,
    Unit.IMAD: 2,
    Unit.FP16: 2,
    Unit.TENSOR: 2,  # one step of HMMA.884: 32 x 4 x 8 / 4 products, of which two tensor cores do 128 in a cycle
    Unit.CONVERSION: 8,  # 4 lanes (CUDA C++ programming guide, arithmetic throughput: 16 in a multiprocessor)
}
"""Cycles for which an instruction occupies its unit in one of the four parts of a multiprocessor."""

GROUPS = {
    "integer": (Unit.INTEGER,),
    "FP32 + IMAD": (Unit.FP32, Unit.IMAD),
    "FP16 + tensor": (Unit.FP16, Unit.TENSOR),
    "conversion": (Unit.CONVERSION,),
}
"""Units that share a port."""


@dataclass(frozen=True)
class Kernel:
    """A kernel's main loop: what one warp does for each weight, and for each 16 bytes that a thread stages.

    counts, staging: warp instructions by unit. shared_cycles: of a multiprocessor's shared memory and L1 cache (128
    bytes per cycle; each access of the loop is taken to move what all lanes ask for, though lanes share activations).
    """

    name: str
    tokens: int
    bytes_per_weight: float
    registers: int
    weights: int
    counts: Counter[Unit]
    shared_cycles: float
    staging: Counter[Unit]
    staging_pieces: int
    spilled: bool

    def per_weight(self, *units: Unit) -> float:
        """Instructions of one thread for one weight."""
        return sum(self.counts[unit] for unit in units or Unit) * LANES / self.weights


def kernel_of(code: MachineCode, name: str) -> Kernel:
    tokens = int(name.rsplit("_", 1)[1])
    function = code.functions[name]
    loop: Loop = main_loop(function)
    counted = (*loop.always, *loop.sometimes)
    resources = code.resources[name]
    return Kernel(
        name=name,
        tokens=tokens,
        bytes_per_weight=0.5 + 1 / 16 if name.startswith("nvfp4") else 1.0,
        registers=resources.registers,
        weights=weights_of(loop.always, tokens // 8),
        counts=tally(counted),
        shared_cycles=_moved(counted),
        staging=tally(loop.staging_loop),
        staging_pieces=sum(each.mnemonic == "STS" for each in loop.staging_loop),
        spilled=resources.spill_stores + resources.spill_loads > 0,
    )


def _moved(instructions: Iterable[Instruction]) -> float:
    """Cycles of shared memory and L1 cache: 128 bytes in each."""
    moving = [each for each in instructions if each.mnemonic in ("LDS", "STS", "LDG", "STG", "LDL", "STL")]
    return sum(access_bytes(each) * LANES / 128 for each in moving)


@dataclass(frozen=True)
class Bound:
    """Seconds that each resource needs alone, by its name; `memory` is the floor of all."""

    plan: Plan
    resident: int
    seconds: dict[str, float]

    @property
    def limiter(self) -> str:
        return max(self.seconds, key=lambda name: self.seconds[name])

    @property
    def longest(self) -> float:
        return self.seconds[self.limiter]


def resident_blocks(card: Card, registers: int) -> int:
    """Thread blocks that the registers of a multiprocessor allow; a warp's are dealt out in steps of 256."""
    warp = -(-registers * LANES // 256) * 256
    return min(32, card.registers // (warp * PANEL_WARPS))


def bound(card: Card, kernel: Kernel, planner: Planner, layer: Layer, m: int) -> Bound:
    """Of m tokens (at most the kernel's) with the layer's weight."""
    groups, panels = -(-layer.n // BLOCK_ROWS), -(-layer.k // 64)
    resident = resident_blocks(card, kernel.registers)
    plan = planner.plan(m, layer.n, layer.k, card.multiprocessors, card.shared_bytes, resident, 16)
    weights = groups * BLOCK_ROWS * panels * 64
    # Every thread block stages its share's columns for each of its rows of blocks, unless one chunk holds all of k.
    chunks = -(-panels * 64 // plan.chunk)
    stagings = plan.blocks if chunks == 1 else groups * chunks + plan.blocks
    staged_bytes = stagings * m * plan.chunk * 2
    pieces = staged_bytes / 16

    parts = card.multiprocessors * 4 * card.clock
    rounds = weights / kernel.weights
    staging_rounds = pieces / (LANES * kernel.staging_pieces) if kernel.staging_pieces else 0.0
    counts = {unit: kernel.counts[unit] * rounds + kernel.staging[unit] * staging_rounds for unit in Unit}
    weight_bytes = weights * kernel.bytes_per_weight
    seconds = {
        "memory": (weight_bytes + m * layer.k * 2 + m * layer.n * 2) / card.memory_rate,
        "L2": (weight_bytes + staged_bytes) / (card.l2_rate * card.clock),
        "issue": sum(counts.values()) / parts,
        "shared memory": (kernel.shared_cycles * rounds + 2 * staged_bytes / 128) / (card.multiprocessors * card.clock),
    }
    for name, units in GROUPS.items():
        seconds[name] = sum(counts[unit] * CYCLES[unit] for unit in units) / parts
    return Bound(plan, resident, seconds)


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
