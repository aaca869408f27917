"""Analysis of SASS: the worked example of Gajger & Czarnul, and small cases by hand."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from countperf.devices.parameters import load_device
from countperf.errors import CountingError, ModelNotApplicableError, ParameterError
from countperf.machine_code.sass_instruction import parse_sass
from countperf.machine_code.warp import WarpProgram, launch_sub_group
from countperf.mechanistic import compiled_profile
from countperf.mechanistic import profile as base
from countperf.mechanistic.compiled_profile import SassLatencies, analyze_sass, graph_of
from countperf.mechanistic.merpsys import MerpsysModel

_CODE = """
MOV R1, c[0x0][0x20]
S2R R0, SR_CTAID.X
S2R R2, SR_TID.X
XMAD.MRG R3, R0.reuse, c[0x0][0x8].H1, RZ
XMAD R2, R0.reuse, c[0x0][0x8], R2
XMAD.PSL.CBCC R0, R0.H1, R3.H1, R2
ISETP.GE.AND P0, PT, R0, c[0x0][0x140], PT
@P0 EXIT
MOV R3, c[0x0][0x144]
SHL R6, R0.reuse, 0x2
ISETP.LT.AND P0, PT, R3, 0x1, PT
SHR R7, R0, 0x1e
IADD R2.CC, R6, c[0x0][0x148]
MOV R0, RZ
{ IADD.X R3, R7, c[0x0][0x14c]
@P0 BRA AFTER }
{ MOV R5, RZ
LDG.E R0, [R2] }
MOV R4, RZ
LOOP: IADD32I R4, R4, 0x1
ISETP.LT.AND P0, PT, R4, c[0x0][0x144], PT
{ FADD R5, R0, R5
@P0 BRA LOOP }
MOV R0, R5
AFTER: IADD R2.CC, R6, c[0x0][0x150]
IADD.X R3, R7, c[0x0][0x154]
LDG.E R5, [R2]
FADD R0, R0, R5
STG.E [R2], R0
EXIT
SELF: BRA SELF
NOP
"""


def _listing(code: str, name: str = "saxpy2") -> str:
    """Write code as cuobjdump does: an address in front, a semicolon behind."""
    lines = [line for line in code.strip().splitlines() if line]
    places = [8 * (number + number // 3 + 1) for number in range(len(lines))]
    addresses: dict[str, str] = {}
    for place, line in zip(places, lines, strict=True):
        label, sign, _ = line.partition(": ")
        if sign:
            addresses[label] = f"{place:#x}"
    written = [f"\t\tFunction : {name}", '\t.headerflags\t@"EF_CUDA_SM52"']
    for place, line in zip(places, lines, strict=True):
        text = line.partition(": ")[2] or line
        for label, address in addresses.items():
            text = text.replace(f"BRA {label}", f"BRA {address}")
        opened = "{ " if text.startswith("{") else ""
        closed = " }" if text.endswith("}") else ""
        bare = text.strip("{} ")
        written.append(f"        {opened}/*{place:04x}*/  {bare} ;{closed} /* 0x4c98078 */")
    return "\n".join(written)


SAXPY = analyze_sass(_listing(_CODE))["saxpy2"]


def test_numbers_are_those_of_the_paper() -> None:
    # section 5.1: 942 + 24 a = 92 + 700 + 150 + 24 a, cut at the loop: 418 and 524
    assert [part.loops for part in SAXPY.segments] == [(), (0,), ()]
    assert [part.critical_path for part in SAXPY.segments] == [418, 24, 524]
    for repeats in (1, 32, 4096):
        assert SAXPY.latency_bound(repeats) == 942 + 24 * repeats
    # section 5.2: INS_CUDA = 23 + 4 a, three memory accesses, three dual issues
    assert [SAXPY.ins_cuda(repeats) for repeats in (0, 10)] == [23, 63]
    assert sum(part.count("global") for part in SAXPY.segments) == 3
    assert [part.pairs for part in SAXPY.segments] == [2, 1, 0]
    # the paper subtracts all three pairs once, 23 + 4 a; one of them is in the loop
    assert [SAXPY.ins_issued(repeats) for repeats in (0, 1, 10)] == [24, 23 + 4, 24 + 30]


def test_a_profile_takes_the_numbers() -> None:
    launch = base.LaunchConfiguration(work_items_per_group=256, num_groups=39063, occupancy=8)
    bare = base.ProfiledKernel(
        profile=base.KernelProfile(name="saxpy2", gmem_bytes=384), launch=launch
    )
    analyzed = SAXPY.apply_to(bare, 32)
    assert analyzed.profile.latency_bound == 1710
    assert analyzed.profile.ins_cuda == 151
    prediction = MerpsysModel(device=load_device("nvidia-gtx-970")).predict(analyzed)
    assert prediction.results["wpc"] == pytest.approx(8 / 1710)  # as in the paper, latency-bound


def test_labels_of_newer_listings() -> None:
    text = """
.text.k:
        /*0000*/                   MOV R1, c[0x0][0x28] ;
.L_x_1:
        /*0010*/                   FFMA R2, R2, R1, R1 ;
        /*0020*/              @P0  BRA `(.L_x_1) ;
        /*0030*/                   EXIT ;
.L_x_2:
        /*0040*/                   BRA `(.L_x_2);
"""
    analyzed = analyze_sass(text)["k"]
    # MOV, then its result (6); FFMA, issue (3), branch (12); the replacement of the group
    assert [part.critical_path for part in analyzed.segments] == [6, 15, 150]


def test_shared_memory_needs_its_latency() -> None:
    listing = _listing("LDS R0, [R2]\nFADD R1, R0, R0\nEXIT")
    code = analyze_sass(listing, SassLatencies(shared_memory=28))["saxpy2"]
    assert code.latency_bound() == 28 + 3 + 150


def test_nested_loops_multiply() -> None:
    code = """
MOV R4, RZ
OUT: MOV R1, RZ
MOV R2, RZ
IN: FADD R1, R1, R4
IADD R2, R2, 0x1
@P0 BRA IN
FADD R4, R1, R1
@P1 BRA OUT
EXIT
"""
    analyzed = analyze_sass(_listing(code))["saxpy2"]
    assert [part.loops for part in analyzed.segments] == [(), (0,), (0, 1), (0,), ()]
    # MOV, whose result the loop reads; two MOVs, the second waited for; FADD and IADD issue one
    # after the other (3 + 3), then the branch that is taken (12); FADD, branch; the replacement
    assert [part.critical_path for part in analyzed.segments] == [6, 9, 18, 15, 150]
    assert analyzed.latency_bound(5, 7) == 6 + 5 * (9 + 7 * 18 + 15) + 150
    assert analyzed.ins_issued(5, 7) == 1 + 5 * (2 + 7 * 3 + 2) + 1


_TWO = """
	code for sm_75
		Function : void scale<float>(T1 *, int)
        /*0000*/                   FMUL R2, R2, 2 ;
        /*0010*/                   EXIT ;
		Function : void shift<float>(T1 *, int)
        /*0000*/                   EXIT ;
	code for sm_90
		Function : void scale<float>(T1 *, int)
        /*0000*/                   LDG.E.128 R8, desc[UR4][R4.64] ;
        /*0010*/                   FADD R0, R10, 2 ;
        /*0020*/                   EXIT ;
"""


def test_functions_of_one_architecture_are_read() -> None:
    one, other = _TWO.split("\tcode for sm_90")
    assert {name: len(code) for name, code in parse_sass(one).items()} == {
        "void scale<float>(T1 *, int)": 2,
        "void shift<float>(T1 *, int)": 1,
    }
    loaded = analyze_sass(other)["void scale<float>(T1 *, int)"]
    assert loaded.latency_bound() == 350 + 3 + 150  # the third of four registers is waited for
    with pytest.raises(ParameterError, match=r"two functions void scale.* of one architecture"):
        parse_sass(_TWO)
    with pytest.raises(CountingError, match=r"FWONDER\.X .* not known"):
        parse_sass(_TWO.replace("FMUL", "FWONDER.X"))


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("LDS R0, [R2]\nFADD R1, R0, R0\nEXIT", "shared_memory"),
        ("nothing here", "no instruction"),
        ("CALL.REL 0x8\nEXIT", "calls or computed jumps"),
        ("CAL 0x8\nEXIT", "calls or computed jumps"),
        ("A: MOV R0, RZ\nB: MOV R1, RZ\n@P0 BRA A\n@P1 BRA B\nEXIT", "loops that overlap"),
    ],
)
def test_what_is_not_analyzed_is_refused(code: str, said: str) -> None:
    with pytest.raises(ParameterError, match=said):
        analyze_sass(_listing(code))


_SUMS = (Path(__file__).parents[1] / "golden" / "row_sums.sass").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (re.sub(r".*/\*0120\*/.*\n", "", _SUMS), "0x130 stands where 0x120 is expected"),
        (re.sub(r".*/\*0000\*/.*\n", "", _SUMS), "0x10 stands where 0x0 is expected"),
        (re.sub(r"(.*/\*0120\*/.*\n)", r"\1\1", _SUMS), "0x120 stands where 0x130"),
        (re.sub(r"(.*0120\*/.*\n)(.*\n)", r"\2\1", _SUMS), "0x130 stands where 0x120"),
        (re.sub(r"\.L_x_0:\n", "", _SUMS), r"BRA `\(.L_x_0\) at 0x80 leads to no line"),
        (_SUMS[: _SUMS.index(".L_x_3")], r"goes on behind the last line, STG\.E\.SYS at 0x160"),
        (_SUMS.replace("EXIT", "@P0 EXIT").replace("BRA `(.L_x_2)", "NOP"), "goes on .* EXIT"),
        (_listing("MOV R0, RZ\nEXIT").replace("*0008*", "*0018*"), "0x18 stands where 0x8 is"),
        (_listing(_CODE).replace("*0028*", "*0020*"), "0x30 stands where 0x28 is expected"),
        (_listing("CALL.REL.NOINC `($k$slow)\nEXIT"), r"CALL.* leads to no line"),
    ],
)
def test_listings_that_are_not_whole_are_refused(text: str, said: str) -> None:
    with pytest.raises(ParameterError, match=said) as raised:
        parse_sass(text)
    assert "pass the whole listing" in str(raised.value)


def test_branches_to_control_words_lead_to_what_follows() -> None:
    listing = _listing("SSY 0x20\nNOP\nSYNC\nEXIT")
    assert parse_sass(listing)["saxpy2"][0].target == 3


_STAGED = """
S2R R0, SR_TID.X
MOV R4, RZ
LOOP: LDG.E R5, [R2]
FFMA R9, R5, R5, R9
IADD R4, R4, 0x1
ISETP.LT.AND P0, PT, R4, 0x2, PT
@P0 BRA LOOP
NOP
STS [R0], R9
BAR.SYNC 0x0
LDS.64 R10, [R0]
MUFU.RSQ R12, R10
@!P0 FMUL R12, R12, R11
STG.E [R2], R12
EXIT
"""


def _graph(code: str) -> base.InstructionGraph:
    instructions = parse_sass(_listing(code))["saxpy2"]
    executed = WarpProgram(instructions).follow_lanes(
        *launch_sub_group({}, (0, 0, 0), (32, 1, 1), 0)
    )
    return graph_of("saxpy2", instructions, executed)


def test_a_graph_follows_registers_through_the_loop() -> None:
    loop = ("load.global.32", "fma.f32", "add.i32", "add.i32", "branch.i32")
    names = [
        *("select.i32", "select.i32", *loop, *loop, "store.local.32", "barrier"),
        *("load.local.64", "special.f32", "mul.f32", "store.global.32", "branch.i32"),
    ]
    assert _graph(_STAGED) == base.InstructionGraph(
        names,
        [
            *((2, 3), (1, 4), (4, 5), (5, 6)),
            *((7, 8), (3, 8), (4, 9), (9, 10), (10, 11)),
            *((0, 12), (8, 12)),
            # the barrier waits for what nothing used
            *((6, 13), (11, 13), (12, 13)),
            # a product that is guarded waits for what it may leave as it is, behind the barrier
            *((13, 14), (14, 15), (14, 16), (15, 16), (16, 17), (13, 18)),
        ],
    )


def test_what_has_no_graph_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ModelNotApplicableError, match=r"RED\.E\.ADD at 0x8 .* has no class"):
        _graph("RED.E.ADD [R2], R1\nEXIT")
    monkeypatch.setattr(compiled_profile, "_MOST_INSTRUCTIONS", 18)
    with pytest.raises(ParameterError, match="more than 18 instructions") as raised:
        _graph(_STAGED)
    assert raised.value.parameter == "max_instructions"
