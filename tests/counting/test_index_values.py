"""Subscripts that are read from arrays; a plain loop over all points is the oracle."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import product
from typing import Any

import numpy as np
import pytest

from countperf.counting import index_values
from countperf.counting.extents import accesses_of
from countperf.counting.frontend.copies import preprocessed
from countperf.counting.index_values import find_outside
from tests.kernels import made

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of if() in texts

I4 = np.int32


def _kernel(loops: str | list[str], text: str, arguments: str) -> Any:
    return preprocessed(made(loops, text, arguments, assumptions="")).default_entrypoint


def _gather() -> Any:
    return _kernel("i<n", "z[i] = x[at[i]]", "at i32 m; x f64 k; z f64 n; n,m,k i32")


def _guarded_gather() -> Any:
    text = "z[i] = if(at[i] >= 0, x[at[i]], 0)"
    return _kernel("i<n", text, "at i32 n; x f64 k; z f64 n; n,k i32")


def _rows() -> Any:
    return _kernel(
        ["i<n", "j<len"],
        """
        for i
            <> first = starts[i]
            <> len = starts[i + 1] - first
            y[i] = sum(j, v[first + j]*x[col[first + j]])
        end
        """,
        "starts i32 n+1; col i32 nz; v f64 nz; x f64 m; y f64 n; n,m,nz i32",
    )


def _outside(
    kernel: Any, sizes: Mapping[str, int], shapes: Mapping[str, Any], given: Mapping[str, Any]
) -> Any:
    return find_outside(kernel, sizes, shapes, given, accesses_of(kernel))


def _int(*values: int) -> Any:
    return np.array(values, I4)


def test_an_element_beyond_the_array_is_found_with_its_place() -> None:
    sizes = {"n": 4, "m": 6, "k": 5}
    shapes = {"at": (6,), "x": (5,), "z": (4,)}

    outside = _outside(_gather(), sizes, shapes, {"at": _int(0, 4, 5, 1, 0, 0)})

    assert (outside.value, outside.axis, outside.extent, outside.at) == (5, 0, 5, {"i": 2})
    assert outside.sources == ("at",)
    assert outside.access == "load x[at[i]]"
    outside = _outside(_gather(), sizes, shapes, {"at": _int(0, 4, -1, 1, 0, 0)})
    assert (outside.value, outside.at) == (-1, {"i": 2})


def test_elements_that_are_not_read_may_be_anything() -> None:
    sizes = {"n": 4, "m": 6, "k": 5}
    shapes = {"at": (6,), "x": (5,), "z": (4,)}

    assert _outside(_gather(), sizes, shapes, {"at": _int(0, 4, 0, 1, 99, -99)}) is None


def test_what_a_condition_leaves_out_is_not_accessed() -> None:
    sizes, shapes = {"n": 4, "k": 5}, {"at": (4,), "x": (5,), "z": (4,)}

    assert _outside(_guarded_gather(), sizes, shapes, {"at": _int(0, -1, 4, -7)}) is None
    outside = _outside(_guarded_gather(), sizes, shapes, {"at": _int(0, -1, 5, -7)})
    assert (outside.value, outside.at) == (5, {"i": 2})


def test_rows_of_different_lengths_are_gone_through() -> None:
    sizes = {"n": 3, "m": 4, "nz": 6}
    shapes = {"starts": (4,), "col": (6,), "v": (6,), "x": (4,), "y": (3,)}
    starts = _int(0, 2, 2, 6)

    # intervals alone would take the last start for that of a long row
    right = {"starts": starts, "col": _int(0, 1, 2, 3, 0, 3)}
    assert _outside(_rows(), sizes, shapes, right) is None
    outside = _outside(_rows(), sizes, shapes, {**right, "col": _int(0, 1, 2, 4, 0, 3)})
    assert (outside.access, outside.value) == ("load x[col[first + j]]", 4)
    assert outside.at == {"i": 2, "j": 1}
    outside = _outside(_rows(), sizes, shapes, {**right, "starts": _int(0, 2, 2, 7)})
    assert (outside.value, outside.extent, outside.at) == (6, 6, {"i": 2, "j": 4})


def test_elements_that_the_kernel_writes_are_followed() -> None:
    text = """
        w[i] = if(abs(at[i]) > 4, 4, abs(at[i])) {id=all}
        w[0] = 2 {id=first, dep=all}
        z[j] = x[w[j]] {dep=first}
    """
    kernel = _kernel(["i<n", "j<n"], text, "at,w i32 n; x f64 k; z f64 n; n,k i32")
    sizes, shapes = {"n": 4, "k": 4}, {"at": (4,), "w": (4,), "x": (4,), "z": (4,)}

    assert _outside(kernel, sizes, shapes, {"at": _int(-9, 3, -3, 0)}) is None
    outside = _outside(kernel, sizes, shapes, {"at": _int(0, -3, -9, 0)})
    assert (outside.access, outside.value, outside.at) == ("load x[w[j]]", 4, {"j": 2})


def test_many_points_are_gone_through_in_blocks() -> None:
    n = 2_500_000
    at = np.zeros(n, I4)
    at[2_400_001] = 5
    shapes = {"at": (n,), "x": (5,), "z": (n,)}

    outside = _outside(_gather(), {"n": n, "m": n, "k": 5}, shapes, {"at": at})

    assert outside.at == {"i": 2_400_001}
    assert _outside(_gather(), {"n": 2_400_000, "m": n, "k": 5}, shapes, {"at": at}) is None


def _windows(loops: str, text: str) -> Any:
    return _kernel(loops, f"z[i, j] = {text}", "at i32 n; x f64 k; z f64 n,m; n,m,k i32")


Point = tuple[int, int]
SHAPES: Mapping[str, tuple[str, Callable[[Point], bool]]] = {
    "rectangle": ("i<n, j<m", lambda _: True),
    "triangle": ("{ [i, j] : 0 <= i < n and 0 <= j < m and j <= i }", lambda at: at[1] <= at[0]),
    "strided": (
        "{ [i, j] : 0 <= i < n and 0 <= j < m and (exists e: j = 2*e + 1) }",
        lambda at: at[1] % 2 == 1,
    ),
    "band": (
        "{ [i, j] : 0 <= i < n and 0 <= j < m and i - 2 <= j <= i + 1 }",
        lambda at: at[0] - 2 <= at[1] <= at[0] + 1,
    ),
}
TEXTS: Mapping[str, tuple[str, Callable[[Any, Point], int], Callable[[Point], bool]]] = {
    "ends of j": (
        "x[at[i] + 2*j - 3]",
        lambda values, at: values[at[0]] + 2 * at[1] - 3,
        lambda _: True,
    ),
    "ends of i": (
        "x[at[j] - i + 4]",
        lambda values, at: values[at[1]] - at[0] + 4,
        lambda _: True,
    ),
    "product": ("x[at[i]*j]", lambda values, at: values[at[0]] * at[1], lambda _: True),
    "every j": (
        "x[at[i] + (3*j) % 7]",
        lambda values, at: values[at[0]] + 3 * at[1] % 7,
        lambda _: True,
    ),
    "condition on j": (
        "if(j != 4, x[at[i] + 2*j - 3], 0.0)",
        lambda values, at: values[at[0]] + 2 * at[1] - 3,
        lambda at: at[1] != 4,
    ),
    "condition on i": (
        "if(i >= 2, x[at[i] - j + 2], 0.0)",
        lambda values, at: values[at[0]] - at[1] + 2,
        lambda at: at[0] >= 2,
    ),
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("text", TEXTS)
def test_points_agree_with_a_plain_loop(shape: str, text: str) -> None:
    domain, is_point = SHAPES[shape]
    written, subscript, holds = TEXTS[text]
    kernel = _windows(domain, written)
    n, m, k = 6, 6, 9
    rng = np.random.default_rng(7)
    results: set[bool] = set()
    for _ in range(12):
        at = rng.integers(0, 8, n).astype(I4)
        expected = {
            point: int(subscript(at, point))
            for point in product(range(n), range(m))
            if is_point(point) and holds(point) and not 0 <= int(subscript(at, point)) < k
        }
        shapes = {"at": (n,), "x": (k,), "z": (n, m)}

        outside = _outside(kernel, {"n": n, "m": m, "k": k}, shapes, {"at": at})

        results.add(outside is None)
        if outside is None:
            assert expected == {}
        else:  # j may not bear on it
            assert any(
                value == outside.value
                and all({"i": i, "j": j}[name] == index for name, index in outside.at.items())
                for (i, j), value in expected.items()
            )
    assert False in results


def test_what_has_too_many_points_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_values, "_MOST_POINTS", 30)
    kernel = _windows("i<n, j<m", "x[at[i] + (3*j) % 7]")
    sizes, shapes = {"n": 6, "m": 6, "k": 9}, {"at": (6,), "x": (9,), "z": (6, 6)}

    outside = _outside(kernel, sizes, shapes, {"at": _int(0, 1, 2, 0, 1, 3)})

    assert outside.value is None
    assert (outside.access, outside.interval) == ("load x[at[i] + (3*j) % 7]", (0, 9))
    assert (outside.sources, outside.extent) == (("at",), 9)
    # where the smallest and largest elements tell, no point is looked at
    assert _outside(kernel, sizes, shapes, {"at": _int(0, 1, 2, 0, 1, 2)}) is None
