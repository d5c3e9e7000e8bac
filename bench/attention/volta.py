"""A model of the V100: what bounds attention there, from instruction counts and bytes. No measurement.

Everything is taken to overlap perfectly, so that the bound is the longest of the times that the units need alone; the
work is taken to be spread evenly over the multiprocessors that have any; a round of the main loop is its shortest way,
without masks, ALiBi or soft cap; what comes before and after the loop, latencies, bank conflicts and clocks under load
are left out. A kernel takes at least as long as its bound.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass

from bench.attention.shapes import Batch
from bench.gpu.card import CYCLES, GROUPS, LANES, Card, Times, moved_cycles, resident_blocks
from bench.gpu.loops import busy_round
from bench.gpu.machine_code import MachineCode
from bench.gpu.units import Unit, tally

TILE_KEYS = 32
SPLIT, TILED = "split", "tiled"
NAME = re.compile(r"attention_(?P<path>split|tiled)_(?P<kind>quad_pairs|octets)_(?P<head_size>\d+)(?:_(?P<rows>\d+))?")
PRODUCTS_OF_STEP = 32 * 4 * 8 // 4
"""Of one step of HMMA.884: four multiply 32 x 4 by 4 x 8 numbers."""
EXPONENTIAL = "MUFU.EX2"


@dataclass(frozen=True)
class Kernel:
    """A kernel's main loop, in a round of which a warp takes `rows` rows through 32 keys.

    counts: warp instructions of a round by unit. shared_cycles: of a multiprocessor's shared memory and L1 cache.
    block_rows: of a thread block, which reads keys and values once for all of them.
    """

    name: str
    path: str
    head_size: int
    rows: int
    block_rows: int
    warps: int
    registers: int
    spilled_bytes: int
    counts: Counter[Unit]
    shared_cycles: float

    @property
    def least_steps(self) -> float:
        """Steps of HMMA.884 that the products of a round take, were no dimension padded."""
        return 2 * self.rows * TILE_KEYS * self.head_size / PRODUCTS_OF_STEP


def kernel_of(code: MachineCode, name: str) -> Kernel:
    """Raises ValueError when it is none for attention, or its machine code has another form than this model knows."""
    parts = NAME.fullmatch(name)
    if parts is None:
        raise ValueError(f"{name} is no kernel for attention")
    head_size, warps = int(parts["head_size"]), code.threads[name] // LANES
    steps_round = busy_round(code.functions[name], EXPONENTIAL)
    counts, resources = tally(steps_round), code.resources[name]
    padded = -(-head_size // 64) * 64
    rows = counts[Unit.TENSOR] * PRODUCTS_OF_STEP // (2 * TILE_KEYS * padded)
    if parts["rows"] is not None and rows != int(parts["rows"]):
        raise ValueError(f"{name} has {counts[Unit.TENSOR]} tensor core steps in a round, which are {rows} rows")
    path = parts["path"]
    block_rows = rows if path == SPLIT else rows * warps
    return Kernel(
        name, path, head_size, rows, block_rows, warps, resources.registers, resources.spilled_bytes, counts,
        moved_cycles(steps_round),
    )  # fmt: skip


def chosen(kernels: list[Kernel], batch: Batch) -> Kernel:
    """The kernel that csrc/attention_plan.h takes: for one query token split attention, with tiles of 16 rows where
    there are more than 8 and such a kernel exists."""
    path = SPLIT if batch.decodes else TILED
    fitting = [each for each in kernels if each.path == path and each.head_size == batch.heads.head_size]
    if path == TILED:
        return fitting[0]
    wide = batch.queries * batch.heads.group > 8
    return max(fitting, key=lambda each: (each.rows > 8) == wide)


@dataclass(frozen=True)
class Work:
    """rounds: of all warps. staged_keys: keys (with values) that thread blocks read, of one KV head each.
    blocks: thread blocks that can work at a time, at the most."""

    rounds: int
    staged_keys: int
    blocks: int


def _tiles(first: int, end: int) -> int:
    """Tiles of keys from `first` to before `end`."""
    return -(-end // TILE_KEYS) - first // TILE_KEYS


def work_of(kernel: Kernel, batch: Batch) -> Work:
    heads, context = batch.heads, batch.length - batch.queries
    rows = batch.queries * heads.group
    every = batch.requests * heads.kv_heads

    def span(first_row: int, last_row: int) -> tuple[int, int]:
        """Keys that these rows see."""
        low, high = context + first_row // heads.group, context + min(last_row, rows - 1) // heads.group
        return (max(0, low - heads.window + 1) if heads.window else 0), high + 1

    if kernel.path == SPLIT:
        row_tiles = -(-rows // kernel.rows)
        tiles = _tiles(*span(0, rows - 1))
        units = -(-tiles // kernel.warps)
        return Work(every * row_tiles * tiles, every * row_tiles * tiles * TILE_KEYS, every * row_tiles * units)
    rounds = sum(_tiles(*span(row, row + kernel.rows - 1)) for row in range(0, rows, kernel.rows))
    blocks = range(0, rows, kernel.block_rows)
    staged = sum(_tiles(*span(row, row + kernel.block_rows - 1)) for row in blocks) * TILE_KEYS
    return Work(every * rounds, every * staged, every * len(blocks))


@dataclass(frozen=True)
class Bound(Times):
    """busy: multiprocessors that have work."""

    kernel: Kernel
    busy: int


def bound(card: Card, kernel: Kernel, batch: Batch) -> Bound:
    """A thread block keeps one multiprocessor busy."""
    work = work_of(kernel, batch)
    busy = min(card.multiprocessors, work.blocks)
    parts = busy * 4 * card.clock
    key_bytes = 2 * 2 * kernel.head_size
    seconds = {
        "memory": batch.moved_bytes / card.memory_rate,
        "L2": work.staged_keys * key_bytes / (card.l2_rate * card.clock),
        "issue": kernel.counts.total() * work.rounds / parts,
        "shared memory": kernel.shared_cycles * work.rounds / (busy * card.clock),
    }
    for name, units in GROUPS.items():
        seconds[name] = sum(kernel.counts[unit] * CYCLES[unit] for unit in units) * work.rounds / parts
    return Bound(seconds, kernel, busy)


def resident_warps(card: Card, kernel: Kernel) -> int:
    """Warps that a multiprocessor's registers allow."""
    return resident_blocks(card, kernel.registers, kernel.warps) * kernel.warps
