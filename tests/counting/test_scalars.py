"""Operations: every class of expressions, instructions and schedule items is decided; reductions,
scans, tuples, rules, tags, several launches and mixed types are as Oclgrind executes them."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Collection
from fractions import Fraction
from functools import cache, partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import loopy as lp
import numpy as np
import pymbolic.primitives as p
import pytest
from loopy import symbolic as ls
from loopy.kernel.data import UnrollTag
from loopy.library.reduction import ArgMaxReductionOperation
from loopy.schedule import ScheduleItem
from loopy.types import NumpyType

from countperf.counting.analysis import analyze_kernel
from countperf.counting.count_properties import count_kernel
from countperf.counting.device_programs import schedule_of
from countperf.counting.domains import Domains
from countperf.counting.frontend.schedule import prepare_unit
from countperf.counting.keys import MemoryAccess, Operation
from countperf.counting.operations.source_view import SourceCounter
from countperf.counting.programs import kernel_programs
from countperf.counting.statistics import Statistics
from countperf.errors import (
    CountingError,
    DataDependentControlFlowError,
    UnsupportedExpressionError,
)
from countperf.symbolic.cardinality import Counter
from countperf.symbolic.kernel_sets import assumptions_of
from tests.counting.test_source_view import with_oclgrind
from tests.kernels import made
from tests.oracles import oclgrind


def _subclasses(cls: type) -> set[type]:
    return {cls}.union(*(_subclasses(s) for s in cls.__subclasses__()))


def _classes(cls: type) -> set[type]:
    """Return the subclasses that pymbolic's core and Loopy define."""
    homes = ("pymbolic.primitives", "loopy.")
    return {each for each in _subclasses(cls) if each.__module__.startswith(homes)}


i, n = p.Variable("i"), p.Variable("n")
x, y = p.Variable("x")[i], p.Variable("y")[i]
k, m = p.Variable("k")[i], p.Variable("m")[i]


def _flattened() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Loopy is about to remove it
        return ls.LinearSubscript(p.Variable("x"), i)


COMPARISON = p.Comparison(x, "<", y)
BELOW = p.Comparison(i, "<", 3)
MAXIMUM = ArgMaxReductionOperation()
COMPARED = {"compare": 1, "load x": 1, "load y": 1}
BITWISE = {"bitwise": 1, "load k": 1, "load m": 1, "convert": 1}

COUNTED: dict[str, tuple[Callable[[], Any], dict[str, int]]] = {
    "Subscript": (lambda: x, {"load x": 1}),
    "LinearSubscript": (_flattened, {"load x": 1}),
    "Sum": (lambda: p.Sum((x, y)), {"add": 1, "load x": 1, "load y": 1}),
    "Product": (lambda: p.Product((x, y)), {"mul": 1, "load x": 1, "load y": 1}),
    "Quotient": (lambda: p.Quotient(x, y), {"div": 1, "load x": 1, "load y": 1}),
    "FloorDiv": (lambda: p.FloorDiv(k, m), {"div": 1, "load k": 1, "load m": 1, "convert": 1}),
    "Remainder": (lambda: p.Remainder(k, m), {"mod": 1, "load k": 1, "load m": 1, "convert": 1}),
    "Power": (lambda: p.Power(x, 3), {"mul": 3, "load x": 1}),
    "LeftShift": (lambda: p.LeftShift(k, 2), {"shift": 1, "load k": 1, "convert": 1}),
    "RightShift": (lambda: p.RightShift(k, 2), {"shift": 1, "load k": 1, "convert": 1}),
    "BitwiseNot": (lambda: p.BitwiseNot(k), {"bitwise": 1, "load k": 1, "convert": 1}),
    "BitwiseAnd": (lambda: p.BitwiseAnd((k, m)), BITWISE),
    "BitwiseOr": (lambda: p.BitwiseOr((k, m)), BITWISE),
    "BitwiseXor": (lambda: p.BitwiseXor((k, m)), BITWISE),
    "Comparison": (lambda: COMPARISON, COMPARED),
    "LogicalAnd": (lambda: p.LogicalAnd((COMPARISON, BELOW)), COMPARED),
    "LogicalOr": (lambda: p.LogicalOr((COMPARISON, BELOW)), COMPARED),
    "LogicalNot": (lambda: p.LogicalNot(COMPARISON), COMPARED),
    "If": (lambda: p.If(BELOW, x, 0), {"select": 1, "load x": 1}),
    "Min": (lambda: p.Min((x, y)), {"minmax": 1, "load x": 1, "load y": 1}),
    "Max": (lambda: p.Max((x, y)), {"minmax": 1, "load x": 1, "load y": 1}),
    "TypeCast": (
        lambda: ls.TypeCast(NumpyType(np.dtype(np.float64)), x),
        {"convert": 2, "load x": 1},  # to double, and back to the assignee
    ),
    "Lookup": (lambda: p.Variable("v")[i].attr("x"), {"load v": 1}),
    "Variable": (lambda: p.Variable("private"), {}),
    "TaggedVariable": (lambda: ls.TaggedVariable("private", frozenset([UnrollTag()])), {}),
    "NaN": (lambda: p.NaN(np.float32), {}),
}
"""Operations and accesses of each in an assignment to a single-precision array."""


@cache
def _counter() -> tuple[Any, Any]:
    """Return a counter with all rules and an instruction to put expressions into."""
    import pyopencl.cltypes as cltypes

    t_unit = made(
        "i<n",
        "<float32> private = 1 {id=first}\nz[i] = x[i] + y[i] + private {id=second, dep=first}",
        "x,y,z f32 n; k,m i32 n; n i32",
        lp.GlobalArg("v", cltypes.float4, shape="n"),
    )
    kernel, callables = prepare_unit(t_unit)
    domains = Domains(kernel, callables, Counter(assumptions_of(kernel)), Statistics(kernel, {}))
    counter = SourceCounter(domains)
    return counter, kernel.id_to_insn["second"]


def _tally(expression: Any) -> dict[str, int]:
    """Tally an assignment of an expression, whatever Loopy itself thinks of it."""
    counter, second = _counter()
    instruction = second.copy(expression=expression)
    tally: dict[str, int] = {}
    for (key, _), number in counter.tally(instruction).items():
        match key:
            case Operation():
                name = key.kind
            case MemoryAccess(direction="load"):
                name = f"load {key.array}"
            case _:
                continue
        tally[name] = tally.get(name, 0) + int(number)
    return tally


@pytest.mark.filterwarnings("ignore:LinearSubscript is deprecated:DeprecationWarning")
@pytest.mark.parametrize("name", COUNTED)
def test_counted_nodes_count(name: str) -> None:
    build, expected = COUNTED[name]
    assert type(build()).__name__ == name
    assert _tally(build()) == expected


def _others(base: type, decided: Collection[str]) -> list[Any]:
    classes = sorted(_classes(base), key=lambda cls: cls.__name__)
    return [cls for cls in classes if cls.__name__ not in decided]


@pytest.mark.parametrize("cls", _others(p.ExpressionNode, {*COUNTED, "Call"}))
def test_all_other_nodes_are_refused_by_place(cls: Any) -> None:
    counter, second = _counter()
    counter.tally(second)
    with pytest.raises(UnsupportedExpressionError, match=r"'second': no counting rule.*; "):
        counter.rec(cls.__new__(cls))


@pytest.mark.parametrize(
    "value",
    ["text", None, (1, 2), 1j, object()],
    ids=["text", "none", "tuple", "complex", "object"],
)
def test_what_is_no_expression_is_refused(value: Any) -> None:
    with pytest.raises(UnsupportedExpressionError):
        _tally(p.Sum((x, value)))


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("z[i] = exp(x[i])", {"flop.special.f32.exp": 10}),
        ("z[i] = sum(j, x[i + j])", {"flop.add.f32": 40}),  # as they are realized
        # each use one product and one sum, one sum of both, and the (i + 1.0f) that is emitted
        ("f(a) := a*x[a] + 1\nz[i] = f(i) + f(i + 1)", {"flop.mul.f32": 20, "flop.add.f32": 40}),
        # as Loopy expands them
        ("z[i] = cse(x[i]*y[i]) + 1", {"flop.mul.f32": 10, "flop.add.f32": 10}),
        (
            "y[i], z[i] = make_tuple(2*x[i], x[i] + 1) {id=pair}\n... nop {id=nothing}",
            {"flop.mul.f32": 10, "flop.add.f32": 10, "gmem.store.32.uniform": 20},
        ),
        # once for each item that waits
        (
            "z[i] = 1 {id=a}\n... gbarrier {id=b, dep=a}\nx[j] = z[j] {dep=b}",
            {"barrier.global": 1, "launches": 2},
        ),
    ],
    ids=["call", "reduction", "rule", "common subexpression", "tuple", "barrier"],
)
def test_what_loopy_replaces_counts_as_it_is_replaced(body: str, expected: dict[str, int]) -> None:
    counts = count_kernel(made(["i<n", "j<4"], body, "x,y,z f32 n+4; n i32")).evaluate(n=10)
    assert {name: counts[name] for name in expected} == expected


def test_every_instruction_class_is_decided() -> None:
    computing = {"Assignment", "CallInstruction", "CInstruction"}  # C code is refused
    bases = {"InstructionBase", "MultiAssignmentBase", "_DataObliviousInstruction"}
    others = _others(lp.InstructionBase, {*computing, *bases})
    assert {cls.__name__ for cls in others} == {"BarrierInstruction", "NoOpInstruction"}


@pytest.mark.parametrize("run", [count_kernel, analyze_kernel, kernel_programs])
def test_c_code_is_refused_with_the_way_to_count_it(run: Callable[[Any], Any]) -> None:
    code = lp.CInstruction("i", "z[i] = 3;", id="raw", assignees=("z[i]",))
    message = r"CInstruction.*instruction_counts=\{'raw'" if run is count_kernel else "'raw'"
    with pytest.raises(UnsupportedExpressionError, match=message):
        run(made("i<n", [code], "z f32 n; n i32"))


READ = {"EnterLoop", "LeaveLoop", "RunInstruction", "CallKernel", "ReturnFromKernel", "Barrier"}


@pytest.mark.parametrize("cls", _others(ScheduleItem, READ))
def test_other_schedule_items_are_refused(cls: type) -> None:
    kernel = SimpleNamespace(name="made", linearization=[cls()])
    with pytest.raises(UnsupportedExpressionError, match=f"schedule item.*{cls.__name__}"):
        schedule_of(kernel)


def test_schedules_of_kernels_have_the_items_that_are_read() -> None:
    t_unit = made(
        "i<n, j<4",
        "z[i] = 1 {id=a}\n... gbarrier {id=b, dep=a}\nx[0, j] = z[j] {dep=b}",
        "z f32 n; x f32 n,4; n i32",
        assumptions="n >= 4",
    )
    kernel, _ = prepare_unit(t_unit)
    seen = {type(item).__name__ for item in kernel.linearization}
    assert seen == READ
    assert len(schedule_of(kernel).programs) == 2


def test_a_kernel_whose_types_are_not_known_is_refused() -> None:
    kernel = lp.make_kernel("{ [i] : 0 <= i < n }", "z[i] = x[i]", lang_version=(2018, 2))
    with pytest.raises(CountingError, match=r"types of .* not known"):
        count_kernel(kernel)


# --- constructs, against what is executed

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")
N = 6


def reduction(operation: str, kind: str = "f32", *, length: int = 16, tree: bool) -> Any:
    return made(
        f"i<n, j<{length}",
        f"z[i] = reduce({operation}, j, a[i, j])",
        f"a {kind} n,{length}; z {kind} n; n i32",
        tags={"j": "l.0", "i": "g.0"} if tree else None,
    )


def pair_reduction(operation: str, second: str, *, tree: bool) -> Any:
    return made(
        "i<n, j<16",
        f"z[i], y[i] = reduce({operation}, j, (a[i, j], {second}))",
        "a f32 n,16; flags i32 n,16; z f32 n; y i32 n; n i32",
        tags={"j": "l.0", "i": "g.0"} if tree else None,
    )


def scan(operation: str, length: Any, *, parallel: bool) -> Any:
    kernel = made(
        f"[n] -> {{ [i, j] : 0 <= i < {length} and 0 <= j <= i }}",
        f"z[i] = reduce({operation}, j, a[j])",
        f"a,z f32 {length}; n i32",
        tags={"i": "l.0"} if parallel else None,
    )
    return lp.realize_reduction(kernel, force_scan=True)


def unused_local_axis() -> Any:
    kernel = made(
        "i<n, j<n",
        "<> row = a[i] * 3 {id=row, inames=i}\nb[i, j] = row + 1 {dep=row}",
        "a f32 n; b f32 n,n; n i32",
        split="i:4:g.0,l.1 j:8:,l.0",
    )
    return lp.add_inames_for_unused_hw_axes(kernel)


_SIMPLE: dict[str, tuple[str, str, str, dict[str, Any]]] = {
    "mixed types": (
        "i<n, j<16",
        "z[i] = sum(j, a[i, j] * d[j] + k[j]) + k[i] // 3\nk[i] = k[i] % 5 + 2",
        "a f32 n,16; d f64 16; z f64 n; k i64 n+16; n i32",
        {"seq_dependencies": True},
    ),
    "tuples": (
        *("i<n", "z[i], y[i] = make_tuple(2*a[i] + 1, a[i]*a[i])"),
        *("a,y f32 n; z f64 n; n i32", {}),
    ),
    "substitutions": (
        "i<n, j<16",
        "pair(p, q) := a[p, q]*a[p, 15 - q]\nz[i] = sum(j, pair(i, j) + pair(0, j))",
        "a f32 n,16; z f32 n; n i32",
        {"split": "i:4"},
    ),
    "ilp": (
        *("i<n, j<16", "z[i, j] = 3*a[i, j]*a[i, j]", "a,z f32 n,16; n i32"),
        {"split": "j:4:,ilp i:4"},
    ),
    "unrolled remainder": (
        *("i<n", "z[i] = 3*a[i]*a[i]", "a,z f32 n; n i32", {"split": "i:4:g.0,unr"}),
    ),
    # the emitted code has loop variables as literals
    "unrolled numbers": (
        *("i<n, j<4, k<4", "z[i, k] = sum(j, a[i, j]*(j + 1) + j // 2) + k"),
        *("a,z f32 n,4; n i32", {"tags": {"j": "unr", "k": "ilp"}}),
    ),
    # with different geometry, one of them with a local barrier
    "three launches": (
        "i<n, j<n, k<n, l<16",
        """
        y[i] = 2*a[i] {id=first}
        ... gbarrier {id=one, dep=first}
        z[j] = sum(l, y[j]*b[l]) {id=second, dep=one}
        ... gbarrier {id=two, dep=second}
        c[k] = z[k] + 1 {dep=two}
        """,
        "a,c,y,z f32 n; b f32 16; n i32",
        {"split": "i:4 k:2", "tags": {"j": "g.0", "l": "l.0"}},
    ),
    "partial groups": (
        *("i<n", "b[i] = a[i]*2 + 1 + rsqrt(a[i])", "a,b f32 n; n i32", {"split": "i:12"}),
    ),
    "affine condition": (
        "i<n, j<n",
        "b[i] = sum(j, a[i, j] / a[j, j] if i != j and j < n - 2 else a[i, i])",
        *("a f32 n,n; b f32 n; n i32", {"split": "i:8"}),
    ),
    "predicated": (
        "i<n",
        """
        for i
            if i >= 2 and i < n - 3
                b[i] = a[i-2] + a[i+3]
            else
                c[i] = a[i]
            end
        end
        """,
        *("a,b,c f32 n; n i32", {"split": "i:8"}),
    ),
    "barrier in a triangular loop": (
        "{ [g, l, k] : 0 <= g and 8*g + l < n and 0 <= l < 8 and 0 <= k <= g }",
        """
        for g, l
            <float32> total = 0 {id=init}
            for k
                tile[l] = a[8*k + l] {id=fill, dep=init}
                total = total + tile[7 - l] {id=use, dep=fill}
            end
            b[8*g + l] = total {dep=use}
        end
        """,
        "a,b f32 n; tile f32 8 local; n i32",
        {"assumptions": "n >= 8 and n mod 8 = 0", "tags": {"g": "g.0", "l": "l.0"}},
    ),
}


def _simple(name: str) -> Any:
    loops, body, arguments, options = _SIMPLE[name]
    return made(loops, body, arguments, **options)


SIZES = {"partial groups": 31, "predicated": 21, "barrier in a triangular loop": 24}
KERNELS: dict[str, tuple[Callable[[], Any], dict[str, Any]]] = {
    **{
        f"{operation} {kind} {'tree' if tree else 'loop'}": (
            partial(reduction, operation, kind, tree=tree),
            {},
        )
        for operation, kind in (
            *(("sum", "f32"), ("sum", "f64"), ("sum", "i32"), ("product", "f32")),
            *(("product", "i64"), ("max", "f32"), ("max", "i32"), ("min", "f64")),
        )
        for tree in (False, True)
    },
    "sum of 13 tree": (lambda: reduction("sum", length=13, tree=True), {}),
    **{
        f"{operation} {'tree' if tree else 'loop'}": (
            partial(pair_reduction, operation, "j", tree=tree),
            {},
        )
        for operation in ("argmax", "argmin")
        for tree in (False, True)
    },
    "segmented sum loop": (
        lambda: pair_reduction("segmented(sum)", "flags[i, j]", tree=False),
        {"insn_j_update": 0},
    ),
    "segmented product tree": (
        lambda: pair_reduction("segmented(product)", "flags[i, j]", tree=True),
        {"flags[i, j]": 0, **{f"acc_j_0[red_j_s{k} + {8 >> k}]": 0 for k in range(4)}},
    ),
    "scan": (lambda: scan("sum", 13, parallel=False), {}),
    "scan of n": (lambda: scan("sum", "n", parallel=False), {}),
    "parallel scan": (lambda: scan("sum", 13, parallel=True), {}),
    "parallel scan of maxima": (lambda: scan("max", 16, parallel=True), {}),
    "unused local axis": (unused_local_axis, {}),
    **{name: (partial(_simple, name), {}) for name in _SIMPLE},
}


@with_oclgrind
@pytest.mark.parametrize("name", KERNELS)
def test_constructs_are_what_is_executed(name: str, tmp_path: Path) -> None:
    build, statistics = KERNELS[name]
    sizes = {"n": SIZES.get(name, N)}
    counts = count_kernel(build(), statistics=statistics).evaluate(sizes)
    dynamic = oclgrind.run(build(), sizes, tmp_path)
    assert oclgrind.disagreements(counts, dynamic) == {}

    def total(pattern: str) -> int:
        return sum(int(v) for k, v in counts.items() if re.fullmatch(pattern, k))

    conversions = ("fpext", "fptrunc", "sitofp", "fptosi", "uitofp")
    assert total(r"flop\.convert\..*") == dynamic.of(*conversions)
    assert total(r"flop\.compare\..*") == dynamic.of("fcmp")
    assert total(r"iop\.bitwise\..*") == dynamic.of("or")
    if any(word in name for word in ("max f32", "of maxima")):
        assert total(r"flop\.minmax\..*") == dynamic.calls("fmax")


def _logical(operation: str) -> Any:
    text = f"z[i] = {operation}(j, a[i, j] > 0)"
    return made("i<n, j<16", text, "a f32 n,16; z i32 n; n i32")


@with_oclgrind
def test_any_stops_at_the_first_that_holds(tmp_path: Path) -> None:
    kernel = _logical("any")
    with pytest.raises(DataDependentControlFlowError, match="insn_j_update"):
        count_kernel(kernel)
    # all elements are 1.5: after the first, the accumulator holds
    counts = count_kernel(kernel, statistics={"acc_j": Fraction(15, 16)}).evaluate(n=N)
    dynamic = oclgrind.run(kernel, {"n": N}, tmp_path)
    assert counts["flop.compare.f32"] == dynamic.of("fcmp") == N
    assert counts["gmem.load.32.uniform"] == dynamic.of("load global")


def test_a_segment_flag_is_exact_where_loops_decide_it_and_needs_a_probability_in_data() -> None:
    vector = count_kernel(pair_reduction("segmented(sum)", "j % 4", tree=False))
    assert vector.is_exact
    assert vector.evaluate(n=N)["flop.add.f32"] == 4 * N
    kernel = pair_reduction("segmented(sum)", "flags[i, j]", tree=False)
    message = r"flags\[i, j\] holds \(in 'insn_j_update'\).*0\.5"
    with pytest.raises(DataDependentControlFlowError, match=message):
        count_kernel(kernel)
    vector = count_kernel(kernel, statistics={"flags[i, j]": 0.25})
    assert vector.evaluate(n=4)["flop.add.f32"] == 48
    assert vector["flop.add.f32"].reason == "the caller's statistic for 'flags[i, j]'"


@pytest.mark.parametrize(
    ("constant", "bits"), [(2**31 - 1, 32), (2**31, 64), (-(2**31), 32), (-(2**31) - 1, 64)]
)
def test_a_constant_beyond_32_bits_makes_a_sum_one_of_64(constant: int, bits: int) -> None:
    kernel = made("i<n", f"z[i] = a[i] + {constant}", "a i32 n; z i64 n; n i32")
    assert count_kernel(kernel).evaluate(n=N)[f"iop.add.i{bits}"] == N


def test_half_precision_is_a_type_of_its_own() -> None:
    kernel = made("i<n", "z[i] = h[i]*g[i] + a[i]", "h,g f16 n; a,z f32 n; n i32")
    counts = count_kernel(kernel).evaluate(n=N)
    assert (counts["flop.mul.f16"], counts["flop.add.f32"]) == (N, N)
    assert counts["flop.convert.f32"] == N
    assert counts["gmem.load.16.uniform"] == 2 * N


def test_inames_that_equal_a_lane_are_strided() -> None:
    counts = count_kernel(scan("sum", 16, parallel=True)).evaluate(n=N)
    assert {k for k in counts if k.startswith("gmem.load")} == {"gmem.load.32.stride1"}


@with_oclgrind
@pytest.mark.parametrize(("kind", "family"), [("i32", "iop"), ("f64", "flop")])
def test_integer_powers_with_a_variable_exponent_are_calls(
    kind: str, family: str, tmp_path: Path
) -> None:
    kernel = made("i<n", "z[i] = 2*a[i]**k[i]", f"a,z {kind} n; k i32 n; n i32")
    executed = oclgrind.run(kernel, {"n": N}, tmp_path).instructions
    counts = count_kernel(kernel).evaluate(n=N)
    helper = f"call loopy_pow_{'int32' if kind == 'i32' else 'float64'}_int32()"
    assert counts[f"{family}.special.{kind}.pown"] == executed[helper] == N
    assert counts[f"{family}.mul.{kind}"] == N
