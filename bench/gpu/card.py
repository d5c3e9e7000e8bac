"""A V100 as the models know it: what its multiprocessors and its memory offer at best. No measurement."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from bench.gpu.sass import Instruction
from bench.gpu.units import Unit, access_bytes
from onecat.knowledge.hardware import gpu_model

LANES = 32
TENSOR_OPERATIONS = 8 * 64 * 2
"""Of a multiprocessor in each cycle: tensor cores, multiplications and additions of each (Volta white paper)."""


@dataclass(frozen=True)
class Card:
    """What a card offers; rates of each multiprocessor are for one cycle.

    clock: the one at which the data sheet's tensor throughput comes out.
    """

    name: str
    multiprocessors: int
    clock: float
    memory_rate: float  # bytes per second
    l2_rate: float  # bytes per cycle, all multiprocessors together
    registers: int

    @property
    def fp16_tflops(self) -> float:
        return self.clock * self.multiprocessors * TENSOR_OPERATIONS / 1e12


@dataclass(frozen=True)
class Times:
    """Seconds that each resource needs alone, by its name; `memory` is the floor of all."""

    seconds: dict[str, float]

    @property
    def limiter(self) -> str:
        return max(self.seconds, key=lambda name: self.seconds[name])

    @property
    def longest(self) -> float:
        return self.seconds[self.limiter]


def v100(name: str, bandwidth_gb_s: float, fp16_tflops: float) -> Card:
    """80 multiprocessors, 65536 registers each (CUDA C++ programming guide, 7.0).

    L2: 2048 bytes per cycle (A100 white paper, which compares its own with that of the V100).
    """
    clock = fp16_tflops * 1e12 / (80 * TENSOR_OPERATIONS)
    return Card(name, 80, clock, bandwidth_gb_s * 1e9, 2048, 65536)


def v100_named(name: str) -> Card:
    """The V100 of this name in onecat/knowledge/gpus.yaml; raises ValueError where there is none that is known."""
    model = gpu_model(name)
    if model is None or model.bandwidth_gb_s is None or model.fp16_tflops is None or model.compute_capability != "7.0":
        raise ValueError(f"{name} is no V100 with known bandwidth and throughput")
    return v100(model.name, model.bandwidth_gb_s, model.fp16_tflops)


def assumptions(card: Card) -> list[str]:
    """What is taken for granted of the card, as text."""
    return [
        f"The model's {card.name}: {card.multiprocessors} multiprocessors at {card.clock / 1e9:.3f} GHz (where the",
        f"data sheet's tensor throughput comes out), {card.memory_rate / 1e9:.0f} GB/s, L2 {card.l2_rate:.0f} bytes a",
        "cycle. In each of a multiprocessor's four parts: one warp instruction issued a cycle; integer, FP32 (with",
        "IMAD), FP16 and a step of HMMA.884 take two cycles, the last two on one port. Shared memory and L1 together",
        "move 128 bytes a cycle for a multiprocessor. Perfect overlap, no latencies.",
    ]


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


def moved_cycles(instructions: Iterable[Instruction]) -> float:
    """Cycles of shared memory and L1 cache: 128 bytes in each."""
    moving = [each for each in instructions if each.mnemonic in ("LDS", "STS", "LDG", "STG", "LDL", "STL")]
    return sum(access_bytes(each) * LANES / 128 for each in moving)


def resident_blocks(card: Card, registers: int, warps: int) -> int:
    """Thread blocks that the registers of a multiprocessor allow; a warp's are dealt out in steps of 256."""
    warp = -(-registers * LANES // 256) * 256
    return min(card.registers // (warp * warps), 64 // warps)
