"""Counting rules on small kernels: what counts, what is free, what is refused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from countperf.counting.count_properties import count_kernel
from countperf.counting.taxonomy import View
from tests.kernels import made


def _elementwise(expression: str, more: str = "") -> Any:
    return made("i<n", f"z[i] = {expression}", f"x,y,z f32 n; {more} n i32", split="i:64")


def _used(counts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the loads of single precision from global memory by their class."""
    return {
        name.removeprefix("gmem.load.32."): value
        for name, value in counts.items()
        if name.startswith("gmem.load.32.") and value
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
    counts = count_kernel(_elementwise(expression)).evaluate(n=1000)
    operations = {k: v / 1000 for k, v in counts.items() if k.startswith(("flop", "iop"))}
    assert operations == expected


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
    kernel = _elementwise(expression, "w f32 8*n+8; a f32 n,n+4;")
    counts = _used(count_kernel(kernel).evaluate(n=6400))
    assert counts == {name: 6400 * number for name, number in classes.items()}


@pytest.mark.parametrize(
    ("width", "subscripts", "classes"),
    [
        # a[i, 0..m): m of every `width` cells, in quarters of a stride above 4
        (6, "sum(j, a[i, j])", {1: "1ofn", 2: "2ofn", 3: "2ofn", 4: "3ofn", 5: "4ofn", 6: "4ofn"}),
        (3, "sum(j, a[i, j])", {1: "1of3", 2: "2of3", 3: "3of3"}),
        # the last cell of each row too, always
        (4, "sum(j, a[i, j]) + a[i, 3]", {1: "2of4", 2: "3of4", 3: "4of4", 4: "4of4"}),
        (100, "sum(j, a[i, j])", {10: "1ofn", 40: "2ofn", 60: "3ofn", 100: "4ofn"}),
    ],
)
def test_classes_change_with_the_size_as_the_definition_does(
    width: int, subscripts: str, classes: dict[int, str]
) -> None:
    kernel = made(
        "i<n, j<m",
        f"z[i] = {subscripts}",
        f"a f32 n,{width}; z f32 n; n,m i32",
        assumptions=f"n >= 64 and n mod 64 = 0 and 1 <= m <= {width}",
        split="i:64",
    )
    vector = count_kernel(kernel)
    for m, name in classes.items():
        assert set(_used(vector.evaluate(n=640, m=m))) == {name}


@pytest.mark.parametrize("view", ["source", "compiled", "structure"])
@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("real(a[i])*2", {"flop.mul.f64": 40}),
        ("conj(a[i])*2", {"flop.mul.f64": 40}),
        ("imag(a[i])*2 + 1.5", {"flop.mul.f64": 40, "flop.add.f64": 40}),
        ("abs(a[i])", {"flop.special.f64.fabs": 40}),  # fabs() is what Loopy emits
        ("fabs(a[i])", {"flop.special.f64.fabs": 40}),
    ],
)
def test_parts_of_real_numbers_are_free(
    view: View, expression: str, expected: dict[str, int]
) -> None:
    kernel = made("i<n", f"o[i] = {expression}", "a,o f64 n; n i32", split="i:8")
    values = count_kernel(kernel, view=view).evaluate(n=40)
    if view == "compiled" and "flop.add.f64" in expected:
        expected = {"flop.fma.f64": 40}
    assert {name: v for name, v in values.items() if name.startswith("flop")} == expected
