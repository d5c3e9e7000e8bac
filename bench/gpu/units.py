"""Which unit of a multiprocessor an instruction occupies, and how much work one is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from enum import Enum

from bench.gpu.sass import Instruction


class Unit(Enum):
    """What executes an instruction in one of a multiprocessor's four parts, beside the slot in which it is issued.

    Which instruction goes where on a V100: an engineer of NVIDIA in
    https://forums.developer.nvidia.com/t/int-32-and-fp64-can-be-used-concurrently-in-the-volta-architecture/108729/4
    (IMAD goes to the FP32 unit; the FP16 unit and the tensor cores share a port), and the list of pipelines in the
    documentation of Nsight Compute.
    """

    INTEGER = "integer"  # shifts, LOP3, PRMT, IADD3, comparisons, selections, moves
    FP32 = "fp32"  # FFMA and its like
    IMAD = "imad"  # integer multiplications, also as moves and shifts: the FP32 unit does them
    FP16 = "fp16"
    TENSOR = "tensor"
    CONVERSION = "conversion"  # MUFU, I2F, F2I, F2F
    SHARED = "shared"  # LDS, STS
    GLOBAL = "global"  # LDG, STG, ATOM, local memory
    CONTROL = "control"  # branches, barriers, NOP, reads of special registers


_MNEMONICS = {
    Unit.INTEGER: (
        "IADD3 IADD LOP3 LOP PLOP3 SHF SHL SHR PRMT LEA SEL ISETP ISET IMNMX IABS MOV MOV32I BMSK SGXT P2R R2P F2FP "
        "VABSDIFF ISCADD BFE BFI VIADD VIADDMNMX VIMNMX VIMNMX3 UIADD3 ULOP3 USHF ULEA USEL UISETP UPRMT UIMAD UP2UR "
        "USGXT UBMSK"
    ),
    Unit.FP32: "FADD FMUL FFMA FMNMX FSEL FSETP FSET FCHK FADD32I FMUL32I FFMA32I",
    Unit.IMAD: "IMAD IMUL XMAD IDP",
    Unit.FP16: "HADD2 HMUL2 HFMA2 HSET2 HSETP2 HMNMX2",
    Unit.TENSOR: "HMMA IMMA BMMA",
    Unit.CONVERSION: "MUFU I2F F2I F2F FRND I2I POPC FLO BREV",
    Unit.SHARED: "LDS STS LDSM ATOMS SHFL",
    Unit.GLOBAL: "LDG STG LD ST LDL STL ATOM ATOMG RED LDC ULDC",
    Unit.CONTROL: (
        "BRA BRX JMP CALL RET EXIT BSSY BSYNC BMOV BREAK BAR NOP WARPSYNC YIELD DEPBAR MEMBAR ERRBAR CCTL S2R S2UR "
        "CS2R NANOSLEEP KILL BPT VOTE R2UR UMOV"
    ),
}
_UNIT_OF = {mnemonic: unit for unit, mnemonics in _MNEMONICS.items() for mnemonic in mnemonics.split()}


def unit_of(instruction: Instruction) -> Unit:
    """Raises ValueError for an instruction that is in none of the lists: one to look up before it is counted."""
    if instruction.predicate == "@!PT":  # is issued and never does anything
        return Unit.CONTROL
    if instruction.opcode.startswith("HFMA2.MMA"):  # Ampere and later: the FP16 unit beside the tensor cores
        return Unit.FP16
    if instruction.mnemonic not in _UNIT_OF:
        raise ValueError(f"no unit is known for {instruction.opcode} at {instruction.address:#x}")
    return _UNIT_OF[instruction.mnemonic]


def is_tensor(instruction: Instruction) -> bool:
    return _UNIT_OF.get(instruction.mnemonic) is Unit.TENSOR


def tally(instructions: Iterable[Instruction]) -> Counter[Unit]:
    return Counter(unit_of(each) for each in instructions)


def access_bytes(instruction: Instruction) -> int:
    """Bytes that one lane reads or writes in a memory instruction."""
    parts = instruction.opcode.split(".")
    for part, size in (("128", 16), ("64", 8), ("U8", 1), ("S8", 1), ("U16", 2), ("S16", 2)):
        if part in parts:
            return size
    return 4


def weights_of(instructions: Iterable[Instruction], tiles: int) -> int:
    """Weights that one warp multiplies in these instructions, with 8 * tiles columns of activations.

    Four steps of HMMA.884 multiply 32 x 4 weights with 8 columns, HMMA.16816 does 16 x 16.
    Raises ValueError for another tensor core instruction.
    """
    weights = 0
    for each in instructions:
        if is_tensor(each):
            if each.opcode.startswith("HMMA.884.F32.F32.STEP"):
                weights += 32 * 4 // 4
            elif each.opcode.startswith("HMMA.16816.F32"):
                weights += 16 * 16
            else:
                raise ValueError(f"unknown size of {each.opcode}")
    return weights // tiles
