"""Counting rules on small kernels: what counts, what is free, what is refused."""

from __future__ import annotations

from typing import Any

import loopy as lp
import numpy as np
import pytest

from countperf.errors import (
    CountingError,
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


def test_something_else_than_a_kernel_is_refused() -> None:
    with pytest.raises(CountingError, match="TranslationUnit"):
        count_kernel("matmul")
