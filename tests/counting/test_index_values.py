"""Subscripts that are read from arrays; a plain loop over all points is the oracle."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import product
from typing import Any

import loopy as lp
import numpy as np
import pytest

from countperf.counting import index_values
from countperf.counting.copies import preprocessed
from countperf.counting.extents import accesses_of
from countperf.counting.index_values import find_outside

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of if() in texts

I4, F8 = np.int32, np.float64


def _kernel(domains: str | list[str], text: str, arguments: list[Any]) -> Any:
    unit = lp.make_kernel(domains, text, arguments, name="loops", lang_version=(2018, 2))
    return preprocessed(unit).default_entrypoint


def _gather() -> Any:
    return _kernel(
        "{ [i] : 0 <= i < n }",
        "z[i] = x[at[i]]",
        [
            lp.GlobalArg("at", I4, shape="m"),
            lp.GlobalArg("x", F8, shape="k"),
            lp.GlobalArg("z", F8, shape="n"),
            lp.ValueArg("n,m,k", I4),
        ],
    )


def _guarded_gather() -> Any:
    return _kernel(
        "{ [i] : 0 <= i < n }",
        "z[i] = if(at[i] >= 0, x[at[i]], 0)",
        [
            lp.GlobalArg("at", I4, shape="n"),
            lp.GlobalArg("x", F8, shape="k"),
            lp.GlobalArg("z", F8, shape="n"),
            lp.ValueArg("n,k", I4),
        ],
    )


def _rows() -> Any:
    return _kernel(
        ["{ [i] : 0 <= i < n }", "{ [j] : 0 <= j < len }"],
        """
        for i
            <> first = starts[i]
            <> len = starts[i + 1] - first
            y[i] = sum(j, v[first + j]*x[col[first + j]])
        end
        """,
        [
            lp.GlobalArg("starts", I4, shape="n+1"),
            lp.GlobalArg("col", I4, shape="nz"),
            lp.GlobalArg("v", F8, shape="nz"),
            lp.GlobalArg("x", F8, shape="m"),
            lp.GlobalArg("y", F8, shape="n"),
            lp.ValueArg("n,m,nz", I4),
        ],
    )


def _triangle() -> Any:
    return _kernel(
        "{ [i, j] : 0 <= i < n and 0 <= j <= i }",
        "z[i, j] = x[at[i] - j]",
        [
            lp.GlobalArg("at", I4, shape="n"),
            lp.GlobalArg("x", F8, shape="n"),
            lp.GlobalArg("z", F8, shape="n,n"),
            lp.ValueArg("n", I4),
        ],
    )


def _found(
    kernel: Any, sizes: Mapping[str, int], shapes: Mapping[str, Any], given: Mapping[str, Any]
) -> Any:
    return find_outside(kernel, sizes, shapes, given, accesses_of(kernel))


def _int(*values: int) -> Any:
    return np.array(values, I4)


def test_an_element_beyond_the_array_is_found_with_its_place() -> None:
    sizes = {"n": 4, "m": 6, "k": 5}
    shapes = {"at": (6,), "x": (5,), "z": (4,)}

    found = _found(_gather(), sizes, shapes, {"at": _int(0, 4, 5, 1, 0, 0)})

    assert (found.value, found.axis, found.extent, found.at) == (5, 0, 5, {"i": 2})
    assert found.sources == ("at",)
    assert found.access == "load x[at[i]]"
    found = _found(_gather(), sizes, shapes, {"at": _int(0, 4, -1, 1, 0, 0)})
    assert (found.value, found.at) == (-1, {"i": 2})


def test_elements_that_are_not_read_may_be_anything() -> None:
    sizes = {"n": 4, "m": 6, "k": 5}
    shapes = {"at": (6,), "x": (5,), "z": (4,)}

    assert _found(_gather(), sizes, shapes, {"at": _int(0, 4, 0, 1, 99, -99)}) is None


def test_what_a_condition_leaves_out_is_not_accessed() -> None:
    sizes, shapes = {"n": 4, "k": 5}, {"at": (4,), "x": (5,), "z": (4,)}

    assert _found(_guarded_gather(), sizes, shapes, {"at": _int(0, -1, 4, -7)}) is None
    found = _found(_guarded_gather(), sizes, shapes, {"at": _int(0, -1, 5, -7)})
    assert (found.value, found.at) == (5, {"i": 2})


def test_rows_of_different_lengths_are_gone_through() -> None:
    sizes = {"n": 3, "m": 4, "nz": 6}
    shapes = {"starts": (4,), "col": (6,), "v": (6,), "x": (4,), "y": (3,)}
    starts = _int(0, 2, 2, 6)

    # intervals alone would take the last start for that of a long row
    right = {"starts": starts, "col": _int(0, 1, 2, 3, 0, 3)}
    assert _found(_rows(), sizes, shapes, right) is None
    found = _found(_rows(), sizes, shapes, {**right, "col": _int(0, 1, 2, 4, 0, 3)})
    assert (found.access, found.value) == ("load x[col[first + j]]", 4)
    assert found.at == {"i": 2, "j": 1}
    found = _found(_rows(), sizes, shapes, {**right, "starts": _int(0, 2, 2, 7)})
    assert (found.value, found.extent, found.at) == (6, 6, {"i": 2, "j": 4})


@pytest.mark.parametrize("seed", range(20))
def test_what_is_found_in_a_triangle_agrees_with_a_plain_loop(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n = 6
    at = (np.arange(n) + rng.integers(-1, 2, n)).astype(I4)
    outside = {
        (i, j): int(at[i]) - j
        for i in range(n)
        for j in range(i + 1)
        if not 0 <= int(at[i]) - j < n
    }

    found = _found(_triangle(), {"n": n}, {"at": (n,), "x": (n,), "z": (n, n)}, {"at": at})

    if found is None:
        assert outside == {}
    else:
        assert outside[found.at["i"], found.at["j"]] == found.value


def test_many_points_are_gone_through_in_blocks() -> None:
    n = 2_500_000
    at = np.zeros(n, I4)
    at[2_400_001] = 5
    shapes = {"at": (n,), "x": (5,), "z": (n,)}

    found = _found(_gather(), {"n": n, "m": n, "k": 5}, shapes, {"at": at})

    assert found.at == {"i": 2_400_001}
    assert _found(_gather(), {"n": 2_400_000, "m": n, "k": 5}, shapes, {"at": at}) is None


def _windows(domain: str = "{ [i, j] : 0 <= i < n and 0 <= j < m }", text: str = "") -> Any:
    return _kernel(
        domain,
        text or "z[i, j] = x[at[i] + 2*j - 3]",
        [
            lp.GlobalArg("at", I4, shape="n"),
            lp.GlobalArg("x", F8, shape="k"),
            lp.GlobalArg("z", F8, shape="n,m"),
            lp.ValueArg("n,m,k", I4),
        ],
    )


Point = tuple[int, int]
SHAPES: Mapping[str, tuple[str, Callable[[Point], bool]]] = {
    "rectangle": ("{ [i, j] : 0 <= i < n and 0 <= j < m }", lambda _: True),
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
    kernel = _windows(domain, f"z[i, j] = {written}")
    n, m, k = 6, 6, 9
    rng = np.random.default_rng(7)
    results: set[bool] = set()
    for _ in range(12):
        at = rng.integers(0, 8, n).astype(I4)
        outside = {
            point: int(subscript(at, point))
            for point in product(range(n), range(m))
            if is_point(point) and holds(point) and not 0 <= int(subscript(at, point)) < k
        }
        shapes = {"at": (n,), "x": (k,), "z": (n, m)}

        found = _found(kernel, {"n": n, "m": m, "k": k}, shapes, {"at": at})

        results.add(found is None)
        if found is None:
            assert outside == {}
        else:  # j may not bear on it
            places = [place for place, value in outside.items() if value == found.value]
            assert any(
                all({"i": i, "j": j}[name] == value for name, value in found.at.items())
                for i, j in places
            )
    assert False in results


def test_what_has_too_many_points_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_values, "_MOST_POINTS", 30)
    kernel = _windows(text="z[i, j] = x[at[i] + (3*j) % 7]")
    sizes, shapes = {"n": 6, "m": 6, "k": 9}, {"at": (6,), "x": (9,), "z": (6, 6)}

    found = _found(kernel, sizes, shapes, {"at": _int(0, 1, 2, 0, 1, 3)})

    assert found.value is None
    assert (found.access, found.interval) == ("load x[at[i] + (3*j) % 7]", (0, 9))
    assert (found.sources, found.extent) == (("at",), 9)
    # where the smallest and largest elements tell, no point is looked at
    assert _found(kernel, sizes, shapes, {"at": _int(0, 1, 2, 0, 1, 2)}) is None
