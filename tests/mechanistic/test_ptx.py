"""Graphs from PTX that is written down by hand."""

from __future__ import annotations

import numpy as np
import pytest

from countperf.errors import ModelNotApplicableError, ParameterError
from countperf.machine_code.ptx_unit import PtxState, execute_ptx
from countperf.machine_code.sass_instruction import LANES
from countperf.mechanistic.profile import InstructionGraph
from countperf.mechanistic.ptx import GpuLaunch, PtxProgram, parse_ptx

_SUM = """
.version 9.0
.target sm_90
.visible .entry total(
	.param .u64 total_param_0,
	.param .u32 total_param_1
)
.maxntid 256, 1, 1
{
	.reg .pred 	%p<3>;
	.shared .align 4 .b8 tile[1024];

	ld.param.u64 	%rd1, [total_param_0];   // free
	mov.u32 	%r2, %tid.x;
	mul.wide.s32 	%rd3, %r2, 4;
	add.s64 	%rd4, %rd1, %rd3;
	mov.f32 	%f9, 0f00000000;
	mov.u32 	%r1, 2;
	setp.lt.s32 	%p1, %r1, 1;
	@%p1 bra 	$L__BB0_3;

$L__BB0_2:
	ld.global.nc.f32 	%f5, [%rd4];
	fma.rn.f32 	%f9, %f5, %f5, %f9;
	add.s64 	%rd4, %rd4, 64;
	add.s32 	%r1, %r1, -1;
	setp.gt.s32 	%p2, %r1, 0;
	@%p2 bra 	$L__BB0_2;

$L__BB0_3:
	st.shared.f32 	[%r2], %f9;
	bar.sync 	0;
	ld.shared.v2.f32 	{%f10, %f11}, [%r2];
	rsqrt.approx.ftz.f32 	%f12, %f10;
	@!%p1 mul.f32 	%f12, %f12, %f11;
	st.global.v4.f32 	[%rd1], {%f12, %f12, %f12, %f12};
	ret;
}
.visible .entry other()
{
	ret;
}
"""


@pytest.fixture
def program() -> PtxProgram:
    return parse_ptx(_SUM)["total"]


def test_the_graph_follows_registers_through_the_loop(program: PtxProgram) -> None:
    assert list(parse_ptx(_SUM)) == ["total", "other"]
    graph = program.graph()

    loop = ("load.global.32", "fma.f32", "add.i64", "add.i32", "compare.i32", "branch.i32")
    expected = [
        # widening multiplications are named by their operands
        *("mul.i32", "add.i64", "compare.i32", "branch.i32", *loop, *loop),
        *("store.local.32", "barrier", "load.local.64", "special.f32.rsqrt", "mul.f32"),
        "store.global.128",
    ]
    assert list(graph.nodes) == expected
    assert graph == InstructionGraph(
        expected,
        [
            *((0, 1), (2, 3)),
            *((1, 4), (4, 5), (1, 6), (7, 8), (8, 9)),
            *((6, 10), (5, 11), (10, 11), (6, 12), (7, 13), (13, 14), (14, 15)),
            (11, 16),
            # the barrier waits for what nothing used
            *((3, 17), (9, 17), (12, 17), (15, 17), (16, 17)),
            *((17, 18), (18, 19), (18, 20), (19, 20), (20, 21)),
        ],
    )


_NESTED = """
.entry nest()
{
	mov.u32 %r1, 0;
outer:
	add.s32 %r1, %r1, 1;
	mov.u32 %r2, 1;
inner:
	mul.lo.s32 %r2, %r2, 2;
	setp.ne.s32 %p1, %r2, 32;
	@%p1 bra inner;
	setp.ne.s32 %p2, %r1, 3;
	@%p2 bra outer;
	bra.uni end;
	div.rn.f32 %f1, %f1, %f1;
end:
	ret;
}
"""


def test_loops_in_loops_and_code_that_is_jumped_over() -> None:
    counts = parse_ptx(_NESTED)["nest"].graph().counts()

    assert counts == {"add.i32": 3, "mul.i32": 15, "compare.i32": 18, "branch.i32": 19}


def test_what_is_too_long_is_refused() -> None:
    with pytest.raises(ParameterError, match="more than 20") as raised:
        parse_ptx(_NESTED)["nest"].graph(max_instructions=20)
    assert raised.value.parameter == "max_instructions"


_WHILE = """
.entry k(.param .u32 n, .param .u64 x)
{
	ld.param.u32 %r1, [n];
	mov.u32 %r2, %tid.x;
	setp.lt.s32 %p2, %r1, 1;
	@%p2 bra after;
top:
	setp.ge.s32 %p1, %r2, %r1;
	@%p1 bra done;
	add.s32 %r2, %r2, 1;
	bra.uni top;
done:
	ld.global.f64 %fd1, [%rd1];
	{ .reg .b32 %t; mov.b64 {%t, %r5}, %fd1; }
	setp.gt.s32 %p3, %r5, 2146435071;
	@%p3 bra after;
	{ mul.f64 %fd2,%fd1,%fd1; }
after:
	ret;
}
"""


@pytest.mark.parametrize(("n", "items", "expected"), [(3, 1, 3), (3, 32, 3), (0, 32, 0)])
def test_values_decide_branches(n: int, items: int, expected: int) -> None:
    launch = GpuLaunch(
        arguments=(np.int32(n), None), groups=(1, 1, 1), shape=(items, 1, 1), group=(0, 0, 0)
    )
    counts = parse_ptx(_WHILE)["k"].graph(launch).counts()

    # item 0 has n iterations, others fewer; a number from memory is no infinity
    assert counts.get("add.i32", 0) == expected
    assert counts.get("mul.f64", 0) == counts.get("load.global.64", 0) == (1 if n else 0)


_DECIDES = "\nsetp.lt.s32 %p1, %r1, 3;\n@%p1 bra done;\ndone:\nret;"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("atom.global.add.f32 %f1, [%rd1], %f2;", r"atom\.global\.add\.f32"),
        ("top:\n@%p1 bra done;\nbra.uni top;\ndone:\nret;", "data decides a branch"),
        ("ld.global.u32 %r1, [%rd1];" + _DECIDES, "data decides a branch"),
        ("popc.b32 %r1, 7;" + _DECIDES, r"popc\.b32, which is not followed, decides"),
    ],
)
def test_what_is_not_decided_or_followed_is_refused(text: str, said: str) -> None:
    error = ModelNotApplicableError if "atom" in text else ParameterError
    with pytest.raises(error, match=said):
        parse_ptx(f".entry k()\n{{\n{text}\n}}")["k"].graph()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (_SUM[: _SUM.index("st.global.v4")], "kernel total of the PTX is cut, or lacks '}'"),
        (_SUM.replace("$L__BB0_3:", ""), r"total .* lacks '\$L__BB0_3'"),
        (_SUM.replace("bar.sync", "$L__BB0_2:\nbar.sync"), r"lacks 'one \$L__BB0_2'"),
        (_SUM.replace("@%p1 bra 	$L__BB0_3", "bra"), "total .* is cut"),
        (_SUM.replace("st.shared.f32", "st"), "total .* is cut"),
        (_SUM.replace("other", "total"), "kernel total of the PTX stands twice"),
        (".entry k()", "kernel k of the PTX is cut"),
    ],
)
def test_damaged_files_are_refused(text: str, said: str) -> None:
    with pytest.raises(ParameterError, match=said):
        parse_ptx(text)


def test_scopes_and_packed_types() -> None:
    text = ".entry k()\n{\n{ add.f16 %rs1,%rs2,%rs3; }\nfma.rn.f16x2 %r2, %r1, %r1, %r1;\n}"
    assert parse_ptx(text)["k"].graph().nodes == ("add.f16", "fma.f16x2")


@pytest.mark.parametrize(
    ("opcode", "operands", "values", "expected"),
    [
        ("sub.s32", "%a %b %c", (3, 5), -2 & 0xFFFF_FFFF),
        ("mul.wide.s32", "%a %b %c", (-3 & 0xFFFF_FFFF, 5), -15 & 2**64 - 1),
        ("mul.hi.u32", "%a %b %c", (1 << 31, 6), 3),
        ("mad.lo.s32", "%a %b %c 7", (3, 5), 22),
        ("shr.s32", "%a %b 4", (-33 & 0xFFFF_FFFF, 0), -3 & 0xFFFF_FFFF),
        ("shr.u32", "%a %b 40", (1 << 31, 0), 0),
        ("shl.b32", "%a %b 4", (0xF000_0001, 0), 0x10),
        ("div.s32", "%a %b %c", (-7 & 0xFFFF_FFFF, 2), -3 & 0xFFFF_FFFF),
        ("rem.s32", "%a %b %c", (-7 & 0xFFFF_FFFF, 2), -1 & 0xFFFF_FFFF),
        ("setp.lt.s32", "%a %b %c", (-1 & 0xFFFF_FFFF, 0), 1),
        ("setp.lt.u32", "%a %b %c", (-1 & 0xFFFF_FFFF, 0), 0),
        ("setp.lt.and.s32", "%a %b %c 0", (1, 2), 0),
        ("setp.neu.f32", "%a 0f7FC00000 %c", (0, 0), 1),
        ("selp.b32", "%a %b %c 0", (4, 6), 6),
        ("cvt.s64.s32", "%a %b", (-2 & 0xFFFF_FFFF, 0), -2 & 2**64 - 1),
        ("cvt.rzi.s32.f32", "%a 0fC0200000", (0, 0), -2 & 0xFFFF_FFFF),  # -2.5
        ("cvt.rn.f32.s32", "%a 3", (0, 0), 0x4040_0000),
        ("add.f64", "%a 0d3FF0000000000000 0d3FF0000000000000", (0, 0), 0x4000_0000_0000_0000),
        ("mov.b64", "%a {%b,%c}", (1, 2), 2 << 32 | 1),
        ("not.pred", "%a %b", (1, 0), 0),
    ],
)
def test_single_instructions(
    opcode: str, operands: str, values: tuple[int, int], expected: int
) -> None:
    state = PtxState({}, {})
    for name, value in zip(("%b", "%c"), values, strict=True):
        filled = np.full(LANES, value, np.uint64)
        state.write(name, filled, np.zeros(LANES, np.int64), True)
    execute_ptx(opcode, operands.split(), state, np.ones(LANES, bool))

    assert int(state.bits["%a"][3]) == expected
    assert not state.lost["%a"].any()
