"""Graphs from PTX that is written down by hand."""

from __future__ import annotations

import pytest

from countperf.errors import ModelNotApplicableError, ParameterError
from countperf.mechanistic.profile import InstructionGraph
from countperf.mechanistic.ptx import PtxProgram, parse_ptx

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
	setp.lt.s32 	%p1, %r1, 1;
	@%p1 bra 	$L__BB0_3;

$L__BB0_2:
	ld.global.nc.f32 	%f5, [%rd4];
	fma.rn.f32 	%f9, %f5, %f5, %f9;
	add.s64 	%rd4, %rd4, 64;
	setp.lt.s64 	%p2, %rd4, %rd8;
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


def test_kernels_and_loops_are_found(program: PtxProgram) -> None:
    assert list(parse_ptx(_SUM)) == ["total", "other"]
    assert program.loops() == ("$L__BB0_2",)


def test_the_graph_follows_registers_through_the_loop(program: PtxProgram) -> None:
    found = program.graph({"$L__BB0_2": 2})

    expected = [
        *("mul.i64", "add.i64", "compare.i32", "branch.i32"),
        *("load.global.32", "fma.f32", "add.i64", "compare.i64", "branch.i32"),
        *("load.global.32", "fma.f32", "add.i64", "compare.i64", "branch.i32"),
        *("store.local.32", "barrier", "load.local.64", "special.f32.rsqrt", "mul.f32"),
        "store.global.128",
    ]
    # widening multiplications are named by their operands
    expected[0] = "mul.i32"
    assert list(found.nodes) == expected
    assert found == InstructionGraph(
        expected,
        [
            *((0, 1), (2, 3)),
            *((1, 4), (4, 5), (1, 6), (6, 7), (7, 8)),
            *((6, 9), (5, 10), (9, 10), (6, 11), (11, 12), (12, 13)),
            (10, 14),
            *((3, 15), (8, 15), (13, 15), (14, 15)),  # the barrier waits for what nothing used
            *((15, 16), (16, 17), (16, 18), (17, 18), (18, 19)),
        ],
    )


def test_trips_are_multiplicities(program: PtxProgram) -> None:
    counts = program.graph({"$L__BB0_2": 50}).counts()

    assert counts["fma.f32"] == counts["load.global.32"] == 50
    assert counts["branch.i32"] == 51
    assert counts["store.global.128"] == 1


_NESTED = """
.entry nest()
{
outer:
	add.s32 %r1, %r1, 1;
inner:
	mul.lo.s32 %r2, %r2, %r1;
	setp.ne.s32 %p1, %r2, 0;
	@%p1 bra inner;
	setp.ne.s32 %p2, %r1, 9;
	@%p2 bra outer;
	bra.uni end;
	div.rn.f32 %f1, %f1, %f1;
end:
	ret;
}
"""


def test_loops_in_loops_and_code_that_is_jumped_over() -> None:
    counts = parse_ptx(_NESTED)["nest"].graph({"outer": 3, "inner": 5}).counts()

    assert counts == {"add.i32": 3, "mul.i32": 15, "compare.i32": 18, "branch.i32": 19}


@pytest.mark.parametrize(
    "trips", [{}, {"$L__BB0_2": 0}, {"$L__BB0_2": 4, "$L__BB0_3": 2}, {"nowhere": 1}]
)
def test_trips_must_be_those_of_the_loops(program: PtxProgram, trips: dict[str, int]) -> None:
    with pytest.raises(ParameterError, match="L__BB0_2") as raised:
        program.graph(trips)
    assert raised.value.parameter == "trips"


def test_a_program_that_is_too_long_is_refused(program: PtxProgram) -> None:
    with pytest.raises(ParameterError, match="more than 100") as raised:
        program.graph({"$L__BB0_2": 50}, max_instructions=100)
    assert raised.value.parameter == "max_instructions"


def test_an_unknown_instruction_is_refused() -> None:
    text = ".entry k()\n{\n\tatom.global.add.f32 %f1, [%rd1], %f2;\n}\n"

    with pytest.raises(ModelNotApplicableError, match=r"atom\.global\.add\.f32") as raised:
        parse_ptx(text)
    assert raised.value.parameter == "idg"


def test_a_loop_without_a_condition_at_its_end_is_refused() -> None:
    text = ".entry k()\n{\ntop:\n\t@%p1 bra done;\n\tbra.uni top;\ndone:\n\tret;\n}\n"

    with pytest.raises(ModelNotApplicableError, match="'top' has no condition"):
        parse_ptx(text)["k"].graph({"top": 3})
