"""Counting rules on small kernels: what counts, what is free, what is refused."""

from __future__ import annotations

from typing import Any

import loopy as lp
import numpy as np
import pytest

from countperf.errors import (
    CountingError,
    DataDependentControlFlowError,
    ParameterError,
    UnsupportedExpressionError,
)
from countperf.properties.count_properties import count_kernel


def _elementwise(
    expression: str, *, dtype: Any = np.float32, extra: Any = (), **kwargs: Any
) -> Any:
    kernel = lp.make_kernel(
        "{ [i] : 0 <= i < n }",
        f"z[i] = {expression}",
        [
            lp.GlobalArg("x,y,z", dtype, shape="n"),
            lp.ValueArg("n", np.int32),
            *extra,
        ],
        assumptions="n >= 1",
        lang_version=(2018, 2),
        **kwargs,
    )
    return lp.split_iname(kernel, "i", 64, outer_tag="g.0", inner_tag="l.0")


def _arithmetic(t_unit: Any, **options: Any) -> dict[str, Any]:
    values = count_kernel(t_unit, **options).evaluate(n=1000)
    return {
        name: value / 1000 for name, value in values.items() if name.startswith(("flop", "iop"))
    }


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("x[i] + y[i]", {"flop.add.f32": 1}),
        ("x[i] - y[i]", {"flop.add.f32": 1, "flop.neg.f32": 1}),
        ("-x[i]", {"flop.neg.f32": 1}),
        ("x[i] - 4*y[i]", {"flop.add.f32": 1, "flop.mul.f32": 1}),  # -1*4 folds
        ("2*3*x[i]", {"flop.mul.f32": 1}),
        ("(1 + 2)*3*x[i]", {"flop.mul.f32": 1}),
        ("x[i] + 1 + 2", {"flop.add.f32": 2}),  # C adds from left to right: 1 and 2 do not meet
        ("x[i] * y[i] + x[i]", {"flop.mul.f32": 1, "flop.add.f32": 1}),
        ("x[i] / y[i]", {"flop.div.f32": 1}),
        ("1 / x[i]", {"flop.div.f32": 1}),
        ("x[i]**2", {"flop.mul.f32": 1}),
        ("(x[i] + y[i])**2", {"flop.add.f32": 2, "flop.mul.f32": 1}),
        ("x[i]**3", {"flop.mul.f32": 3}),  # one squaring, x*y, x*y
        ("x[i]**8", {"flop.mul.f32": 4}),
        ("x[i]**1", {}),
        ("x[i]**0.5", {"flop.pow.f32": 1}),
        ("pow(x[i], y[i])", {"flop.pow.f32": 1}),  # whose types Loopy keeps as NumPy's
        ("rsqrt(x[i])", {"flop.special.f32.rsqrt": 1}),
        (
            "exp(x[i]) * sin(y[i])",
            {"flop.special.f32.exp": 1, "flop.special.f32.sin": 1, "flop.mul.f32": 1},
        ),
        ("fmax(x[i], y[i])", {"flop.minmax.f32": 1}),
        ("1.1 * x[i]", {"flop.mul.f32": 1}),  # emitted as 1.1f in a real context
        ("x[i] if i < 500 else y[i] * 2", {"flop.mul.f32": 0.5, "flop.select.f32": 1}),
    ],
)
def test_operations_are_those_of_the_generated_code(
    expression: str, expected: dict[str, float]
) -> None:
    assert _arithmetic(_elementwise(expression)) == expected


def test_powers_can_be_counted_as_written() -> None:
    kernel = _elementwise("(x[i] + y[i])**2")
    assert _arithmetic(kernel, powers="written") == {"flop.add.f32": 1, "flop.pow.f32": 1}


def test_double_precision_has_properties_of_its_own() -> None:
    counts = count_kernel(_elementwise("x[i] * y[i]", dtype=np.float64)).evaluate(n=64)
    assert counts["flop.mul.f64"] == 64
    assert counts["gmem.load.64.stride1"] == 128


def test_integers_are_no_floating_point() -> None:
    assert _arithmetic(_elementwise("x[i] * y[i] + 1", dtype=np.int32)) == {
        "iop.mul.i32": 1,
        "iop.add.i32": 1,
    }


@pytest.mark.parametrize(
    ("expression", "classes"),
    [
        ("x[0]", {"uniform": 1}),
        ("x[n - 1 - i]", {"stride1": 1}),
        ("w[2*i]", {"1of2": 1}),
        ("w[2*i] + w[2*i + 1]", {"2of2": 2}),
        ("w[3*i] + w[3*i + 1]", {"2of3": 2}),
        ("w[4*i] + w[4*i + 1] + w[4*i + 2]", {"3of4": 3}),
        ("w[7*i]", {"1ofn": 1}),
        ("w[8*i] + w[8*i + 1] + w[8*i + 2] + w[8*i + 3] + w[8*i + 4]", {"3ofn": 5}),
        ("a[i, 3]", {"1ofn": 1}),
        ("x[(i // 4)*4 + i % 4]", {"stride1": 1}),
    ],
)
def test_global_loads_are_classed_by_stride_and_utilization(
    expression: str, classes: dict[str, int]
) -> None:
    extra = [
        lp.GlobalArg("w", np.float32, shape="8*n + 8"),
        lp.GlobalArg("a", np.float32, shape=("n", "n + 4")),
    ]
    counts = count_kernel(_elementwise(expression, extra=extra)).evaluate(n=6400)
    found = {
        name.removeprefix("gmem.load.32."): value // 6400
        for name, value in counts.items()
        if name.startswith("gmem.load") and value
    }
    assert found == classes


def test_a_class_that_depends_on_the_size_is_piecewise() -> None:
    kernel = lp.make_kernel(
        "{ [i, j] : 0 <= i < n and 0 <= j < m }",
        "z[i] = sum(j, a[i, j])",
        [
            lp.GlobalArg("a", np.float32, shape=("n", 100)),
            lp.GlobalArg("z", np.float32, shape="n"),
            lp.ValueArg("n,m", np.int32),
        ],
        assumptions="n >= 64 and n mod 64 = 0 and 1 <= m <= 100",
        lang_version=(2018, 2),
    )
    vector = count_kernel(lp.split_iname(kernel, "i", 64, outer_tag="g.0", inner_tag="l.0"))

    def used(m: int) -> set[str]:
        values = vector.evaluate(n=6400, m=m)
        return {k for k, v in values.items() if k.startswith("gmem.load") and v}

    assert used(10) == {"gmem.load.32.1ofn"}
    assert used(40) == {"gmem.load.32.2ofn"}
    assert used(60) == {"gmem.load.32.3ofn"}
    assert used(100) == {"gmem.load.32.4ofn"}


@pytest.mark.parametrize(
    ("width", "subscripts", "classes"),
    [
        # a[i, 0..m): m of every `width` cells, in quarters of a stride above 4
        (6, "sum(j, a[i, j])", {1: "1ofn", 2: "2ofn", 3: "2ofn", 4: "3ofn", 5: "4ofn", 6: "4ofn"}),
        (3, "sum(j, a[i, j])", {1: "1of3", 2: "2of3", 3: "3of3"}),
        # the last cell of each row too, always
        (4, "sum(j, a[i, j]) + a[i, 3]", {1: "2of4", 2: "3of4", 3: "4of4", 4: "4of4"}),
    ],
)
def test_classes_change_with_the_size_as_the_definition_does(
    width: int, subscripts: str, classes: dict[int, str]
) -> None:
    kernel = lp.make_kernel(
        "{ [i, j] : 0 <= i < n and 0 <= j < m }",
        f"z[i] = {subscripts}",
        [
            lp.GlobalArg("a", np.float32, shape=("n", width)),
            lp.GlobalArg("z", np.float32, shape="n"),
            lp.ValueArg("n,m", np.int32),
        ],
        assumptions=f"n >= 64 and n mod 64 = 0 and 1 <= m <= {width}",
        lang_version=(2018, 2),
    )
    vector = count_kernel(lp.split_iname(kernel, "i", 64, outer_tag="g.0", inner_tag="l.0"))
    for m, name in classes.items():
        values = vector.evaluate(n=640, m=m)
        assert {k for k, v in values.items() if k.startswith("gmem.load") and v} == {
            f"gmem.load.32.{name}"
        }


def test_an_address_read_from_data_is_indirect() -> None:
    extra = [lp.GlobalArg("index", np.int32, shape="n")]
    counts = count_kernel(_elementwise("x[index[i]]", extra=extra)).evaluate(n=64)
    assert counts["gmem.load.32.indirect"] == 64
    assert counts["gmem.load.32.stride1"] == 64


def test_a_condition_on_data_needs_a_probability() -> None:
    kernel = _elementwise("x[i] * y[i] if x[i] > 0 else 0")
    with pytest.raises(DataDependentControlFlowError, match=r"statistics=\{.*0\.5\}") as caught:
        count_kernel(kernel)
    assert caught.value.where == "insn"
    vector = count_kernel(kernel, statistics={"insn": 0.25})
    assert vector.evaluate(n=1000)["flop.mul.f32"] == 250
    assert not vector["flop.mul.f32"].exact
    assert "insn" in vector["flop.mul.f32"].reason


def _sparse_product() -> Any:
    kernel = lp.make_kernel(
        ["{ [i] : 0 <= i < n }", "{ [j] : 0 <= j < length }"],
        """
        for i
            <> length = starts[i + 1] - starts[i] {id=length}
            z[i] = sum(j, values[starts[i] + j] * x[columns[starts[i] + j]]) {dep=length}
        end
        """,
        [
            lp.GlobalArg("starts", np.int32, shape="n + 1"),
            lp.GlobalArg("columns", np.int32, shape=None),
            lp.GlobalArg("values", np.float32, shape=None),
            lp.GlobalArg("x,z", np.float32, shape="n"),
            lp.ValueArg("n", np.int32),
        ],
        assumptions="n >= 1",
        lang_version=(2018, 2),
    )
    return lp.split_iname(kernel, "i", 64, outer_tag="g.0", inner_tag="l.0")


def test_a_loop_bounded_by_data_needs_a_mean_trip_count() -> None:
    with pytest.raises(DataDependentControlFlowError, match="mean trip count"):
        count_kernel(_sparse_product())
    counts = count_kernel(_sparse_product(), statistics={"j": 12.5}).evaluate(n=64)
    assert counts["flop.mul.f32"] == 800
    assert counts["gmem.load.32.indirect"] >= 1600


def test_a_statistic_that_names_no_loop_must_be_a_probability() -> None:
    with pytest.raises(CountingError, match="no loop of the kernel"):
        count_kernel(_elementwise("x[i]"), statistics={"jj": 3.0})


def test_c_instructions_are_refused_by_id() -> None:
    kernel = lp.make_kernel(
        "{ [i] : 0 <= i < n }",
        [lp.CInstruction("i", "z[i] = 3;", id="raw", assignees=("z[i]",))],
        [lp.GlobalArg("z", np.float32, shape="n"), lp.ValueArg("n", np.int32)],
        lang_version=(2018, 2),
    )
    with pytest.raises(UnsupportedExpressionError, match="CInstruction") as caught:
        count_kernel(kernel)
    assert caught.value.where == "raw"


def test_callees_count_through_the_call() -> None:
    callee = lp.make_function(
        "{ [j] : 0 <= j < 4 }", "out[j] = 2 * given[j] + 1", name="scale", lang_version=(2018, 2)
    )
    caller = lp.make_kernel(
        "{ [i, k] : 0 <= i < n and 0 <= k < 4 }",
        "[k]: z[i, k] = scale([k]: x[i, k])",
        [lp.GlobalArg("x,z", np.float32, shape=("n", 4)), lp.ValueArg("n", np.int32)],
        assumptions="n >= 1",
        lang_version=(2018, 2),
    )
    counts = count_kernel(lp.merge([caller, callee])).evaluate(n=10)
    assert counts["flop.mul.f32"] == 40
    assert counts["flop.add.f32"] == 40


def test_parameters_outside_the_assumptions_are_refused() -> None:
    vector = count_kernel(_elementwise("x[i]"))
    with pytest.raises(ParameterError, match=r"assumes .* does not hold at n=0"):
        vector.evaluate(n=0)


def test_something_else_than_a_kernel_is_refused() -> None:
    with pytest.raises(CountingError, match="TranslationUnit"):
        count_kernel("matmul")


def test_a_kernel_that_the_caller_scheduled_is_counted_as_it_is() -> None:
    kernel = lp.preprocess_program(_elementwise("x[i] + y[i]"))
    scheduled = kernel.with_kernel(
        lp.get_one_linearized_kernel(kernel.default_entrypoint, kernel.callables_table)
    )
    assert count_kernel(scheduled) == count_kernel(kernel)


def test_global_barriers_split_a_kernel_into_launches() -> None:
    kernel = lp.make_kernel(
        "{ [i, j] : 0 <= i, j < n }",
        """
        y[i] = 2 * x[i] {id=first}
        ... gbarrier {id=barrier, dep=first}
        z[j] = y[n - 1 - j] {dep=barrier}
        """,
        [lp.GlobalArg("x,y,z", np.float32, shape="n"), lp.ValueArg("n", np.int32)],
        assumptions="n >= 64 and n mod 64 = 0",
        lang_version=(2018, 2),
    )
    for name in "ij":
        kernel = lp.split_iname(kernel, name, 64, outer_tag="g.0", inner_tag="l.0")
    counts = count_kernel(kernel).evaluate(n=640)
    assert counts["launches"] == 2
    assert counts["groups"] == 20
    assert counts["barrier.global"] == 640
    assert counts["flop.mul.f32"] == 640
