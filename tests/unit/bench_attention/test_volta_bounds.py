"""The model of the V100: rounds next to counting them one by one, and its units' times from counts that are known."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from bench.attention import volta
from bench.attention.shapes import LLAMA_8B, LLAMA_70B, Batch, Heads
from bench.attention.volta import Kernel
from bench.gpu.card import v100
from bench.gpu.loops import busy_round
from bench.gpu.sass import functions
from bench.gpu.units import Unit

CARD = v100("V100", 900, 112)
SPLIT = Kernel("attention_split_quad_pairs_128_8", "split", 128, 8, 8, 4, 128, 0, Counter({Unit.TENSOR: 256}), 0.0)
TILED = replace(SPLIT, name="attention_tiled_quad_pairs_128", path="tiled", rows=32, block_rows=256, warps=8)

# A loop that goes by work in one of two ways, does it, and sometimes more, in a loop of its own.
ROUNDS = """\
//--------------------- .text.attend --------------------------
.text.attend:
        /*0000*/                   MOV R0, RZ ;
.L_x_1:
        /*0010*/                   ISETP.GE.AND P0, PT, R0, c[0x0][0x160], PT ;
        /*0020*/              @!P0 BRA `(.L_x_2) ;
        /*0030*/                   HMMA.884.F32.F32.STEP0 R4, R6.reuse.ROW, R8.reuse.COL, R4 ;
.L_x_2:
        /*0040*/                   BRA.DIV R5, `(.L_x_6) ;
        /*0050*/              @!P1 BRA `(.L_x_4) ;
.L_x_3:
        /*0060*/                   FADD R1, R1, R2 ;
        /*0070*/               @P2 BRA `(.L_x_3) ;
        /*0080*/                   MUFU.EX2 R9, R9 ;
.L_x_4:
        /*0090*/              @!P0 BRA `(.L_x_5) ;
        /*00a0*/                   MUFU.EX2 R10, R10 ;
        /*00b0*/                   MUFU.EX2 R11, R11 ;
.L_x_5:
        /*00c0*/               @P0 BRA `(.L_x_7) ;
        /*00d0*/                   BRA `(.L_x_1) ;
.L_x_7:
        /*00e0*/                   HMMA.884.F32.F32.STEP1 R4, R6.reuse.ROW, R8.reuse.COL, R4 ;
        /*00f0*/                   BRA `(.L_x_1) ;
.L_x_6:
        /*0100*/                   BRA `(.L_x_5) ;
"""


def test_a_round_with_work_passes_what_multiplies_and_the_exponentials() -> None:
    (kernel,) = functions(ROUNDS).values()
    taken = [each.address for each in busy_round(kernel, "MUFU.EX2")]
    assert taken == [0x10, 0x20, 0x30, 0x40, 0x50, 0x90, 0xA0, 0xB0, 0xC0, 0xE0, 0xF0]


def test_a_loop_without_multiplications_is_refused() -> None:
    (kernel,) = functions(ROUNDS.replace("HMMA.884.F32.F32", "FFMA")).values()
    with pytest.raises(ValueError, match="attend has no loop with tensor core instructions"):
        busy_round(kernel, "MUFU.EX2")


def counted(kernel: Kernel, batch: Batch) -> tuple[int, int]:
    """Rounds of all warps, and keys that thread blocks read, by looking at each row and each tile of keys."""
    heads = batch.heads

    def tiles(rows: range) -> set[int]:
        seen = set()
        for row in rows:
            position = batch.length - batch.queries + row // heads.group
            first = max(0, position - heads.window + 1) if heads.window else 0
            seen |= {key // 32 for key in range(first, position + 1)}
        return seen

    rows = batch.queries * heads.group
    times = batch.requests * heads.kv_heads
    warps = [range(row, min(rows, row + kernel.rows)) for row in range(0, rows, kernel.rows)]
    blocks = [range(row, min(rows, row + kernel.block_rows)) for row in range(0, rows, kernel.block_rows)]
    return times * sum(len(tiles(each)) for each in warps), times * sum(len(tiles(each)) for each in blocks) * 32


@pytest.mark.parametrize("window", [0, 1, 33, 100])
@pytest.mark.parametrize(
    ("kernel", "group", "sizes"),
    [
        pytest.param(SPLIT, 4, (3, 1, 200), id="decoding"),
        pytest.param(SPLIT, 12, (2, 1, 33), id="decoding, two tiles of rows"),
        pytest.param(TILED, 3, (1, 190, 190), id="a prompt"),
        pytest.param(TILED, 8, (2, 50, 300), id="prompts with a prefix"),
    ],
)
def test_rounds_are_as_counted(kernel: Kernel, group: int, sizes: tuple[int, int, int], window: int) -> None:
    batch = Batch(Heads("a model", 2 * group, 2, 128, window), *sizes)
    work = volta.work_of(kernel, batch)
    assert (work.rounds, work.staged_keys) == counted(kernel, batch)


def test_memory_bounds_decoding_that_hardly_computes() -> None:
    batch = Batch(LLAMA_70B, 8, 1, 8192)
    found = volta.bound(CARD, SPLIT, batch)
    assert found.limiter == "memory"
    assert found.longest == pytest.approx((8 * 8192 * 2 * 2 * 8 * 128 + 8 * 64 * 128 * 2 * 2) / 900e9)
    assert found.busy == 80


def test_a_unit_takes_its_cycles_of_all_rounds() -> None:
    batch = Batch(LLAMA_8B, 1, 1, 32 * 128)
    counts = Counter({Unit.INTEGER: 300, Unit.CONVERSION: 2000, Unit.GLOBAL: 100})
    busy = replace(SPLIT, counts=counts, shared_cycles=90.0)
    found = volta.bound(CARD, busy, batch)
    rounds, parts = 8 * 128, 80 * 4 * CARD.clock
    assert found.seconds["issue"] == pytest.approx(2400 * rounds / parts)
    assert found.seconds["integer"] == pytest.approx(300 * 2 * rounds / parts)
    assert found.seconds["conversion"] == pytest.approx(2000 * 8 * rounds / parts)
    assert found.seconds["shared memory"] == pytest.approx(90 * rounds / (80 * CARD.clock))
    assert found.limiter == "conversion"


def test_few_blocks_keep_few_multiprocessors_busy() -> None:
    batch = Batch(Heads("a model", 8, 1, 128), 1, 1, 1024)
    assert volta.bound(CARD, SPLIT, batch).busy == 1024 // 128
    prompt = Batch(Heads("a model", 8, 1, 128), 1, 512, 512)
    assert volta.bound(CARD, TILED, prompt).busy == 512 * 8 // 256


@pytest.mark.parametrize(
    ("heads", "queries", "rows"),
    [
        (Heads("a model", 16, 2, 128), 1, 8),
        (Heads("a model", 18, 2, 128), 1, 16),
        (Heads("a model", 16, 1, 512), 1, 8),
        (Heads("a model", 16, 2, 128), 40, 32),
    ],
)
def test_the_kernel_is_the_one_that_the_launcher_takes(heads: Heads, queries: int, rows: int) -> None:
    kernels = [SPLIT, replace(SPLIT, rows=16), TILED, replace(SPLIT, head_size=512)]
    found = volta.chosen(kernels, Batch(heads, 1, queries, 100))
    assert (found.rows, found.head_size) == (rows, heads.head_size)
