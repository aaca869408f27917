"""Following sub-groups through NVIDIA's machine code: single instructions, divergence, refusals."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from countperf.errors import CountingError
from countperf.machine_code import warp
from countperf.machine_code.sass_instruction import SassInstruction
from countperf.machine_code.warp import Executed, WarpProgram, launch_sub_group
from countperf.machine_code.warp_unit import LANES, UNKNOWN, WarpState, execute, lanes_of

_ALL = np.ones(LANES, dtype=bool)
_MASK = 0xFFFF_FFFF


def _execute(text: str, state: WarpState) -> None:
    opcode, *operands = text.split()
    execute(SassInstruction(opcode=opcode, operands=tuple(operands)), state, _ALL)


def _value(opcode: str, operands: Sequence[str], **registers: int) -> dict[str, int]:
    """Execute an instruction; return what registers hold in lane 5."""
    held = {name: lanes_of(value) for name, value in registers.items()}
    state = WarpState({0x160: 77, 0x164: 0x0102}, {}, held)
    _execute(" ".join((opcode, *operands)), state)
    return {name: int(value[5]) for name, value in state.registers.items()}


@pytest.mark.parametrize(
    ("opcode", "operands", "registers", "expected"),
    [
        ("IADD3", "R1 R2 -R3 0x5", {"R2": 7, "R3": 9}, 3),
        ("IMAD", "R1 R2 R3 c[0x0][0x160]", {"R2": 1000, "R3": -3}, -3000 + 77),
        ("IMAD.SHL.U32", "R1 R2 0x4 RZ", {"R2": 5}, 20),
        # the exact quotient of 1988 by 28 is 71: the upper half of a product, shifted (below)
        ("IMAD.HI", "R1 R2 -0x6db6db6d R4", {"R2": 1988, "R4": 0, "R5": 1988}, 1136),
        ("LEA", "R1 R2 R3 0x4", {"R2": 3, "R3": 2}, 50),
        ("LEA.HI", "R1 R2 R3 RZ 0x4", {"R2": 0xF000_0000, "R3": 1}, 16),
        ("LEA.HI.SX32", "R1 R2 R3 0x1c", {"R2": 1136, "R3": 0}, 71),
        ("SHF.R.S32.HI", "R1 RZ 0x4 R2", {"R2": -33}, -3),
        ("SHF.R.U32.HI", "R1 RZ 0x1f R2", {"R2": -1}, 1),
        ("SHF.L.U64.HI", "R1 R2 0x2 R3", {"R2": 0xC000_0000, "R3": 1}, 7),
        ("SHR", "R1 R2 0x1", {"R2": -4}, -2),
        ("LOP3.LUT", "R1 R2 0x3 RZ 0xc0 !PT", {"R2": 7}, 3),
        ("LOP32I.AND", "R1 R2 0x6", {"R2": 3}, 2),
        ("ISCADD", "R1 R2 R3 0x3", {"R2": 2, "R3": 1}, 17),
        ("IMNMX", "R1 R2 R3 !PT", {"R2": -5, "R3": 2}, 2),
        ("VIMNMX", "R1 R2 R3 PT", {"R2": -5, "R3": 2}, -5),
        ("VIMNMX", "R1 PT PT RZ R3 !PT", {"R3": 2}, 2),
        ("SEL", "R1 R2 R3 !P0", {"R2": 4, "R3": 6, "P0": 1}, 6),
        ("HFMA2.MMA", "R1 -RZ RZ 0 5.9604644775390625e-08", {}, 1),
        ("PRMT", "R1 R2 0x7610 R3", {"R2": 0x1122_3344, "R3": 0x5566_7788}, 0x5566_3344),
        ("PRMT", "R1 R2 0x8880 RZ", {"R2": 0x80}, 0xFFFF_FF80),
        ("IADD3", "R1 PT PT R2 -0x1 RZ", {"R2": 1}, 0),
        ("LDC.U8", "R1 c[0x0][0x165]", {}, 1),
        ("IMAD.X", "R1 RZ 0x24924924 R3 P1", {"R3": 7, "P1": 1}, 8),
        ("IADD.64", "R0 R2 -R4", {"R2": 0, "R3": 5, "R4": 1, "R5": 1}, 3),
        ("IADD.64", "R0 R2 -0x10", {"R2": 16, "R3": 0}, 0),
        ("UIADD3.64", "R0 UPT UPT R2 0x1 URZ", {"R2": -1, "R3": 8}, 9),
        ("XMAD.MRG", "R1 R2 R3.H1 RZ", {"R2": 3, "R3": 0x0002_0005}, 0x0005_0006),
    ],
)
def test_single_instructions(
    opcode: str, operands: str, registers: dict[str, int], expected: int
) -> None:
    assert _value(opcode, operands.split(), **registers)["R1"] == expected & _MASK


@pytest.mark.parametrize(
    ("opcode", "operands"),
    [
        *(("SEL.64", "R0 R2 R4 P0"), ("I2F.U64", "R0 R2"), ("IADD.64", "R0 P0 R2 R4")),
        *((f"IMNMX{kind}", "PT PT R0 R2 R4 !PT !PT") for kind in ("", ".S64")),
    ],
)
def test_what_is_not_followed_is_known_to_be_so(opcode: str, operands: str) -> None:
    assert _value(opcode, operands.split(), R2=3, R3=0, R4=5, R5=0, P0=1)["R0"] < UNKNOWN


@pytest.mark.parametrize("text", ["IADD RZ P1 R2 R3", "IADD3 RZ P1 PT R2 R3 RZ"])
def test_carries_of_sums_of_two(text: str) -> None:
    opcode, *operands = text.split()
    for second, carry in ((1, 0), (2, 1)):
        assert _value(opcode, operands, R2=-2, R3=second)["P1"] == carry


def test_wide_moves_take_all_registers() -> None:
    found = _value("MOV.64", ["R2", "R4"], R4=7, R5=9)
    assert (found["R2"], found["R3"]) == (7, 9)
    found = _value("LDC.128", ["R0", "c[0x0][0x158]"])
    assert (found["R2"], found["R3"]) == (77, 0x0102)


def test_three_short_products_are_a_long_one() -> None:
    state = WarpState({}, {}, {"R2": lanes_of(123_457), "R3": lanes_of(76_543)})
    for short in ("XMAD R4 R2 R3 RZ", "XMAD.MRG R5 R2 R3.H1 RZ", "XMAD.PSL.CBCC R1 R2.H1 R5.H1 R4"):
        _execute(short, state)
    assert int(state.registers["R1"][0]) == 123_457 * 76_543 & _MASK


@pytest.mark.parametrize(("first", "second"), [(-2, 3), (3, 3), (1 << 40, 5), (-1, -(1 << 35))])
def test_comparison_of_64_bits(first: int, second: int) -> None:
    names = {"R2": first, "R3": first >> 32, "R4": second, "R5": second >> 32}
    state = WarpState({}, {}, {name: lanes_of(value) for name, value in names.items()})
    _execute("ISETP.LT.U32.AND P0 PT R2 R4 PT", state)
    _execute("ISETP.LT.AND.EX P1 PT R3 R5 PT P0", state)
    assert bool(state.registers["P1"][0]) == (first < second)
    for type_, expected in (("S64", first < second), ("U64", first % 2**64 < second % 2**64)):
        _execute(f"ISETP.LT.{type_}.AND P2 PT R2 R4 PT", state)
        assert bool(state.registers["P2"][0]) == expected


def _followed(code: str, lanes: int = LANES) -> Executed:
    """Follow instructions apart by lines or semicolons: ``label: @P0 OPCODE operands``."""
    lines = [line.strip() for line in code.strip().replace("\n", ";").split(";")]
    labels = {line.partition(":")[0]: place for place, line in enumerate(lines) if ":" in line}
    found: list[SassInstruction] = []
    for line in lines:
        words = line.rpartition(": ")[2].split()
        guard = words.pop(0)[1:] if words[0].startswith("@") else ""
        opcode, *operands = words
        target = labels.get(operands[-1]) if operands else None
        found.append(
            SassInstruction(opcode=opcode, operands=tuple(operands), guard=guard, target=target)
        )
    state, _ = launch_sub_group({}, (0, 0, 0), (lanes, 1, 1), 0)
    return WarpProgram(found).follow_lanes(state, lanes)


_TRIANGLE = """
S2R R0 SR_TID.X; MOV R1 RZ; loop: FFMA R2 R2 R2 R2; IADD3 R1 R1 0x1 RZ
ISETP.GT.AND P0 PT R1 R0 PT; @!P0 BRA loop; STG.E [R4] R2; EXIT
"""


@pytest.mark.parametrize(
    "short",
    [
        *("ISETP.GT.AND P0 PT R1", "ISETP.GT.AND P0", "PSETP.AND P0 PT", "PLOP3.LUT P0 PT PT PT"),
        *("LOP3.LUT P0 R0 R1", "SEL P0 R1"),
    ],
)
def test_instructions_short_of_operands_are_refused(short: str) -> None:
    code = _TRIANGLE.replace("ISETP.GT.AND P0 PT R1 R0 PT", short)
    with pytest.raises(CountingError, match=rf"{short.split()[0]} .*, lacks operands"):
        _followed(code)


def test_lanes_leave_a_loop_one_after_the_other() -> None:
    # lane l has l + 1 iterations; the sub-group has those of its last lane, and meets again
    found = _followed(_TRIANGLE)
    assert [found.instructions[place] for place in range(8)] == [1, 1, 32, 32, 32, 32, 1, 1]
    assert (found.lanes[2], found.lanes[6]) == (sum(range(1, 33)), 32)
    partial = _followed(_TRIANGLE, lanes=5)
    assert (partial.instructions[2], partial.lanes[2], partial.lanes[6]) == (5, 15, 5)


def test_predicates_count_for_sub_groups_and_not_for_lanes() -> None:
    found = _followed("""
        S2R R0 SR_TID.X; ISETP.GE.AND P0 PT R0 0x18 PT; @P0 FADD R1 R1 R1; @!P0 EXIT
        FADD R1 R1 R1; EXIT
    """)
    assert [found.instructions[place] for place in range(6)] == [1] * 6
    assert [found.lanes[place] for place in range(6)] == [32, 32, 8, 24, 8, 8]


def test_maxwell_meets_again_at_the_end_of_a_scope() -> None:
    found = _followed("""
        S2R R0 SR_TID.X; ISETP.GE.AND P0 PT R0 0x8 PT; SSY join; @P0 SYNC; FADD R1 R1 R1; SYNC
        join: FADD R1 R1 R1; EXIT
    """)
    assert [found.instructions[place] for place in (4, 5, 6, 7)] == [1, 1, 1, 1]
    assert [found.lanes[place] for place in (3, 4, 5, 6)] == [24, 8, 8, 32]


def test_what_data_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warp, "MOST_BLOCKS", 1000)
    guarded = """
        LDG.E R0 [R2]; ISETP.GE.AND P0 PT R0 0x8 PT; @P0 BRA skip; FADD R1 R1 R1; skip: EXIT
    """
    assert _followed(guarded).instructions[3] == 1
    # the slow way of a division, which calls
    assert _followed(guarded.replace("FADD R1 R1 R1", "CALL.REL.NOINC far")).instructions[3] == 0
    with pytest.raises(CountingError, match="depends on data"):
        _followed("loop: LDG.E R0 [R2]\nISETP.GE.AND P0 PT R0 0x8 PT\n@P0 BRA loop\nEXIT")
    with pytest.raises(CountingError, match=r"FLO.* which is not followed, decides .*BRA"):
        _followed(guarded.replace("LDG.E R0 [R2]", "FLO.U32 R0 R2"))
    assert _followed(guarded.replace("LDG.E R0 [R2]", "FADD R0 R2 R2")).instructions[3] == 1
    assert _followed(guarded.replace("LDG.E R0 [R2]", "LDG.E R9 [R2]\nFLO R0 R9")).instructions[4]
    with pytest.raises(CountingError, match="calls a function"):
        _followed("CALL.REL.NOINC far\nEXIT")
    with pytest.raises(CountingError, match="smaller sizes"):
        _followed("loop: MOV R0 RZ\nBRA loop")


CLASSES = {
    **{"flop.fma.f64.1": "DFMA", "flop.add.f16.2": "HADD2.F32"},
    **{"flop.special.f32.1": "MUFU.RSQ", "flop.sqrt.f32.1": "MUFU.SQRT"},
    "flop.compare.f32.1": "FSETP.GEU.AND UFSETP.GT.AND",
    **{"load.global.64": "LDG.E.64.CONSTANT", "load.private.32": "LDL"},
    "store.global.8": "STG.E.U8",
    "atomic.global": "RED.E.ADD REDG.E.ADD.F32.FTZ.RN.STRONG.GPU",
    **{"load.constant": "ULDC.64 LDCU.64", "convert": "I2F.U32.RP UF2I.TRUNC.NTZ UI2FP.F32.S32"},
    **{"barrier": "BAR.SYNC.DEFER_BLOCKING", "iop.scalar": "UIADD3", "flop.fma.f32.1": "UFFMA"},
    **{"flop.add.f32.1": "UFADD", "flop.mul.f32.1": "UFMUL"},
    **{"flop.minmax.f32.1": "UFMNMX FMNMX3", "flop.fma.f32.2": "FFMA2"},
    **{"flop.add.f32.2": "FADD2.FTZ", "flop.mul.f32.2": "FMUL2"},
    **{"flop.fma.f16.2": "HFMA2.BF16_V2", "move": "S2UR", "branch": "EXIT", "other": "NOP"},
}


@pytest.mark.parametrize(
    ("opcode", "expected"),
    [(opcode, name) for name, opcodes in CLASSES.items() for opcode in opcodes.split()],
)
def test_classes(opcode: str, expected: str) -> None:
    assert SassInstruction(opcode=opcode).name == expected


def test_an_unknown_instruction_is_refused_by_name() -> None:
    with pytest.raises(CountingError, match=r"FOO3\.BAR .* not known"):
        _ = SassInstruction(opcode="FOO3.BAR").name


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
        ("CS2R.32", "R2 SR_CLOCKLO", "R2", ""),
        ("ISETP.LT.AND", "P0 PT R2 R3 P1", "P0", "R2 R3 P1"),
        ("IADD3.X", "R2 P1 PT R3 R4 RZ P0 !PT", "R2 P1", "R3 R4 P0"),
        ("IADD", "R2.CC R6 c[0x0][0x148]", "R2 CC", "R6"),
        ("IADD.X", "R3 R7 c[0x0][0x14c]", "R3", "R7 CC"),
        ("VOTE.ANY", "R5 P1 P0", "R5 P1", "P0"),
        ("LOP3.LUT", "P1 RZ R5 0xf RZ 0xc0 !PT", "P1", "R5"),
    ],
)
def test_registers(opcode: str, operands: str, results: str, reads: str) -> None:
    instruction = SassInstruction(opcode=opcode, operands=tuple(operands.split()))
    assert instruction.results == tuple(results.split())
    assert instruction.reads == frozenset(reads.split())
