"""Units and registers of instructions of NVIDIA's machine code."""

from __future__ import annotations

import pytest

from countperf.errors import CountingError
from countperf.machine_code.sass_instruction import reads_of, results_of, unit_of


@pytest.mark.parametrize(
    ("unit", "opcodes"),
    [
        ("other unit", "DFMA DSETP.GT.AND MUFU.RSQ MUFU.RCP64H"),
        ("global", "LDG.E.64.CONSTANT LDL STG.E.U8 RED.E.ADD REDG.E.ADD.F32.FTZ.RN TEX SUST"),
        ("shared", "LDS.128 STS ATOMS.ADD LDSM.16"),
        ("constant", "LDC ULDC.64 LDCU.64"),
        ("core", "HADD2.F32 FSETP.GEU.AND I2F.U32.RP BAR.SYNC UIADD3 UFFMA UFMNMX UF2I.TRUNC.NTZ"),
        ("core", "UI2FP.F32.S32 FMNMX3 FFMA2 FADD2.FTZ HFMA2.BF16_V2 S2UR EXIT NOP UR2UP"),
    ],
)
def test_units(unit: str, opcodes: str) -> None:
    assert {unit_of(opcode) for opcode in opcodes.split()} == {unit}


def test_an_unknown_instruction_is_refused_by_name() -> None:
    with pytest.raises(CountingError, match=r"FOO3\.BAR .* not known"):
        unit_of("FOO3.BAR")


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
