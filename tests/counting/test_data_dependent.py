"""Loops and conditions that data decides: counted by statistics, or refused with all of them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any

import loopy as lp
import numpy as np
import pytest

from countperf import analyze_kernel
from countperf.counting.count_properties import count_kernel
from countperf.counting.frontend.schedule import generate_code
from countperf.counting.programs import kernel_programs
from countperf.counting.size_parameters import require_sizes
from countperf.counting.taxonomy import View
from countperf.errors import (
    CountingError,
    DataDependentControlFlowError,
    InternalError,
    KernelBuildError,
    UnsupportedExpressionError,
)
from countperf.symbolic.piecewise import PiecewiseQuasiPolynomial
from countperf.symbolic.quasipolynomial import QuasiPolynomial
from tests.counting import data_kernels as kernels
from tests.kernels import made
from tests.oracles import oclgrind
from tests.oracles.interpreter import Interpreter

VIEWS: tuple[View, ...] = ("source", "compiled", "structure")
STARTS = (0, 3, 3, 8, 9, 13, 20)  # rows of 3, 0, 5, 1, 4 and 7 elements
M, Q = len(STARTS) - 1, STARTS[-1]
ELEMENTS = [(i, j) for i in range(M) for j in range(STARTS[i + 1] - STARTS[i])]
MEAN = Fraction(len(ELEMENTS), M)


def _share(holds: Callable[[int, int], bool]) -> Fraction:
    """Return for which share of the elements something holds of row and position."""
    return Fraction(sum(holds(i, j) for i, j in ELEMENTS), len(ELEMENTS))


CASES: Mapping[str, tuple[Callable[[], Any], Mapping[str, Any]]] = {
    "a condition in a reduction": (
        kernels.summed,
        {"j": MEAN, "j >= 1": _share(lambda _, j: j >= 1)},
    ),
    "a predicate": (
        lambda: kernels.guarded("j >= 1"),
        {"j": MEAN, "add": _share(lambda _, j: j >= 1)},
    ),
    "a diagonal": (
        lambda: kernels.guarded("j != i"),
        {"j": MEAN, "j != i": _share(lambda i, j: i != j)},
    ),
    "a remainder": (
        lambda: kernels.guarded("j % 2 == 0"),
        {"j": MEAN, "add": _share(lambda _, j: j % 2 == 0)},
    ),
    "a loop that one over data bounds": (
        kernels.triangle,
        {"j": MEAN, "k": Fraction(sum(j + 1 for _, j in ELEMENTS), len(ELEMENTS))},
    ),
    "a shared domain": (kernels.shared_domain, {"i": MEAN}),
    "a window of four": (lambda: kernels.window("4"), {}),
    "a window of n": (lambda: kernels.window("n"), {}),
}


@pytest.mark.oclgrind
@pytest.mark.skipif(oclgrind.PROGRAM is None, reason="oclgrind-kernel is not installed")
@pytest.mark.parametrize("name", CASES)
def test_counts_equal_executed_instructions(name: str, tmp_path: Path) -> None:
    build, statistics = CASES[name]
    vector = count_kernel(build(), statistics=statistics)
    sizes = {n: {"m": M, "q": Q, "n": 5}[n] for n in vector.parameters}
    starts = [min(s, Q - 5) for s in STARTS[:M]] if "window" in name else STARTS
    dynamic = oclgrind.run(build(), sizes, tmp_path, contents={"starts": list(starts)})
    assert oclgrind.disagreements(vector.evaluate(sizes), dynamic) == {}
    assert vector.is_exact is not bool(statistics)


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("name", CASES)
def test_counts_depend_on_size_arguments_alone(name: str, view: View) -> None:
    build, statistics = CASES[name]
    vector = count_kernel(build(), statistics=statistics, view=view)
    assert set(vector.parameters) <= {"m", "n", "q"}
    for name_, count in vector.items():
        assert count.quantity.names() <= {"m", "n", "q"}, name_
    analyze_kernel(build(), statistics=statistics)
    kernel_programs(build(), statistics=statistics)


@pytest.mark.parametrize("view", VIEWS)
def test_a_condition_on_known_loops_is_exact_inside_one_over_data(view: View) -> None:
    vector = count_kernel(kernels.guarded("i >= 2"), statistics={"j": 4}, view=view)
    name = "site.free.loop.1x1.flop.add.f64" if view == "structure" else "flop.add.f64"
    assert vector.evaluate(m=6, q=1)[name] == 4 * 4
    assert vector.evaluate(m=2, q=1)[name] == 0


def test_the_probability_of_a_negation_follows() -> None:
    vector = count_kernel(kernels.alternatives(), statistics={"c[i] > 0": 0.25})
    counts = vector.evaluate(m=40)
    assert (counts["flop.mul.f64"], counts["flop.add.f64"]) == (10, 30)


def test_groups_that_data_decides_are_refused_as_loopy_does() -> None:
    said = "data-dependent parameter 'number' and contains parallel inames 'j'"
    with pytest.raises(CountingError, match=said):
        count_kernel(kernels.launched(), statistics={"j": 100})


@pytest.mark.parametrize("view", VIEWS)
def test_strides_are_known_in_rows_whose_lengths_are_not(view: View) -> None:
    vector = count_kernel(kernels.padded("j, i"), statistics={"j": 4}, view=view)
    assert vector.evaluate(m=32)["gmem.load.64.stride1"] == 4 * 32


@pytest.mark.parametrize("view", VIEWS)
def test_a_class_that_data_decides_takes_a_pattern(view: View) -> None:
    unit = kernels.padded("i, j")
    with pytest.raises(DataDependentControlFlowError, match=r"statistics=.*'a': '4ofn'"):
        count_kernel(unit, statistics={"j": 4}, view=view)
    vector = count_kernel(unit, statistics={"j": 4, "a": "1ofn"}, view=view)
    assert vector.evaluate(m=32)["gmem.load.64.1ofn"] == 4 * 32


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize(
    ("build", "wanted"),
    [
        (kernels.summed, {"j": 12.5, "j >= 1": 0.5, "v": "indirect"}),
        (lambda: kernels.guarded("j != i"), {"j": 12.5, "j != i": 0.5, "v": "indirect"}),
        (kernels.triangle, {"j": 12.5, "k": 12.5}),
        (kernels.shared_domain, {"i": 12.5}),
        (kernels.alternatives, {"c[i] > 0": 0.5}),
        (lambda: kernels.padded("i, j"), {"j": 12.5, "a": "indirect"}),
        (lambda: lp.split_iname(kernels.triangle(), "j", 4), {"j_inner": 2.0, "j_outer": 12.5}),
    ],
)
def test_one_error_names_everything_and_its_line_works(
    build: Callable[[], Any], wanted: Mapping[str, Any], view: View
) -> None:
    with pytest.raises(DataDependentControlFlowError) as caught:
        count_kernel(build(), view=view)
    assert caught.value.statistics is not None
    assert {**caught.value.statistics, **wanted} == caught.value.statistics
    line = re.search(r"statistics=(\{.*\})$", str(caught.value))
    assert line is not None
    vector = count_kernel(build(), statistics=eval(line[1]), view=view)
    totals = [sum(float(c) for c in vector.evaluate(_sizes(vector, m)).values()) for m in (8, 16)]
    assert totals[1] > 1.5 * totals[0]  # it depends on the sizes
    for run in (analyze_kernel, kernel_programs):
        with pytest.raises(DataDependentControlFlowError) as caught:
            run(build())
        run(build(), statistics=caught.value.statistics)


def _sizes(vector: Any, m: int) -> dict[str, int]:
    return {name: m if name == "m" else 64 for name in vector.parameters}


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize(
    ("build", "statistics", "message"),
    [
        (kernels.summed, {"i": 3, "j": 2, "j >= 1": 0.5}, "'i' says nothing"),
        (lambda: kernels.window("4"), {"j": 4}, "'j' says nothing"),
        (
            lambda: lp.split_iname(kernels.triangle(), "j", 4),
            {"j_outer": 2, "j_inner": 5, "k": 2},
            "'j_inner' is 5, but its bounds let it run 4 times at most",
        ),
        (lambda: kernels.guarded("i >= 2"), {"j": 4, "add": 0.5}, "'add' says nothing"),
        (
            lambda: kernels.guarded("j >= 2"),
            {"j": 4, "add": 0.5, "j >= 2": 0.5},
            r"'add' says nothing .*\(addresses in v\)",
        ),
        (lambda: kernels.guarded("i >= 2"), {"j": 4, "i >= 2": 0.5}, "'i >= 2' says nothing"),
    ],
)
def test_statistics_that_say_nothing_are_refused(
    build: Callable[[], Any], statistics: Mapping[str, Any], message: str, view: View
) -> None:
    with pytest.raises(CountingError, match=message):
        count_kernel(build(), statistics=statistics, view=view)
    for run in (analyze_kernel, kernel_programs):
        with pytest.raises(CountingError, match=message):
            run(build(), statistics=statistics)


@pytest.mark.parametrize("view", VIEWS)
def test_patterns_of_addresses_without_data_are_refused(view: View) -> None:
    statistics = {"j": 4, "y": "4ofn"}
    with pytest.raises(CountingError, match="'y' says nothing"):
        count_kernel(kernels.guarded("i >= 2"), statistics=statistics, view=view)
    with pytest.raises(CountingError, match="'y' says nothing"):
        analyze_kernel(kernels.guarded("i >= 2"), statistics=statistics)
    # models take the pattern: how many items run the loop together is data
    assert kernel_programs(kernels.guarded("i >= 2"), statistics=statistics)


def test_what_runs_only_where_a_loop_beside_it_does_is_refused() -> None:
    unit = made(
        ["t<m", "i<last, d<2"],
        """
        for t
            <> last = ends[t] {id=last}
            z[d] = 0 {id=clear, dep=last, inames=t:d}
            y[d, i] = 2*x[d, i] {dep=clear}
        end
        """,
        "ends i32 m; z f64 2; x,y f64 2,q; m,q i32",
    )
    with pytest.raises(DataDependentControlFlowError, match="write a domain of its own for 'i'"):
        count_kernel(unit, statistics={"i": 3})


def test_a_stray_name_is_a_fault_that_names_the_term() -> None:
    stray = PiecewiseQuasiPolynomial.from_value(QuasiPolynomial.name("j"))
    with pytest.raises(InternalError, match=r"flop\.add\.f32 depends on j.*\(m\): j"):
        require_sizes("rows", {"m"}, {"flop.add.f32": stray})


@pytest.mark.parametrize(
    "condition", ["(i > 2) == (i < 5)", "(i > 2) != (i < 5)", "not (i > 2 and i < 5) or i == 7"]
)
def test_truth_values_of_loop_variables_are_exact(condition: str) -> None:
    holds: Any = eval(f"lambda i: {condition}")
    vector = count_kernel(kernels.elementwise(f"2*v[i] if {condition} else v[i] + 1"))
    assert vector.is_exact
    for m in (1, 4, 9):
        counts = vector.evaluate(m=m)
        doubled = sum(map(holds, range(m)))
        assert (counts["flop.mul.f64"], counts["flop.add.f64"]) == (doubled, m - doubled)


def test_conditions_that_are_not_affine_are_not_said_to_be_data() -> None:
    unit = kernels.elementwise("2*v[i] if i*j < m else v[i] + 1", "i<m, j<m", "y[i, j]")
    with pytest.raises(DataDependentControlFlowError) as caught:
        count_kernel(unit)
    assert "sizes decide whether i*j < m holds (in 'insn'), but by no affine" in str(caught.value)
    assert "data" not in str(caught.value).split("pass")[0]
    share = Fraction(sum(i * j < 5 for i in range(5) for j in range(5)), 25)
    vector = count_kernel(unit, statistics={"i*j < m": share})
    assert vector.evaluate(m=5)["flop.mul.f64"] == 25 * share


@pytest.mark.parametrize("operator", ["%", "//"])
@pytest.mark.parametrize("view", VIEWS)
def test_remainders_of_real_numbers_are_refused_as_loopy_does(operator: str, view: View) -> None:
    unit = kernels.elementwise(f"v[i] {operator} 2.5")
    with pytest.raises(KernelBuildError, match="remainder and floordiv for floating-point types"):
        generate_code(unit)
    with pytest.raises(UnsupportedExpressionError, match="for which Loopy generates no code"):
        count_kernel(unit, view=view)


def test_too_few_subscripts_are_refused() -> None:
    unit = made("i<m, j<m", "s[i] = reduce(any, j, g[i, j])", "g,s i32 m,m; m i32")
    for statistics in ({}, {"acc_j": 0.5}):
        with pytest.raises(CountingError, match=r"'s\[i\]' has the wrong number of indices"):
            count_kernel(unit, statistics=statistics)


def _smallest() -> Any:
    text = "low[i], at[i] = argmin(j, a[i, j], j)"
    return made("i<m, j<n", text, "a f64 m,n; low f64 m; at i32 m; m,n i32")


@pytest.mark.oclgrind
@pytest.mark.skipif(oclgrind.PROGRAM is None, reason="oclgrind-kernel is not installed")
def test_compiled_arg_extrema_equal_executed_instructions(tmp_path: Path) -> None:
    counts = count_kernel(_smallest(), view="compiled").evaluate(m=5, n=7)
    executed = oclgrind.run(_smallest(), {"m": 5, "n": 7}, tmp_path, options="").instructions
    assert counts["flop.compare.f64"] == executed["fcmp"] == 35
    assert counts["flop.select.f64"] + counts["iop.select.i32"] == executed["select"]
    assert counts["gmem.load.64.uniform"] == executed["load global"]
    stores = counts["gmem.store.64.uniform"] + counts["gmem.store.32.uniform"]
    assert stores == executed["store global"]


def test_an_arg_extremum_waits_as_a_minimum_does() -> None:
    counts = count_kernel(_smallest(), view="structure").evaluate(m=5, n=7)
    assert counts["site.free.loop.1x1.chain.minmax.f64"] == 35


def _axis_unused() -> Any:
    text = "<> total = 0 {id=begin}\ny[i] = total + v[i] {dep=begin}"
    return made("i<m", text, "v,y f64 m; m i32", split="i:16")


def _unallocated() -> Any:
    return made(
        "i<m, j<8",
        "t[j] = 2*x[i, j] {id=a}\ny[i, j] = t[7 - j] {id=b, dep=a}",
        "x,y f64 m,8; m i32",
        lp.TemporaryVariable(
            "t", np.float64, (8,), base_storage="pool", address_space=lp.AddressSpace.LOCAL
        ),
        tags="i:g.0, j:l.0",
    )


def _slabs() -> Any:
    return made(
        [
            "{ [a, b] : 5a <= n - 6 and 0 <= a and 0 <= b < 5 and b + 5a < n }",
            "{ [c] : n - 5 <= 5c < n }",
            "[c, n] -> { [d] : 0 <= d < 5 and d + 5c < n }",
        ],
        "y[b + 5*a] = 2*x[b + 5*a] {id=u}\ny[d + 5*c] = 2*x[d + 5*c] + 1 {dep=u, nosync=u}",
        "x,y f32 n; n i32",
        tags="a:g.0, c:g.0",
    )


@pytest.mark.parametrize(
    ("build", "said"),
    [
        (_axis_unused, "'begin' does not use all group hw axes.*add_inames_for_unused_hw_axes"),
        (_unallocated, "storage array 'pool'.*allocate_temporaries_for_base_storage"),
        (_slabs, "implemented and desired|single-valued piecewise affine"),
    ],
)
def test_what_loopy_generates_no_code_for_is_refused_in_its_words(
    build: Callable[[], Any], said: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(KernelBuildError, match=said):
        generate_code(build())
    for view in VIEWS:
        with pytest.raises(CountingError, match=f"Loopy generates no code for it: .*(?:{said})"):
            count_kernel(build(), view=view)
    assert capfd.readouterr().out == ""


def test_what_the_error_about_domains_says_to_do_works() -> None:
    unit = kernels.rows("y[i] = sum(a, sum(b, v[a] + v[b])) {dep=length}", _branches(""))
    with pytest.raises(CountingError, match=r"the domain of an inner loop name .*\[a, n\] -> "):
        count_kernel(unit)
    unit = kernels.rows("y[i] = sum(a, sum(b, v[a] + v[b])) {dep=length}", _branches("[a] -> "))
    counts = count_kernel(unit, statistics={"a": 3, "b": 5}).evaluate(m=2, q=9)
    assert counts["flop.add.f64"] == 2 * 3 * (1 + 5 * 2)


def _branches(parameters: str) -> list[str]:
    """Return two loops over data, of which the second may name the first."""
    names = "[a, length] -> " if parameters else ""
    return ["{ [a] : 0 <= a < length }", f"{names}{{ [b] : 1 <= b < length }}"]


def test_what_loopy_says_to_do_works() -> None:
    unit = lp.add_inames_for_unused_hw_axes(lp.preprocess_program(_axis_unused()))
    assert count_kernel(unit).evaluate(m=32)["flop.add.f64"] == 32
    unit = lp.allocate_temporaries_for_base_storage(_unallocated())
    assert count_kernel(unit).evaluate(m=4)["lmem.load.64"] == 32


@pytest.mark.parametrize("code", ["", " ;\n", "/* end */ // of it\n"])
@pytest.mark.parametrize("view", VIEWS)
def test_c_code_without_any_is_nothing(code: str, view: View) -> None:
    end = lp.CInstruction((), code, depends_on=frozenset("a"), id="end")
    unit = made("i<m", ["y[i] = 2*v[i] {id=a}", end], "v,y f64 m; m i32")
    interpreted = Interpreter(kernels.elementwise("2*v[i]")).run({"m": 33}).operations
    for parallel in (unit, lp.split_iname(unit, "i", 16, outer_tag="g.0", inner_tag="l.0")):
        assert count_kernel(parallel, view=view).evaluate(m=33)["flop.mul.f64"] == 33
        assert "2.0 * v[" in str(generate_code(parallel).device_code())
    assert interpreted["flop.mul.f64"] == 33
