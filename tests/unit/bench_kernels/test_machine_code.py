"""Reading machine code: loops, units, weights of a loop.

nvfp4_panels_quad_pairs_16.sass is the staging loop of that kernel as nvdisasm printed it once (ptxas 12.6, sm_70).
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from bench.gpu.loops import blocks, main_loop
from bench.gpu.sass import Function, functions
from bench.gpu.units import Unit, access_bytes, tally, unit_of, weights_of

CAPTURED = Path(__file__).with_name("nvfp4_panels_quad_pairs_16.sass")

BRANCHING = """\
//--------------------- .text.small --------------------------
\t.section\t.text.small,"ax",@progbits
small:
.text.small:
        /*0000*/                   MOV R0, RZ ;
.L_x_1:
        /*0010*/                   ISETP.GE.AND P0, PT, R0, c[0x0][0x160], PT ;
        /*0020*/               @P0 BRA `(.L_x_3) ;
        /*0030*/                   BRA P1, `(.L_x_2) ;
        /*0040*/                   LDG.E.64.SYS R2, [R4] ;
.L_x_2:
        /*0050*/                   HMMA.884.F32.F32.STEP0 R4, R6.reuse.ROW, R8.reuse.COL, R4 ;
        /*0060*/                   BRA `(.L_x_1) ;
.L_x_3:
        /*0070*/              @!PT SHFL.IDX PT, RZ, RZ, RZ, RZ ;
        /*0080*/                   EXIT ;
.L_x_4:
        /*0090*/                   BRA `(.L_x_4);
"""


@pytest.fixture(scope="module")
def captured() -> Function:
    (kernel,) = functions(CAPTURED.read_text(encoding="utf-8")).values()
    return kernel


def small(text: str = BRANCHING) -> Function:
    return functions(text)["small"]


def test_instructions_have_their_parts() -> None:
    kernel = small()
    assert [each.address for each in kernel.instructions] == [16 * i for i in range(10)]
    load, branch, halt = kernel.instructions[4], kernel.instructions[2], kernel.instructions[7]
    assert (load.mnemonic, load.opcode, load.operands, load.predicate) == ("LDG", "LDG.E.64.SYS", "R2, [R4]", None)
    assert (branch.predicate, branch.target, branch.falls_through) == ("@P0", ".L_x_3", True)
    assert halt.predicate == "@!PT"
    assert kernel.labels == {".L_x_1": 0x10, ".L_x_2": 0x50, ".L_x_3": 0x70, ".L_x_4": 0x90}


def test_blocks_end_at_branches_and_before_labels() -> None:
    assert {start: set(block.followers) for start, block in blocks(small()).items()} == {
        0x00: {0x10},
        0x10: {0x30, 0x70},
        0x30: {0x40, 0x50},
        0x40: {0x50},
        0x50: {0x10},
        0x70: set(),
        0x90: {0x90},
    }


def test_a_branch_within_the_loop_is_no_part_of_every_round() -> None:
    loop = main_loop(small())
    assert [each.address for each in loop.always] == [0x10, 0x20, 0x30, 0x50, 0x60]
    assert [each.address for each in loop.sometimes] == [0x40]
    assert loop.around == ()


def test_two_ways_back_to_one_block_are_one_loop() -> None:
    loop = main_loop(small(BRANCHING.replace("BRA P1, `(.L_x_2)", "BRA P1, `(.L_x_1)")))
    assert [each.address for each in loop.always] == [0x10, 0x20, 0x30]
    assert [each.address for each in loop.sometimes] == [0x40, 0x50, 0x60]


def test_a_kernel_without_tensor_cores_is_refused() -> None:
    with pytest.raises(ValueError, match="small has no loop with tensor core instructions"):
        main_loop(small(BRANCHING.replace("HMMA.884.F32.F32.STEP0", "FFMA")))


def test_what_is_unknown_is_not_counted_silently() -> None:
    (unknown,) = small("//--- .text.small ---\n/*0000*/ QUUX.F32 R0, R1 ;\n").instructions
    with pytest.raises(ValueError, match=r"no unit is known for QUUX.F32 at 0x0"):
        unit_of(unknown)
    (other,) = small("//--- .text.small ---\n/*0000*/ HMMA.1688.F32 R0, R1, R2, R3 ;\n").instructions
    with pytest.raises(ValueError, match=r"unknown size of HMMA.1688.F32"):
        weights_of([other], 1)


def test_the_captured_kernel_has_the_loop_that_one_finds_by_eye(captured: Function) -> None:
    loop = main_loop(captured)
    assert (loop.always[0].address, loop.always[-1].address) == (0x0DB0, 0x2150)
    # Counted with grep between these two addresses.
    assert Counter(each.mnemonic for each in (*loop.always, *loop.sometimes)) == Counter(
        HMMA=128, HMUL2=34, LOP3=50, IMAD=55, LDS=16, SHF=6, PRMT=6, LEA=5, IADD3=4, ISETP=3, LDG=3, BRA=2, SEL=1,
        S2R=1, WARPSYNC=1,
    )  # fmt: skip
    assert tally((*loop.always, *loop.sometimes)) == Counter(
        {
            Unit.TENSOR: 128,
            Unit.INTEGER: 75,
            Unit.IMAD: 55,
            Unit.FP16: 34,
            Unit.SHARED: 16,
            Unit.CONTROL: 4,
            Unit.GLOBAL: 3,
        }
    )


def test_tensor_core_steps_and_loads_tell_of_the_same_panel(captured: Function) -> None:
    loop = main_loop(captured)
    assert weights_of(loop.always, tiles=2) == 32 * 64
    loads = [each for each in (*loop.always, *loop.sometimes) if each.mnemonic == "LDG"]
    # Codes of 2048 weights at two in a byte, and the word of four scales that each lane has.
    assert 32 * sum(access_bytes(each) for each in loads) == 1024 + 128


def test_activations_are_staged_in_the_loop_around(captured: Function) -> None:
    loop = main_loop(captured)
    stores = [each for each in loop.around if each.mnemonic == "STS"]
    assert [each.opcode for each in stores] == ["STS.128", "STS.128"]
    assert any(each.mnemonic == "BAR" for each in loop.around)
    assert not any(each.mnemonic == "HMMA" for each in loop.around)
    assert {*loop.around} & {*loop.always, *loop.sometimes} == set()
