"""Classes and registers of instructions of NVIDIA's machine code."""

from __future__ import annotations

import pytest

from countperf.errors import CountingError
from countperf.machine_code.sass_instruction import classify_sass, reads_of, results_of


@pytest.mark.parametrize(
    ("opcode", "expected"),
    [
        ("DFMA", "flop.fma.f64.1"),
        ("HADD2.F32", "flop.add.f16.2"),
        ("MUFU.RSQ", "flop.special.f32.1"),
        ("MUFU.SQRT", "flop.sqrt.f32.1"),
        ("FSETP.GEU.AND", "flop.compare.f32.1"),
        ("LDG.E.64.CONSTANT", "load.global.64"),
        ("LDL", "load.private.32"),
        ("STG.E.U8", "store.global.8"),
        ("RED.E.ADD", "atomic.global"),
        ("ULDC.64", "load.constant"),
        ("I2F.U32.RP", "convert"),
        ("BAR.SYNC.DEFER_BLOCKING", "barrier"),
        ("UIADD3", "iop.scalar"),
        ("UFFMA", "flop.fma.f32.1"),
        ("UFADD", "flop.add.f32.1"),
        ("UFMUL", "flop.mul.f32.1"),
        ("UFMNMX", "flop.minmax.f32.1"),
        ("UFSETP.GT.AND", "flop.compare.f32.1"),
        ("UF2I.TRUNC.NTZ", "convert"),
        ("UI2FP.F32.S32", "convert"),
        ("FMNMX3", "flop.minmax.f32.1"),
        ("FFMA2", "flop.fma.f32.2"),
        ("FADD2.FTZ", "flop.add.f32.2"),
        ("FMUL2", "flop.mul.f32.2"),
        ("HFMA2.BF16_V2", "flop.fma.f16.2"),
        ("LDCU.64", "load.constant"),
        ("REDG.E.ADD.F32.FTZ.RN.STRONG.GPU", "atomic.global"),
        ("S2UR", "move"),
        ("EXIT", "branch"),
        ("NOP", "other"),
    ],
)
def test_classes(opcode: str, expected: str) -> None:
    assert classify_sass(opcode) == expected


def test_an_unknown_instruction_is_refused_by_name() -> None:
    with pytest.raises(CountingError, match=r"FOO3\.BAR .* not known"):
        classify_sass("FOO3.BAR")


@pytest.mark.parametrize(
    ("opcode", "operands", "results", "reads"),
    [
        ("LDG.E.128", "R4 desc[UR4][R2.64]", "R4 R5 R6 R7", "R2 R3 UR4 UR5"),
        ("STG.E.64", "[R2.64] R8", "", "R2 R3 R8 R9"),
        ("STS", "[R2] R8", "", "R2 R8"),
        ("DFMA", "R4 R6 R8 R10", "R4 R5", "R6 R7 R8 R9 R10 R11"),
        ("FFMA2", "R4 R6 R8 R10", "R4 R5", "R6 R7 R8 R9 R10 R11"),
        ("IMAD.WIDE.U32", "R2 R4 0x4 R6", "R2 R3", "R4 R6 R7"),
        ("F2F.F64.F32", "R2 R4", "R2 R3", "R4"),
        ("I2F.F64.S64", "R2 R4", "R2 R3", "R4 R5"),
        ("F2I.S64.TRUNC", "R2 R4", "R2 R3", "R4"),
        ("ISETP.LT.AND", "P0 PT R2 R3 P1", "P0", "R2 R3 P1"),
        ("IADD3.X", "R2 P1 PT R3 R4 RZ P0 !PT", "R2 P1", "R3 R4 P0"),
        ("IADD", "R2.CC R6 c[0x0][0x148]", "R2 CC", "R6"),
        ("IADD.X", "R3 R7 c[0x0][0x14c]", "R3", "R7 CC"),
        ("VOTE.ANY", "R5 P1 P0", "R5 P1", "P0"),
        ("LOP3.LUT", "P1 RZ R5 0xf RZ 0xc0 !PT", "P1", "R5"),
    ],
)
def test_registers(opcode: str, operands: str, results: str, reads: str) -> None:
    parts = tuple(operands.split())
    assert results_of(opcode, parts) == tuple(results.split())
    assert reads_of(opcode, parts) == frozenset(reads.split())
