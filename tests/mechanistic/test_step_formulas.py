"""Formulas of TMM: Ma's equations by hand, transactions by enumeration, where kernels overtake."""

from __future__ import annotations

from typing import Any

import pytest

from countperf.api.mechanistic_models import profiler_of
from countperf.devices.parameters import load_device
from countperf.errors import DeviceParameterError, ModelNotApplicableError, ParameterError
from countperf.mechanistic.step_formulas import growth, step_formulas
from countperf.mechanistic.tmm import step_bound
from tests.kernels import made

GTX = "nvidia-gtx-480"


def formulas(kernel: Any, device: Any = GTX, label: str = "", **held: int) -> Any:
    profiler = profiler_of(kernel, device, held, {"registers_per_work_item": 20})
    return step_formulas(profiler, held, label=label)


def sums(domain: str, body: str = "z[i] = sum(j, x[j])", least: int = 32) -> Any:
    arguments = "x,z f32 n; n i32; m i32" if "m" in domain else "x,z f32 n; n i32"
    assumptions = f"n >= {least} and n mod 32 = 0"
    return made(domain, body, arguments, split="i:32", assumptions=assumptions)


@pytest.mark.parametrize("n", [64, 8192])
def test_a_squaring_has_the_work_and_transactions_of_ma(n: int) -> None:
    found = formulas("published-apsp/32x32")
    (program,) = found.programs
    # Eq. (10) for one of lg n squarings, with S_D = C = 32: twice the paper's, and the stores
    assert program.work.evaluate({"n": n}) == 2 * n**3
    assert program.transactions.evaluate({"n": n}) == 2 * n**3 // (32 * 32) + n**2 // 32
    assert program.groups.evaluate({"n": n}) == (n // 32) ** 2
    # 1024 items of a group, of which 1536 fit, on 32 cores
    assert (program.work_items_per_core, found.num_cores) == (32, 480)
    assert str(growth(program.transactions)) == "(1/512)*n^3"
    bound = step_bound(
        work=2 * n**3,
        span=float(program.span.evaluate({"n": n})),
        transactions=n**3 / 512 + n**2 / 32,
        latency_steps=16384,
        work_items_per_core=32,
        num_cores=480,
    )
    assert found.bound(n).steps == pytest.approx(bound.steps, rel=1e-14)
    assert found.bound(n).which == bound.which


def test_triangles_are_counted_as_by_enumeration() -> None:
    (program,) = formulas(sums("{ [i, j] : 0 <= i < n and 0 <= j <= i }")).programs
    for n in (64, 96, 320):
        work = sum(1 for i in range(n) for _ in range(i + 1))
        # the items of a sub-group load one x[j] together, as long as one of them has iterations
        loads = sum(1 for first in range(0, n, 32) for _ in range(first + 32))
        at_n = {"n": n}
        assert (program.work.evaluate(at_n), program.groups.evaluate(at_n)) == (work, n // 32)
        assert program.transactions.evaluate(at_n) == loads + n // 32


def test_the_kernel_with_fewer_steps_changes_where_the_formulas_cross() -> None:
    # 2 n^2 and 2000 n operations, in chains of n + ... and 1000 + ... instructions
    square = sums("{ [i, j] : 0 <= i < n and 0 <= j < n }", "z[i] = sum(j, i*j)")
    line = sums("{ [i, j] : 0 <= i < n and 0 <= j < 1000 }", "z[i] = sum(j, i*j)")
    found, other = formulas(square, label="square"), formulas(line, label="line")
    assert found.crossovers(other) == [(64, "square"), (1024, "line")]
    assert [term for _, term in found.bounds()] == ["span", "work"]


def test_formulas_say_how_many_groups_fill_the_device() -> None:
    lines = formulas(sums("{ [i] : 0 <= i < n }", "z[i] = x[i]"))
    # 8 groups of 32 are resident on each of 15 units
    assert lines.programs[0].filling_groups == 8 * 15
    assert "with less than 120 groups" in str(lines)


def test_sizes_that_are_given_are_held() -> None:
    (program,) = formulas("matmul-tiled/square/16x16", l=64, m=48).programs
    assert str(program.work) == "3072*n"


def test_formulas_begin_where_assumptions_hold() -> None:
    found = formulas(sums("{ [i, j] : 0 <= i < n and 0 <= j < 100 }", least=100))
    assert (found.first, found.multiple) == (128, 32)


def test_what_has_no_formula_is_refused() -> None:
    least = sums("{ [i, j] : 0 <= i < n and 0 <= j < n and j < m }")
    with pytest.raises(ParameterError, match="free are m, n; give values of all sizes but one"):
        formulas(least)
    with pytest.raises(ModelNotApplicableError, match=r"size n: .* change at .*; give the size"):
        formulas(least, m=2**30)
    found = formulas(least, m=65)
    assert (str(found.programs[0].work), found.first) == ("65*n", 96)
    known = load_device("nvidia-k620")  # L: lines of 32 words times 440 cycles
    assert formulas("published-apsp/16x16", known).described.latency_steps == 32 * 440
    with pytest.raises(DeviceParameterError, match="no value for latency_steps"):
        formulas("published-apsp/16x16", known.with_values(classes={})).bound(64)
