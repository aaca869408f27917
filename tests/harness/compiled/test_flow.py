"""Loops found in control flow, against loops drawn by hand."""

from __future__ import annotations

import pytest

from countperf.harness.compiled.flow import Instruction, find_loops

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
    found = find_loops(_program(length, branches, always=frozenset(always)))

    assert {loop.path: loop.own for loop in found} == expected
    around = {path[:-1] for path in expected}
    assert all(loop.is_innermost == (loop.path not in around) for loop in found)


def test_no_code_has_no_loops() -> None:
    assert find_loops([]) == ()
