"""Subscripts that are read from arrays; a plain loop over all points is the oracle."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import product
from typing import Any

import loopy as lp
import numpy as np
import pytest

from countperf.counting.extents import AddressedElements, ranges_of
from tests.kernels import made

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of if() in texts

I4 = np.int32


def _kernel(loops: str | list[str], text: str, arguments: str) -> Any:
    return AddressedElements(made(loops, text, arguments, assumptions=""))


CSR: Mapping[str, tuple[str, str]] = {
    "length": (
        "j<length",
        """
        for i
            <> first = starts[i]
            <> length = starts[i + 1] - first
            y[i] = sum(j, v[first + j]*x[col[first + j]])
        end
        """,
    ),
    "ends": (
        "{ [j] : first <= j < last }",
        """
        for i
            <> first = starts[i]
            <> last = starts[i + 1]
            y[i] = sum(j, v[j]*x[col[j]])
        end
        """,
    ),
}


def _outside(
    kernel: Any, sizes: Mapping[str, int], shapes: Mapping[str, Any], given: Mapping[str, Any]
) -> str:
    return kernel.describe_outside(sizes, shapes, ranges_of(given))


def _int(*values: int) -> Any:
    return np.array(values, I4)


def test_an_element_beyond_the_array_is_said_with_what_helps() -> None:
    kernel = _kernel("i<n", "z[i] = x[at[i]]", "at i32 m; x f64 k; z f64 n; n,m,k i32")
    sizes = {"n": 4, "m": 6, "k": 5}
    shapes = {"at": (6,), "x": (5,), "z": (4,)}
    assert not _outside(kernel, sizes, shapes, {"at": _int(0, 4, 3, 1, 0, 0)})
    said = _outside(kernel, sizes, shapes, {"at": _int(0, 4, 5, 1, 0, 0)})
    assert said == (
        "load x[at[i]] may leave its array: its subscripts go from 0 to 5, as far as the smallest"
        " and largest elements of 'at' tell, and axis 0 of its array goes from 0 to 4; nothing was"
        " launched: pass other elements of 'at', or time it with unchecked=True, if you know that"
        " it stays inside"
    )
    assert "go from -1 to 4" in _outside(kernel, sizes, shapes, {"at": _int(0, 4, -1, 1, 0, 0)})


@pytest.mark.parametrize("way", CSR)
def test_rows_of_different_lengths_stay_between_their_ends(way: str) -> None:
    loop, text = CSR[way]
    arguments = "starts i32 n+1; col i32 nz; v f64 nz; x f64 m; y f64 n; n,m,nz i32"
    kernel = _kernel(["i<n", loop], text, arguments)
    sizes = {"n": 3, "m": 4, "nz": 6}
    shapes = {"starts": (4,), "col": (6,), "v": (6,), "x": (4,), "y": (3,)}
    right = {"starts": _int(0, 2, 2, 6), "col": _int(0, 1, 2, 3, 0, 3)}
    assert not _outside(kernel, sizes, shapes, right)
    for wrong, access in (
        ({"col": _int(0, 1, 2, 4, 0, 3)}, "load x[col["),
        ({"starts": _int(0, 2, 2, 7)}, "load v["),
        ({"starts": _int(-1, 2, 2, 6)}, "load v["),
    ):
        assert _outside(kernel, sizes, shapes, {**right, **wrong}).startswith(access)


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
    "ends of i": ("x[at[j] - i + 4]", lambda values, at: values[at[1]] - at[0] + 4, lambda _: True),
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
def test_what_a_plain_loop_finds_outside_is_refused(shape: str, text: str) -> None:
    domain, is_point = SHAPES[shape]
    written, subscript, holds = TEXTS[text]
    kernel = _windows(domain, written)
    n, m = 6, 6
    rng = np.random.default_rng(7)
    points = [point for point in product(range(n), range(m)) if is_point(point) and holds(point)]
    for k, most in product((4, 9, 14, 60), (1, 3, 8)):
        at = rng.integers(0, most, n).astype(I4)
        values = [int(subscript(at, point)) for point in points]
        shapes = {"at": (n,), "x": (k,), "z": (n, m)}
        said = _outside(kernel, {"n": n, "m": m, "k": k}, shapes, {"at": at})
        if said == "":
            assert 0 <= min(values) <= max(values) < k
        # where all elements are alike, ranges tell all; not so the product, and what is guarded
        elif most == 1 and text not in ("product", "condition on j"):
            assert not 0 <= min(values) <= max(values) < k


def test_a_scalar_in_local_memory_may_hold_what_another_item_wrote() -> None:
    text = """
    for i
        <> t = i {id=w}
        z[i] = x[t - i] {dep=w}
    end
    """
    unit = made("i<n", text, "x,z f64 n; n i32")
    shapes = {"x": (4,), "z": (4,)}
    shared = lp.set_temporary_address_space(unit, "t", "local")
    assert not _outside(AddressedElements(unit), {"n": 4}, shapes, {})
    said = _outside(AddressedElements(shared), {"n": 4}, shapes, {})
    assert "other work items may write 't'" in said
