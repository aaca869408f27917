"""Tests that all views agree on identities of real numbers and on vectors."""

from __future__ import annotations

from typing import Any

import loopy as lp
import numpy as np
import pytest

from countperf.properties.count_properties import count_kernel
from countperf.properties.taxonomy import View

VIEWS: tuple[View, ...] = ("source", "compiled", "structure")


def _elementwise(expression: str, dtype: Any = np.float64) -> Any:
    kernel = lp.make_kernel(
        "{ [i] : 0 <= i < n }",
        f"o[i] = {expression}",
        [lp.GlobalArg("a,o", dtype, shape="n"), lp.ValueArg("n", np.int32)],
        assumptions="n >= 1",
        lang_version=(2018, 2),
    )
    return lp.split_iname(kernel, "i", 8, outer_tag="g.0", inner_tag="l.0")


@pytest.mark.parametrize("view", VIEWS)
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
    values = count_kernel(_elementwise(expression), view=view).evaluate(n=40)
    if view == "compiled" and "flop.add.f64" in expected:
        expected = {"flop.fma.f64": 40}
    assert {name: v for name, v in values.items() if name.startswith("flop")} == expected
