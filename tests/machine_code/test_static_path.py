"""Loops found in control flow, against loops drawn by hand."""

from __future__ import annotations

import re

import pytest

from countperf.machine_code.flow import Instruction
from countperf.machine_code.static_path import find_way
from countperf.machine_code.trips import Effect

END = "end"
Branches = dict[int, int | str]


def _program(length: int, branches: Branches, *, always: frozenset[int]) -> list[Instruction]:
    return [
        Instruction(
            (),
            target=target if isinstance(target := branches.get(place), int) else None,
            goes_on=place not in always,
        )
        for place in range(length)
    ]


@pytest.mark.parametrize(
    ("length", "branches", "always", "expected"),
    [
        pytest.param(3, {1: 2}, (), {}, id="a branch forward is no loop"),
        pytest.param(4, {2: 1}, (), {(1,): (1, 2)}, id="a loop"),
        pytest.param(2, {1: 1}, (), {(1,): (1,)}, id="a loop of one instruction"),
        pytest.param(
            8,
            {3: 2, 4: 1, 6: 6},
            (),
            {(1,): (1, 4), (1, 1): (2, 3), (2,): (6,)},
            id="a loop in a loop, and one behind",
        ),
        # as compilers place them: the test of the outer loop is entered last
        pytest.param(
            7,
            {0: 5, 2: 2, 5: 1},
            (0,),
            {(1,): (1, 3, 4, 5), (1, 1): (2,)},
            id="a loop that is entered at its end",
        ),
        pytest.param(
            6, {2: 1, 4: 1}, (), {(1,): (1, 2, 3, 4)}, id="two ways back are one loop"
        ),
        pytest.param(4, {0: 2, 2: 1}, (), {}, id="a cycle with two entries is none"),
        pytest.param(5, {0: END, 3: 2}, (0,), {}, id="what is never reached is none"),
    ],
)  # fmt: skip
def test_loops(
    length: int,
    branches: Branches,
    always: tuple[int, ...],
    expected: dict[tuple[int, ...], tuple[int, ...]],
) -> None:
    way = find_way(_program(length, branches, always=frozenset(always)))

    assert {loop.path: loop.own for loop in way.loops} == expected
    around = {path[:-1] for path in expected}
    assert all(loop.is_innermost == (loop.path not in around) for loop in way.loops)
    places = [*way.body, *way.aside, *(place for loop in way.loops for place in loop.own)]
    assert sorted(places) == list(range(length))


def _way(*lines: str) -> tuple[tuple[int, ...], list[tuple[int, ...]], tuple[int, ...]]:
    """Find a way through lines of a worth (or none), then ``>`` or ``=`` (always) and a place."""
    program: list[Instruction] = []
    for line in lines:
        found = re.fullmatch(r"(\d*)([>=]?)(\d*)", line)
        assert found
        target = int(found[3]) if found[3] else None
        program.append(Instruction((found[1] or "0",), target, goes_on=found[2] != "="))
    way = find_way(program, lambda each: 1 + 100 * float(each.classes[0]))
    return way.body, [loop.own for loop in way.loops], way.aside


def test_of_two_versions_the_one_worth_more_is_taken() -> None:
    assert _way(">4", "1", "1", "=5", "9", "") == ((0, 4, 5), [], (1, 2, 3))
    assert _way(">4", "9", "1", "=5", "9", "") == ((0, 1, 2, 3, 5), [], (4,))


def test_the_longer_of_two_that_are_worth_the_same_is_taken() -> None:
    assert _way("5>2", "", "5") == ((0, 1, 2), [], ())
    assert _way(">3", "5", "=5", "5", "", "") == ((0, 3, 4, 5), [], (1, 2))


def test_a_version_with_a_loop_is_worth_its_iterations() -> None:
    # 30 once, or 4 in each iteration
    assert _way(">3", "30", "=5", "4", ">3", "") == ((0, 5), [(3, 4)], (1, 2))


def test_what_stands_behind_loops_that_end_together_is_on_the_way() -> None:
    # the last test of the inner loop leads on to the next iteration of the outer one
    body, loops, aside = _way("", "1", "2>2", ">1", "3")
    assert (body, loops, aside) == ((0, 4), [(1, 3), (2,)], ())
    # both loops are left from within: a test first, then the branch back to it
    body, loops, aside = _way("", ">6", ">4", "1=2", "", "=1", "7")
    assert (body, loops, aside) == ((0, 6), [(1, 4, 5), (2, 3)], ())


def test_no_code_has_no_way() -> None:
    assert find_way([]).loops == ()


def _trips(*loop: Effect | None, start: Effect | None, aside: Effect | None = None) -> float | None:
    """Return what is found for a loop; what is aside stands before it, but not on every way."""
    program = [
        Instruction((), effect=start),
        Instruction((), 3),
        Instruction((), effect=aside),
        *(Instruction((), effect=each) for each in loop),
        Instruction((), 3),
    ]
    (found,) = find_way(program).loops
    return found.trips


@pytest.mark.parametrize(
    ("start", "loop", "expected"),
    [
        (Effect("set", "ax", -48), [Effect("add", "ax", 6)], 8),
        (Effect("set", "ax", 16), [Effect("add", "ax", -1)], 16),
        (Effect("set", "ax", 8), [Effect("add", "ax", 8), Effect("compare", "ax", 328)], 40),
        (Effect("set", "ax", 0), [Effect("add", "ax", 8), Effect("compare", "bx", 64)], None),
        (Effect("set", "ax", 0), [Effect("add", "ax", 8), Effect("write", "ax")], None),
        (Effect("set", "ax", -8), [Effect("add", "ax", 8), Effect("test", "bx")], None),
        (Effect("write", "ax"), [Effect("add", "ax", 8)], None),
        (None, [Effect("add", "ax", 8)], None),
        (Effect("set", "ax", 0), [None], None),
        (Effect("set", "ax", 64), [Effect("add", "ax", 8)], None),
    ],
)
def test_iterations(start: Effect | None, loop: list[Effect | None], expected: int | None) -> None:
    assert _trips(*loop, start=start) == expected
    assert _trips(*loop, start=start, aside=Effect("add", "ax", 1)) == expected
