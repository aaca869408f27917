"""The smallest kernels on which generated kernels once showed counts that were wrong or missing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import loopy as lp
import numpy as np
import pytest

from countperf.errors import CountingError
from countperf.properties.count_properties import count_kernel
from tests.oracles.interpreter import Interpreter


def _kernel(domains: Any, body: str, arrays: Mapping[str, tuple[Any, Any]]) -> Any:
    return lp.make_kernel(
        domains,
        body,
        [
            *(lp.GlobalArg(names, dtype, shape=shape) for names, (shape, dtype) in arrays.items()),
            lp.ValueArg("n", np.int32),
        ],
        assumptions="n >= 1",
        lang_version=(2018, 2),
        silenced_warnings=["write_race*"],
    )


def test_sums_of_mixed_types_add_in_the_type_reached_so_far() -> None:
    kernel = _kernel(
        "{ [i] : 0 <= i < n }",
        "z[i] = x[i] + y[i] + d[i]",
        {"x,y": ("n", np.float32), "z,d": ("n", np.float64)},
    )
    counts = count_kernel(kernel).evaluate(n=10)
    assert (counts["flop.add.f32"], counts["flop.add.f64"]) == (10, 10)


def test_products_of_mixed_types_multiply_in_the_type_reached_so_far() -> None:
    kernel = _kernel(
        "{ [i] : 0 <= i < n }",
        "z[i] = x[i]*y[i]*d[i]",
        {"x,y": ("n", np.float32), "z,d": ("n", np.float64)},
    )
    counts = count_kernel(kernel).evaluate(n=10)
    assert (counts["flop.mul.f32"], counts["flop.mul.f64"]) == (10, 10)


def test_a_branch_is_converted_only_where_it_is_taken() -> None:
    kernel = _kernel(
        "{ [i] : 0 <= i < n }",
        "z[i] = x[i] if i < 4 else d[i]",
        {"x": ("n", np.float32), "z,d": ("n", np.float64)},
    )
    assert count_kernel(kernel).evaluate(n=10)["flop.convert.f64"] == 4


@pytest.mark.parametrize("operation", ["max", "min"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32], ids=lambda t: t.__name__)
def test_the_initial_value_of_an_extremum_is_free(operation: str, dtype: Any) -> None:
    kernel = _kernel(
        "{ [i, j] : 0 <= i, j < n }",
        f"z[i] = {operation}(j, a[i, j])",
        {"a": (("n", "n"), dtype), "z": ("n", dtype)},
    )
    counts = count_kernel(kernel).evaluate(n=10)
    (extrema,) = (v for k, v in counts.items() if k.startswith(("flop", "iop")))
    assert extrema == 100


def test_equal_group_axes_of_separate_domains_both_count() -> None:
    kernel = _kernel(
        ["{ [i] : 0 <= i < n }", "{ [j] : 0 <= j < n }"],
        "z[i, j] = 1.5*a[i]",
        {"a": ("n", np.float32), "z": (("n", "n"), np.float32)},
    )
    for axis, iname in enumerate("ij"):
        kernel = lp.split_iname(kernel, iname, 3, outer_tag=f"g.{axis}", inner_tag=f"l.{axis}")
    assert count_kernel(kernel).evaluate(n=7)["groups"] == 9


def test_groups_are_those_that_loopy_launches() -> None:
    kernel = _kernel(
        "{ [i, j] : 0 <= i < n and i < 5 and 0 <= j < n }",
        "z[i, j] = 1.5*a[i]",
        {"a": ("n", np.float32), "z": (("n", "n"), np.float32)},
    )
    kernel = lp.tag_inames(kernel, {"i": "g.0"})
    vector = count_kernel(kernel)
    for n in (3, 8):
        launched = Interpreter(kernel).run({"n": n}).work_groups
        assert vector.evaluate(n=n)["groups"] == launched


def test_groups_without_work_skip_the_barriers_of_a_loop() -> None:
    kernel = lp.make_kernel(
        "{ [g, h, l, k] : 0 <= h <= g and g < n and 0 <= l < 4 and 0 <= k < 3 }",
        """
        for g, h, l, k
            tile[l] = a[g, l + k] {id=fill}
            b[g, h, k, l] = tile[3 - l] {id=use, dep=fill}
        end
        """,
        [
            lp.GlobalArg("a", np.float32, shape=("n", 8)),
            lp.GlobalArg("b", np.float32, shape=("n", "n", 3, 4)),
            lp.ValueArg("n", np.int32),
            lp.TemporaryVariable(
                "tile", np.float32, shape=(4,), address_space=lp.AddressSpace.LOCAL
            ),
        ],
        assumptions="n >= 1",
        lang_version=(2018, 2),
        silenced_warnings=["write_race*"],
    )
    kernel = lp.tag_inames(kernel, {"g": "g.0", "h": "g.1", "l": "l.0"})
    executed = Interpreter(kernel).run({"n": 5}).local_barriers
    assert executed % 15 == 0  # pairs of groups that work
    assert count_kernel(kernel).evaluate(n=5)["barrier.local"] == executed


@pytest.mark.parametrize(
    ("expression", "multiplications"),
    [
        ("((3.25*0.5)**2)**2", 0),
        ("2.0*(1.0 + 3.0)*x[i]", 10),
        ("(1.0 + 3.0)*(2.0/7.0 + 1.0)*x[i]", 10),
        ("x[i]*2.0*(1.0 + 3.0)", 20),
    ],
)
def test_operations_on_numbers_alone_are_free(expression: str, multiplications: int) -> None:
    kernel = _kernel("{ [i] : 0 <= i < n }", f"z[i] = {expression}", {"x,z": ("n", np.float32)})
    counted = count_kernel(kernel).evaluate(n=10)
    executed = Interpreter(kernel).run({"n": 10}).properties()
    assert counted.get("flop.mul.f32", 0) == executed.get("flop.mul.f32", 0) == multiplications
    assert counted.get("flop.add.f32", 0) == executed.get("flop.add.f32", 0) == 0
    assert counted.get("flop.div.f32", 0) == executed.get("flop.div.f32", 0) == 0


def test_a_footprint_beyond_the_limit_is_marked_wherever_the_limit_is_reached(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kernel = _kernel(
        "{ [i, j] : 0 <= i, j < n }",
        "y[j, 3*i + 1] = a[i, 2*j]",
        {"a": (("n", "2*n"), np.float64), "y": (("n", "3*n"), np.float64)},
    )
    kernel = lp.split_iname(kernel, "i", 4, outer_tag="g.0", inner_tag="l.0")
    for operations in range(1, 400, 7):
        monkeypatch.setattr("countperf.counting.access_classes.FOOTPRINT_OPERATIONS", operations)
        vector = count_kernel(kernel)
        counts = {name: count for name, count in vector.items() if name.startswith("gmem.")}
        assert set(counts) == {"gmem.load.64.1ofn", "gmem.store.64.1of3"}  # as if by itself
        assert not any(count.exact for count in counts.values())
        assert all("too complicated" in count.reason for count in counts.values())


def test_loops_without_a_joint_domain_are_refused() -> None:
    kernel = _kernel(
        [
            "{ [i] : 0 <= i < n }",
            "[i] -> { [j] : 0 <= j <= i }",
            "[i] -> { [k] : 0 <= k <= i }",
        ],
        "z[i, j, k] = 1.5*a[i]",
        {"a": ("n", np.float32), "z": (("n", "n", "n"), np.float32)},
    )
    with pytest.raises(CountingError):
        count_kernel(kernel)
