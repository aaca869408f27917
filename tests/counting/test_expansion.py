"""Graphs of sub-groups against those written down by hand."""

from __future__ import annotations

from collections import Counter, defaultdict
from fractions import Fraction
from itertools import product
from typing import Any

import loopy as lp
import pytest
from hypothesis import given

from countperf.counting.expansion import Expansion, expand_program
from countperf.counting.keys import MemoryAccess, Operation
from countperf.counting.programs import Node, kernel_programs
from countperf.errors import CountingError
from measurement_kernels import catalog
from tests.counting import profiled
from tests.counting.random_kernels import DISTINCT
from tests.kernels import made
from tests.strategies import KernelCase, generated, kernels


def expand_instructions(
    t_unit: Any,
    parameters: dict[str, int],
    *,
    sub_group_size: int = 32,
    number: int = 0,
    most: int = 10**6,
) -> Expansion:
    (program,) = kernel_programs(t_unit)
    return expand_program(
        program, parameters, sub_group_size=sub_group_size, number=number, max_instructions=most
    )


def names_of(expansion: Expansion) -> list[str]:
    found: list[str] = []
    for node in expansion.nodes:
        if node is None:
            found.append("barrier")
        elif isinstance(node.key, Operation):
            found.append(node.key.function or node.key.kind)
        else:
            found.append(f"{node.key.direction} {node.key.array}")
    return found


class Listing:
    """A program that is written down instruction by instruction."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.edges: list[tuple[int, int]] = []

    def add(self, name: str, *waits: int) -> int:
        number = len(self.names)
        self.names.append(name)
        self.edges += [(source, number) for source in sorted(waits)]
        return number

    def assert_is(self, expansion: Expansion) -> None:
        assert names_of(expansion) == self.names
        assert sorted(expansion.edges) == sorted(self.edges)
        assert not expansion.is_shortened


@pytest.mark.parametrize("m", [16, 32, 80])
def test_tiled_matrix_product_is_a_chain_between_barriers(m: int) -> None:
    expected = Listing()
    chain: tuple[int, ...] = ()  # the sum so far, if no barrier has been waited for since
    after: tuple[int, ...] = ()  # the last barrier
    for _ in range(m // 16):
        after = (expected.add("barrier", *chain),)
        fetched: list[int] = []
        for array in "ab":
            loaded = expected.add(f"load {array}", *after)
            fetched.append(expected.add(f"store {array}_fetch", loaded))
        after = (expected.add("barrier", *fetched),)
        chain = ()
        for _ in range(16):
            a = expected.add("load a_fetch", *after)
            b = expected.add("load b_fetch", *after)
            chain = (expected.add("fma", a, b, *chain),)
    expected.add("store c", *chain)
    unit = catalog.entry("matmul-tiled/square/16x16").builder()
    expected.assert_is(expand_instructions(unit, {"n": 32, "m": m, "l": 48}))


def test_n_body() -> None:
    expected = Listing()
    total: tuple[int, ...] = ()
    after: tuple[int, ...] = ()
    for _ in range(2):  # blocks of 256 points
        after = (expected.add("barrier", *total),)
        fetched: list[int] = []
        for _ in range(3):
            loaded = expected.add("load x", *after)
            fetched.append(expected.add("store x_block_fetch", loaded))
        after = (expected.add("barrier", *fetched),)
        total = ()
        for _ in range(256):
            square: tuple[int, ...] = ()
            for _ in range(3):
                own = expected.add("load x", *after)
                other = expected.add("load x_block_fetch", *after)
                difference = expected.add("add", own, other)
                square = (expected.add("fma", difference, *square),)
            distance = expected.add("select", expected.add("rsqrt", *square))
            total = (expected.add("add", distance, *total),)
    expected.add("store pot", *total)
    expected.assert_is(expand_instructions(catalog.entry("n-body").builder(), {"n": 512}))


def test_the_only_item_of_a_sub_group_skips_its_own_inverse_distance() -> None:
    unit = catalog.entry("n-body").builder()
    found = Counter(names_of(expand_instructions(unit, {"n": 256}, sub_group_size=1, number=7)))
    assert (found["rsqrt"], found["select"]) == (255, 256)


def test_elements_of_private_arrays_are_chains_of_their_own() -> None:
    expected = Listing()
    sums: list[tuple[int, ...]] = [()] * 4
    for _ in range(8):
        for place in range(4):
            loaded = expected.add("load x")
            sums[place] = (expected.add("add", loaded, *sums[place]),)
    for place in range(4):
        expected.add("store y", *sums[place])
    expected.assert_is(expand_instructions(profiled.four_accumulators(), {"n": 64}))


def test_a_load_waits_for_the_store_to_its_address() -> None:
    unit = profiled.make(
        "{ [i, k]: 0 <= i < n and 0 <= k < 3 }",
        """
        for i
            y[i, 0] = x[i] {id=begin}
            for k
                y[i, k + 1] = y[i, k] + 1 {id=step, dep=begin}
            end
        end
        """,
        "x(n) y(n,4)",
        assumptions="n mod 32 = 0 and n >= 32",
        split="i:32",
    )
    expected = Listing()
    stored = expected.add("store y", expected.add("load x"))
    for _ in range(3):
        added = expected.add("add", expected.add("load y", stored))
        stored = expected.add("store y", added)
    expected.assert_is(expand_instructions(unit, {"n": 64}))


def test_rows_of_a_triangle_run_as_far_as_the_last_item() -> None:
    # the middle one of two groups has rows 64 to 127
    lengths = [
        names_of(expand_instructions(profiled.row_sums(), {"n": 128}, number=number)).count("add")
        for number in (0, 1)
    ]
    assert lengths == [96, 128]


def test_sub_groups_without_a_halo_fetch_less() -> None:
    unit = catalog.entry("finite-differences/16x16").builder()
    fetched = [
        names_of(expand_instructions(unit, {"n": 64}, number=number)).count("load u")
        for number in range(8)
    ]
    assert fetched == [4, 2, 2, 2, 2, 2, 2, 2]


def test_copies_of_ilp_loops_are_independent() -> None:
    unit = profiled.make(
        "{ [i, u]: 0 <= i < n and 0 <= u < 2 }",
        """
        <> value = x[u, i] {id=read}
        y[u, i] = value*value {dep=read}
        """,
        "x(2,n) y(2,n)",
        assumptions="n mod 32 = 0 and n >= 32",
        split="i:32",
    )
    unit = lp.tag_inames(unit, {"u": "ilp"})
    expected = Listing()
    for _ in range(2):
        expected.add("store y", expected.add("mul", expected.add("load x")))
    expected.assert_is(expand_instructions(unit, {"n": 64}))


@pytest.mark.parametrize("most", [1000, 10_000])
def test_long_programs_are_shortened_from_outside(most: int) -> None:
    unit = catalog.entry("matmul-tiled/square/16x16").builder()
    sizes = {"n": 64, "m": 8192, "l": 64}
    found = expand_instructions(unit, sizes, most=most)
    names = Counter(names_of(found))
    blocks = names["barrier"] // 2
    assert found.is_shortened
    assert len(found.nodes) <= most * 1.1
    assert len(found.nodes) >= most * 0.4
    # whole blocks of 16 products, and what follows the loop
    assert names["fma"] == 16 * blocks
    assert names["store c"] == 1


def test_statistics_give_trip_counts() -> None:
    unit = made(
        ["[n] -> { [i]: 0 <= i < n }", "[number] -> { [k]: 0 <= k < number }"],
        """
        for i
            <> number = counts[i] {id=number}
            <> total = 0 {id=begin}
            for k
                total = total + x[k, i] {id=add, dep=begin:number}
            end
            z[i] = total {dep=add}
        end
        """,
        "counts i32 n; x f32 99,n; z f32 n; n i32",
        assumptions="n mod 32 = 0 and n >= 32",
        split="i:32",
    )
    (program,) = kernel_programs(unit, statistics={"k": 6.75})
    add = next(s for s in program.statements if s.name == "add")
    found = expand_program(program, {"n": 64}, sub_group_size=32, max_instructions=1000)
    assert names_of(found).count("add") == 7
    executions = program.executions((add.within, add.cases), 32).evaluate({"n": 64})
    assert executions == Fraction(27, 4) * 2


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # Loopy on newer islpy
def test_graphs_of_a_group_hold_what_is_counted() -> None:
    """Where there is one group, its sub-groups together are the whole launch."""
    compared: Counter[str] = Counter()

    @generated(DISTINCT)
    @given(kernels())
    def check(case: KernelCase) -> None:
        try:
            unit = case.build()
            programs = kernel_programs(unit)
        except (CountingError, lp.LoopyError):
            compared["refused"] += 1
            return
        for program, parameters in product(programs, case.parameters(unit)):
            groups = program.grid.work_groups.evaluate(parameters)
            if groups != 1 or program.launches.evaluate(parameters) != 1:
                compared["several groups"] += 1
                continue
            number = program.sub_groups_per_group(4)
            total = Counter(
                node
                for k in range(number)
                for node in expand_program(
                    program, parameters, sub_group_size=4, number=k, max_instructions=10**6
                ).nodes
            )
            barriers = Fraction(program.barriers.evaluate(parameters), program.grid.group_size)
            assert total.pop(None, 0) == barriers * number
            expected, items = dict[Node, Any](), defaultdict[Any, Any](int)
            for statement in program.statements:
                for node in statement.nodes:
                    place, guarded = (statement.name, node.key), (statement.within, node.cases)
                    expected[node] = program.executions(guarded, 4).evaluate(parameters)
                    executed = program.domains.executions(*guarded, program.grid)
                    items[place] += executed.evaluate(parameters)
            for (name, key), every in items.items():
                left = program.left_accesses.get((name, key), ())
                remaining = sum(each.executions.evaluate(parameters) for each in left)
                if isinstance(key, MemoryAccess) and remaining < every:  # others: in registers
                    (statement,) = (s for s in program.statements if s.name == name)
                    same = {node for node in statement.nodes if node.key == key}
                    found = [total.pop(node, 0) for node in same]
                    assert bool(sum(found)) == bool(remaining)
                    assert sum(found) <= sum(expected.pop(node) for node in same)
                    compared["in registers"] += 1
            assert total == {node: count for node, count in expected.items() if count}
            compared["equal"] += 1

    check()
    assert compared["equal"] >= 5, compared
