"""Tests that all views agree on identities of real numbers and on vectors."""

from __future__ import annotations

from typing import Any

import loopy as lp
import numpy as np
import pytest

from countperf.errors import UnsupportedExpressionError
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


@pytest.mark.parametrize("width", [3, 4])
@pytest.mark.parametrize("has_items", [False, True])
def test_what_compilers_leave_of_vectors_is_refused(*, width: int, has_items: bool) -> None:
    kernel = lp.make_kernel(
        f"{{ [i,c] : 0 <= i < n and 0 <= c < {width} }}",
        "b[i,c] = 2*a[i,c] + 1",
        [lp.GlobalArg("a,b", np.float32, shape=f"n,{width}"), lp.ValueArg("n", np.int32)],
        assumptions="n >= 1",
        lang_version=(2018, 2),
        silenced_warnings=["v1_scheduler_fallback", "vectorize_failed"],
    )
    kernel = lp.tag_inames(lp.tag_array_axes(kernel, "a,b", "c,vec"), "c:vec")
    if has_items:
        kernel = lp.split_iname(kernel, "i", 16, outer_tag="g.0", inner_tag="l.0")
    with pytest.raises(UnsupportedExpressionError, match='view="source"'):
        count_kernel(kernel, view="compiled")
    if width == 4:  # the advice works
        emitted = count_kernel(kernel, view="source").evaluate(n=21)
        kind = "stride1" if has_items else "uniform"
        assert emitted[f"gmem.load.128.{kind}"] == emitted[f"gmem.store.128.{kind}"] == 21
