"""Every class of expressions, instructions and schedule items of pymbolic and Loopy is decided."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection
from functools import cache
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
from countperf.errors import CountingError, UnsupportedExpressionError
from countperf.symbolic.cardinality import Counter
from countperf.symbolic.kernel_sets import assumptions_of
from tests.kernels import made


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
def test_all_other_nodes_are_refused_by_place(cls: type) -> None:
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
        (
            "f(a) := a*x[a] + 1\nz[i] = f(i) + f(i + 1)",
            {"flop.mul.f32": 20, "flop.add.f32": 40},
        ),
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
