"""Device programs as trees: instructions of statements, executions of sub-groups."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from fractions import Fraction
from typing import Any

import loopy as lp
import pytest
from hypothesis import given

from countperf.counting.access_analysis import transactions
from countperf.counting.count_properties import count_loopy_kernel
from countperf.counting.keys import MemoryAccess, Operation
from countperf.counting.programs import Iterations, KernelProgram, Node, Statement, kernel_programs
from countperf.errors import CountingError
from measurement_kernels import catalog
from tests.counting import profiled
from tests.kernels import made
from tests.strategies import KernelCase, generated, kernels


def kind_of(node: Node) -> str:
    key = node.key
    if isinstance(key, Operation):
        return key.function or key.kind
    return f"{key.direction} {key.array}"


def described(statement: Statement) -> str:
    """Return the instructions of a statement, and the numbers or names of what each waits for."""
    numbers = {node: str(number) for number, node in enumerate(statement.nodes)}
    rows = [
        [
            kind_of(node),
            *sorted(numbers[s] if isinstance(s, Node) else s.name for s in node.operands),
        ]
        for node in statement.nodes
    ]
    return ", ".join(" ".join(row) for row in rows)


def only_program(t_unit: Any, *, contract: bool = True) -> KernelProgram:
    (program,) = kernel_programs(t_unit, contract=contract)
    return program


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("a*x[i] + y[i]", "load x, load y, fma 0 1"),
        ("x[i]*x[i+1] + y[i]*y[i+1]", "load x, load x, mul 0 1, load y, load y, fma 2 3 4"),
        # the negation inside a subtraction is free
        ("x[i] - y[i]", "load x, load y, add 0 1"),
        # from left to right
        ("x[i] + y[i] + x[i+1] + 3", "load x, load y, load x, add 0 1, add 2 3, add 4"),
        (
            "(x[i] + y[i])*(x[i] + y[i+1])",
            "load x, load y, add 0 1, load x, load y, add 3 4, mul 2 5",
        ),
        ("rsqrt(x[i])/y[i]", "load x, rsqrt 0, load y, div 1 2"),
        ("x[i]**2", "load x, load x, mul 0 1"),  # reads its base twice
        ("(2 + 3)*(4 + 5)*x[i]*y[i]", "load x, load y, mul 0, mul 1 2"),
        # the helper of integer powers is a chain
        ("x[i]**5", "load x, mul 0, mul 1, mul 2, mul 3"),
        ("fmax(x[i], y[i])", "load x, load y, minmax 0 1"),
        # waits for both branches
        ("(x[i] if i < 7 else y[i])", "load x, load y, select 0 1"),
    ],
)
def test_instructions_of_an_expression(expression: str, expected: str) -> None:
    instructions = f"z[i] = {expression}"
    unit = profiled.make("i<n", instructions, "x(n+9) y(n+9) z(n)", split="i:32")
    (statement,) = only_program(unit).statements
    assert described(statement) == f"{expected}, store z {expected.count(',')}"


@pytest.mark.parametrize(
    ("unit", "contract", "expected"),
    [
        (profiled.saxpy(), False, ["load x, mul 0, load y, add 1 2, store z 3"]),
        (
            made("i<64", "z[i] = x[i] + y[i]", "x f32 64; y,z f64 64"),
            True,
            ["load x, load y, convert 0, add 1 2, store z 3"],
        ),
        (
            made(
                "i<64",
                "<> where = index[i] {id=where}\nz[index[i + 1]] = x[where] {dep=where}",
                "index i32 65; x,z f32 99",
            ),
            True,
            ["load index", "load index, load x where, store z 0 1"],
        ),
    ],
    ids=["not contracted", "mixed precision", "addresses from data"],
)
def test_statements(unit: Any, contract: bool, expected: list[str]) -> None:
    assert [described(s) for s in only_program(unit, contract=contract).statements] == expected


def test_a_loop_takes_as_long_as_that_of_the_last_item() -> None:
    program = only_program(profiled.row_sums())
    begin, add, end = program.statements
    # rows 0-31 take 32 iterations, rows 32-63 take 64, ...
    executions = program.executions((add.within, add.cases), 32)
    assert not begin.nodes
    assert executions.evaluate({"n": 256}) == sum(32 * (s + 1) for s in range(8))
    assert program.executions((end.within, end.cases), 32).evaluate({"n": 256}) == 8


def test_totals_are_symbolic() -> None:
    program = only_program(catalog.entry("matmul-tiled/square/16x16").builder())
    totals = program.instruction_totals(32)
    fma = totals[Operation(kind="fma", type_name="f32")]
    assert str(fma) == "(1/32)*l*m*n"
    assert {str(total) for total in totals.values()} == {
        "(1/32)*l*m*n",  # products, and loads of both factors from local memory
        "(1/512)*l*m*n",  # fetches
        "(1/32)*l*n",  # results
    }


@pytest.mark.parametrize(
    ("kernel", "parameters", "expected"),
    [
        ("matmul-tiled/square/16x16", {"n": 64, "m": 64, "l": 64}, 2 * 16 * 16 * 4),
        ("finite-differences/16x16", {"n": 64}, 18 * 18 * 4),
        ("n-body", {"n": 512}, 3 * 256 * 4),
        ("matmul-naive/16x16", {"n": 64, "m": 64, "l": 64}, 0),
    ],
)
def test_local_memory_of_a_group(kernel: str, parameters: dict[str, int], expected: int) -> None:
    program = only_program(catalog.entry(kernel).builder())
    assert program.local_bytes(parameters) == expected


def test_each_launch_is_a_program() -> None:
    unit = made(
        "i<n, j<n",
        """
        y[i] = x[i] + 1 {id=first}
        ... gbarrier {id=between, dep=first}
        z[j] = y[j]*y[j] {id=second, dep=between}
        """,
        "x,y,z f32 n; n i32",
        assumptions="n mod 32 = 0 and n >= 32",
        split="i:32 j:32",
    )
    first, second = kernel_programs(unit)
    assert first.launches.evaluate({"n": 64}) == second.launches.evaluate({"n": 64}) == 1
    assert [kind_of(node) for node in first.statements[0].nodes] == ["load x", "add", "store y"]
    executions = second.executions((second.statements[0].within, ()), 32)
    assert executions.evaluate({"n": 64}) == 2


Totals = dict[Operation | MemoryAccess, Fraction]


def _totals(programs: Iterable[KernelProgram], parameters: dict[str, int]) -> Totals:
    """Add up the executions of all instructions by all work items."""
    totals: Totals = defaultdict(Fraction)
    for program in programs:
        for statement in program.statements:
            for node in statement.nodes:
                domain = (statement.within, node.cases)
                items = program.domains.executions(*domain, program.grid).evaluate(parameters)
                totals[node.key] += Fraction(items) * node.share
    return {key: number for key, number in totals.items() if number}


def _counted(t_unit: Any, parameters: dict[str, int]) -> Totals:
    counts = count_loopy_kernel(t_unit)
    totals: Totals = defaultdict(Fraction)
    for operation, quantity in counts.operations.items():
        if isinstance(operation, Operation) and operation.kind != "neg":  # free
            totals[operation] += quantity.evaluate(parameters)
    for item in counts.accesses:
        totals[item.access] += item.executions.evaluate(parameters)
    return {key: number for key, number in totals.items() if number}


_SHAPES = (((16, 12), "f32"), ((16, 12), "f64"), ((256, 1), "f32"), ((16, 16), "f32"))
_CATALOGUE = [
    entry
    for entry in catalog.entries(purpose=None, element_type=None)
    if (entry.group_shape, entry.element_type) in _SHAPES
]


@pytest.mark.parametrize("entry", _CATALOGUE, ids=lambda entry: entry.name)
def test_instructions_of_the_library_are_those_that_are_counted(entry: Any) -> None:
    parameters = dict(entry.check_parameters)
    unit = entry.builder()
    program = only_program(unit, contract=False)
    assert _totals([program], parameters) == _counted(unit, parameters)


def test_fusing_keeps_the_number_of_operations() -> None:
    unit = catalog.entry("finite-differences/16x16").builder()
    kinds = [
        Counter(
            node.key.kind
            for statement in only_program(unit, contract=contract).statements
            for node in statement.nodes
            if isinstance(node.key, Operation)
        )
        for contract in (False, True)
    ]
    plain, fused = kinds
    assert fused["fma"] == 2
    assert plain["add"] == fused["add"] + fused["fma"]
    assert plain["mul"] == fused["mul"] + fused["fma"]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # Loopy on newer islpy
def test_generated_kernels_in_sub_groups_of_any_size() -> None:
    compared: Counter[str] = Counter()

    @generated(30)
    @given(kernels())
    def check(case: KernelCase) -> None:
        try:
            unit = case.build()
            programs = kernel_programs(unit, contract=False)
            parameters = case.parameters(unit)[0]
            counted = _counted(unit, parameters)
        except (CountingError, lp.LoopyError):
            compared["refused"] += 1
            return
        for program in programs:
            for statement in program.statements:
                for node in statement.nodes:
                    _check_executions(program, (statement.within, node.cases), parameters)
        assert _totals(programs, parameters) == counted
        compared["equal"] += 1

    check()
    assert compared["equal"] >= 15, compared


def _check_executions(
    program: KernelProgram, domain: Iterations, parameters: dict[str, int]
) -> None:
    """Sub-groups of one item execute what items do; larger ones what is left when they join."""
    items = program.domains.executions(*domain, program.grid).evaluate(parameters)
    numbers = [program.executions(domain, size).evaluate(parameters) for size in (1, 4, 10**6)]
    assert numbers[0] == items
    assert numbers[0] >= numbers[1] >= numbers[2] >= items / Fraction(program.grid.group_size)


@pytest.mark.parametrize("entry", _CATALOGUE[::2], ids=lambda entry: entry.name)
def test_accesses_are_executed_as_often_as_work_items_that_are_listed_do(entry: Any) -> None:
    sub_group_size = 32
    parameters = dict(entry.check_parameters)
    program = only_program(entry.builder())
    executed: dict[tuple[str, MemoryAccess], Fraction] = defaultdict(Fraction)
    for statement in program.statements:
        for node in statement.nodes:
            if isinstance(node.key, MemoryAccess):
                number = program.executions((statement.within, node.cases), sub_group_size)
                executed[statement.name, node.key] += Fraction(number.evaluate(parameters))
    listed: dict[tuple[str, MemoryAccess], Fraction] = defaultdict(Fraction)
    for access in program.accesses:
        counted = transactions(
            access, parameters, line_bytes=64, sub_group_size=sub_group_size
        ).instructions
        listed[access.instruction, access.access] += counted
    assert executed == listed
