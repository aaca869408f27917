"""Counts of kernels that are no library kernels, against executed instructions."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import loopy as lp
import numpy as np
import pytest

from countperf.properties.count_properties import count_kernel
from tests.oracles import oclgrind

pytestmark = [
    pytest.mark.oclgrind,
    pytest.mark.skipif(oclgrind.PROGRAM is None, reason="oclgrind-kernel is not installed"),
]


def _make(domains: Any, body: str, arguments: str, size: Any, assumptions: str = "n >= 1") -> Any:
    return lp.make_kernel(
        domains,
        body,
        [lp.GlobalArg(arguments, np.float32, shape=size), lp.ValueArg("n", np.int32), ...],
        assumptions=assumptions,
        lang_version=(2018, 2),
    )


def partial_groups() -> Any:
    kernel = _make("{ [i] : 0 <= i < n }", "b[i] = a[i] * 2 + 1", "a,b", "n")
    return lp.split_iname(kernel, "i", 12, outer_tag="g.0", inner_tag="l.0")


def triangle() -> Any:
    kernel = _make(
        "{ [i, j] : 0 <= i < n and 0 <= j <= i }",
        "b[i] = sum(j, a[i, j] * a[j, i])",
        "a",
        ("n", "n"),
    )
    kernel = lp.add_dtypes(kernel, {"b": np.float32})
    return lp.split_iname(kernel, "i", 8, outer_tag="g.0", inner_tag="l.0")


def unused_local_axis() -> Any:
    kernel = _make(
        "{ [i, j] : 0 <= i, j < n }",
        """
        <> row = a[i] * 3 {id=row, inames=i}
        b[i, j] = row + 1 {dep=row}
        """,
        "a",
        "n",
    )
    kernel = lp.add_dtypes(kernel, {"b": np.float32})
    kernel = lp.split_iname(kernel, "i", 4, outer_tag="g.0", inner_tag="l.1")
    kernel = lp.split_iname(kernel, "j", 8, inner_tag="l.0")
    return lp.add_inames_for_unused_hw_axes(kernel)


def affine_condition() -> Any:
    kernel = _make(
        "{ [i, j] : 0 <= i, j < n }",
        "b[i] = sum(j, a[i, j] / a[j, j] if i != j and j < n - 2 else a[i, i])",
        "a",
        ("n", "n"),
    )
    kernel = lp.add_dtypes(kernel, {"b": np.float32})
    return lp.split_iname(kernel, "i", 8, outer_tag="g.0", inner_tag="l.0")


def predicated() -> Any:
    kernel = lp.make_kernel(
        "{ [i] : 0 <= i < n }",
        """
        for i
            if i >= 2 and i < n - 3
                b[i] = a[i-2] + a[i+3]
            else
                c[i] = a[i]
            end
        end
        """,
        [lp.GlobalArg("a,b,c", np.float32, shape="n"), lp.ValueArg("n", np.int32)],
        assumptions="n >= 1",
        lang_version=(2018, 2),
    )
    return lp.split_iname(kernel, "i", 8, outer_tag="g.0", inner_tag="l.0")


def halo() -> Any:
    kernel = _make(
        "{ [i, j] : 0 <= i, j < n }",
        "b[i, j] = a[i, j+1] + a[i+2, j+1] + a[i+1, j] + a[i+1, j+2] - 4*a[i+1, j+1]",
        "a",
        ("n + 2", "n + 2"),
        "n >= 8 and n mod 8 = 0",
    )
    kernel = lp.add_dtypes(kernel, {"b": np.float32})
    kernel = lp.split_iname(kernel, "i", 8, outer_tag="g.1", inner_tag="l.1")
    kernel = lp.split_iname(kernel, "j", 8, outer_tag="g.0", inner_tag="l.0")
    return lp.add_prefetch(
        kernel,
        "a",
        ["i_inner", "j_inner"],
        fetch_bounding_box=True,
        default_tag="l.auto",
    )


def powers() -> Any:
    kernel = _make(
        "{ [i] : 0 <= i < n }",
        "b[i] = a[i]**2 + (a[i] + 1)**3 - a[i]**7 + a[i]**0.5 + rsqrt(a[i])",
        "a,b",
        "n",
    )
    return lp.split_iname(kernel, "i", 8, outer_tag="g.0", inner_tag="l.0")


def mixed_precision() -> Any:
    kernel = lp.make_kernel(
        "{ [i] : 0 <= i < n }",
        "b[i] = a[i] * c[i] + i + 1.1 * a[i]",
        [
            lp.GlobalArg("a", np.float32, shape="n"),
            lp.GlobalArg("b,c", np.float64, shape="n"),
            lp.ValueArg("n", np.int32),
        ],
        assumptions="n >= 1",
        lang_version=(2018, 2),
    )
    return lp.split_iname(kernel, "i", 8, outer_tag="g.0", inner_tag="l.0")


def unrolled() -> Any:
    kernel = _make(
        "{ [i, j] : 0 <= i < n and 0 <= j < 4 }", "b[i] = sum(j, a[4*i + j])", "a", "4*n"
    )
    kernel = lp.add_dtypes(kernel, {"b": np.float32})
    kernel = lp.split_iname(kernel, "i", 8, outer_tag="g.0", inner_tag="l.0")
    return lp.tag_inames(kernel, {"j": "unr"})


def barrier_in_a_triangular_loop() -> Any:
    kernel = lp.make_kernel(
        "{ [g, l, k] : 0 <= g and 8*g + l < n and 0 <= l < 8 and 0 <= k <= g }",
        """
        for g, l
            <float32> total = 0 {id=init}
            for k
                tile[l] = a[8*k + l] {id=fill, dep=init}
                total = total + tile[7 - l] {id=use, dep=fill}
            end
            b[8*g + l] = total {dep=use}
        end
        """,
        [
            lp.GlobalArg("a,b", np.float32, shape="n"),
            lp.ValueArg("n", np.int32),
            lp.TemporaryVariable(
                "tile", np.float32, shape=(8,), address_space=lp.AddressSpace.LOCAL
            ),
        ],
        assumptions="n >= 8 and n mod 8 = 0",
        lang_version=(2018, 2),
    )
    return lp.tag_inames(kernel, {"g": "g.0", "l": "l.0"})


KERNELS: list[tuple[Callable[[], Any], tuple[int, int]]] = [
    (partial_groups, (24, 31)),
    (barrier_in_a_triangular_loop, (8, 24)),
    (triangle, (8, 21)),
    (unused_local_axis, (8, 13)),
    (affine_condition, (8, 13)),
    (predicated, (16, 21)),
    (halo, (8, 24)),
    (powers, (8, 13)),
    (mixed_precision, (8, 13)),
    (unrolled, (8, 13)),
]


@pytest.mark.parametrize(
    ("build", "n"),
    [(build, n) for build, sizes in KERNELS for n in sizes],
    ids=[f"{build.__name__}-{n}" for build, sizes in KERNELS for n in sizes],
)
def test_counts_equal_executed_instructions(
    build: Callable[[], Any], n: int, tmp_path: Path
) -> None:
    t_unit = build()
    counted = count_kernel(t_unit).evaluate(n=n)
    assert oclgrind.disagreements(counted, oclgrind.run(t_unit, {"n": n}, tmp_path)) == {}
