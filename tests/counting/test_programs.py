"""Device programs as trees: instructions of statements, executions of sub-groups."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from fractions import Fraction
from typing import Any

import loopy as lp
import pytest
from hypothesis import HealthCheck, given, settings

from countperf.counting.access_analysis import transactions
from countperf.counting.kernel import count_loopy_kernel
from countperf.counting.keys import MemoryAccess, Operation
from countperf.counting.programs import KernelProgram, Place, kernel_programs
from countperf.counting.statements import Node, Read, Statement
from countperf.errors import CountingError, UnsupportedExpressionError
from measurement_kernels import catalog
from tests.counting import profiled
from tests.strategies import KernelCase, kernels


def kind_of(node: Node) -> str:
    key = node.key
    if isinstance(key, Operation):
        return key.function or key.kind
    return f"{key.direction} {key.array}"


def described(statement: Statement) -> list[tuple[str, list[str]]]:
    """Return the instructions of a statement and what each waits for, numbered from 0."""
    numbers = {node: str(number) for number, node in enumerate(statement.nodes)}
    return [
        (kind_of(node), [_source(source, numbers) for source in node.operands])
        for node in statement.nodes
    ]


def _source(source: Node | Read, numbers: dict[Node, str]) -> str:
    return numbers[source] if isinstance(source, Node) else source.name


def only_program(t_unit: Any, *, contract: bool = True) -> KernelProgram:
    (program,) = kernel_programs(t_unit, contract=contract)
    return program


_ARRAYS = "x(n) y(n) z(n)"


@pytest.mark.parametrize(
    ("expression", "contract", "expected"),
    [
        pytest.param(
            "a*x[i] + y[i]",
            True,
            [("load x", []), ("load y", []), ("fma", ["1", "0"])],
            id="fused",
        ),
        pytest.param(
            "a*x[i] + y[i]",
            False,
            [("load x", []), ("mul", ["0"]), ("load y", []), ("add", ["1", "2"])],
            id="not fused",
        ),
        pytest.param(
            "x[i]*x[i+1] + y[i]*y[i+1]",
            True,
            [
                *(("load x", []), ("load x", []), ("mul", ["0", "1"])),
                *(("load y", []), ("load y", []), ("fma", ["2", "3", "4"])),
            ],
            id="one of two products is fused",
        ),
        pytest.param(
            "x[i] - y[i]",
            True,
            [("load x", []), ("load y", []), ("add", ["0", "1"])],
            id="the negation inside a subtraction is free",
        ),
        pytest.param(
            "x[i] + y[i] + x[i+1] + 3",
            True,
            [
                *(("load x", []), ("load y", []), ("load x", [])),
                *(("add", ["0", "1"]), ("add", ["3", "2"]), ("add", ["4"])),
            ],
            id="sums run from left to right",
        ),
        pytest.param(
            "(x[i] + y[i])*(x[i] + y[i+1])",
            True,
            [
                *(("load x", []), ("load y", []), ("add", ["0", "1"])),
                *(("load x", []), ("load y", []), ("add", ["3", "4"])),
                ("mul", ["2", "5"]),
            ],
            id="operands are independent",
        ),
        pytest.param(
            "rsqrt(x[i])/y[i]",
            True,
            [("load x", []), ("rsqrt", ["0"]), ("load y", []), ("div", ["1", "2"])],
            id="functions and divisions",
        ),
        pytest.param(
            "x[i]**2",
            True,
            [("load x", []), ("load x", []), ("mul", ["0", "1"])],
            id="a square reads its base twice",
        ),
        pytest.param(
            "(2 + 3)*(4 + 5)*x[i]*y[i]",
            True,
            [("load x", []), ("load y", []), ("mul", ["0"]), ("mul", ["2", "1"])],
            id="numbers are folded",
        ),
        pytest.param(
            "x[i]**5",
            True,
            [("load x", []), ("mul", ["0"]), ("mul", ["1"]), ("mul", ["2"]), ("mul", ["3"])],
            id="the helper of integer powers is a chain",
        ),
        pytest.param(
            "fmax(x[i], y[i])",
            True,
            [("load x", []), ("load y", []), ("minmax", ["0", "1"])],
            id="maximum",
        ),
        pytest.param(
            "(x[i] if i < 7 else y[i])",
            True,
            [("load x", []), ("load y", []), ("select", ["0", "1"])],
            id="a selection waits for both branches",
        ),
    ],
)
def test_instructions_of_an_expression(
    expression: str, contract: bool, expected: list[tuple[str, list[str]]]
) -> None:
    unit = profiled.spread(
        profiled.make("{ [i]: 0 <= i < n }", f"z[i] = {expression}", "x(n+9) y(n+9) z(n)"), "i", 32
    )

    (statement,) = only_program(unit, contract=contract).statements

    store = ("store z", [str(len(expected) - 1)])
    assert [(k, sorted(w)) for k, w in described(statement)] == [
        (k, sorted(w)) for k, w in [*expected, store]
    ]


def test_mixed_precision_converts_the_operand_that_is_converted() -> None:
    unit = lp.make_kernel(
        "{ [i]: 0 <= i < 64 }",
        "z[i] = x[i] + y[i]",
        [
            lp.GlobalArg("x", "float32", shape=64),
            lp.GlobalArg("y", "float64", shape=64),
            lp.GlobalArg("z", "float64", shape=64),
        ],
        lang_version=(2018, 2),
    )

    (statement,) = only_program(unit).statements

    assert described(statement) == [
        ("load x", []),
        ("load y", []),
        ("convert", ["0"]),
        ("add", ["2", "1"]),
        ("store z", ["3"]),
    ]


def test_addresses_that_are_read_from_data_are_waited_for() -> None:
    unit = lp.make_kernel(
        "{ [i]: 0 <= i < 64 }",
        """
        <> where = index[i] {id=where}
        z[index[i + 1]] = x[where] {dep=where}
        """,
        [
            lp.GlobalArg("index", "int32", shape=65),
            lp.GlobalArg("x", "float32", shape=99),
            lp.GlobalArg("z", "float32", shape=99),
        ],
        lang_version=(2018, 2),
    )

    first, second = only_program(unit).statements

    assert described(first) == [("load index", [])]
    assert described(second) == [
        ("load index", []),
        ("load x", ["where"]),
        ("store z", ["0", "1"]),
    ]


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
    unit = lp.make_kernel(
        "{ [i, j]: 0 <= i, j < n }",
        """
        y[i] = x[i] + 1 {id=first}
        ... gbarrier {id=between, dep=first}
        z[j] = y[j]*y[j] {id=second, dep=between}
        """,
        [lp.GlobalArg("x,y,z", "float32", shape="n"), lp.ValueArg("n", "int32")],
        assumptions="n mod 32 = 0 and n >= 32",
        lang_version=(2018, 2),
        silenced_warnings=["write_race*"],
    )
    unit = profiled.spread(profiled.spread(unit, "i", 32), "j", 32)

    first, second = kernel_programs(unit)

    assert first.launches.evaluate({"n": 64}) == second.launches.evaluate({"n": 64}) == 1
    assert [kind_of(node) for node in first.statements[0].nodes] == ["load x", "add", "store y"]
    executions = second.executions((second.statements[0].within, ()), 32)
    assert executions.evaluate({"n": 64}) == 2


def test_what_is_no_assignment_is_refused() -> None:
    unit = lp.make_kernel(
        "{ [i]: 0 <= i < 32 }",
        [lp.CInstruction("i", "z[i] = 1;", assignees=("z[i]",), id="written")],
        [lp.GlobalArg("z", "float32", shape=32)],
        lang_version=(2018, 2),
    )

    with pytest.raises(UnsupportedExpressionError, match="'written'"):
        kernel_programs(unit)


Totals = dict[Operation | MemoryAccess, Fraction]


def _totals(programs: Iterable[KernelProgram], parameters: dict[str, int]) -> Totals:
    """Add up the executions of all instructions by all work items."""
    found: Totals = defaultdict(Fraction)
    for program in programs:
        for statement in program.statements:
            for node in statement.nodes:
                place = (statement.within, node.cases)
                items = program.domains.executions(*place, program.grid).evaluate(parameters)
                found[node.key] += Fraction(items) * node.share
    return {key: number for key, number in found.items() if number}


def _counted(t_unit: Any, parameters: dict[str, int]) -> Totals:
    counts = count_loopy_kernel(t_unit)
    found: Totals = defaultdict(Fraction)
    for operation, quantity in counts.operations.items():
        if operation.kind != "neg":  # free
            found[operation] += quantity.evaluate(parameters)
    for item in counts.accesses:
        found[item.access] += item.executions.evaluate(parameters)
    return {key: number for key, number in found.items() if number}


_SHAPES = (((16, 12), "f32"), ((16, 12), "f64"), ((256, 1), "f32"), ((16, 16), "f32"))
_CATALOGUE = [
    each
    for each in catalog.entries(purpose=None, element_type=None)
    if (each.group_shape, each.element_type) in _SHAPES
]


@pytest.mark.parametrize("entry", _CATALOGUE, ids=lambda each: each.name)
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

    @settings(
        max_examples=30,
        derandomize=True,
        deadline=None,
        database=None,
        suppress_health_check=(HealthCheck.too_slow, HealthCheck.filter_too_much),
    )
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


def _check_executions(program: KernelProgram, place: Place, parameters: dict[str, int]) -> None:
    """Sub-groups of one item execute what items do; larger ones what is left when they join."""
    items = program.domains.executions(*place, program.grid).evaluate(parameters)
    numbers = [program.executions(place, size).evaluate(parameters) for size in (1, 4, 10**6)]
    assert numbers[0] == items
    assert numbers[0] >= numbers[1] >= numbers[2] >= items / Fraction(program.grid.group_size)


@pytest.mark.parametrize("entry", _CATALOGUE[::2], ids=lambda each: each.name)
def test_accesses_are_executed_as_often_as_work_items_that_are_listed_do(
    entry: Any,
) -> None:
    sub_group_size = 32
    parameters = dict(entry.check_parameters)

    program = only_program(entry.builder())

    executed: dict[tuple[str, MemoryAccess], Fraction] = defaultdict(Fraction)
    for statement in program.statements:
        for node in statement.nodes:
            if isinstance(node.key, MemoryAccess):
                found = program.executions((statement.within, node.cases), sub_group_size)
                executed[statement.name, node.key] += Fraction(found.evaluate(parameters))
    listed: dict[tuple[str, MemoryAccess], Fraction] = defaultdict(Fraction)
    for access in program.accesses:
        counted = transactions(
            access, parameters, line_bytes=64, sub_group_size=sub_group_size
        ).instructions
        listed[access.instruction, access.access] += counted
    assert executed == listed
