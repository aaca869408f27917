"""Inputs made from a kernel's own arguments: in range, positive, the same each time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any

import loopy as lp
import numpy as np
import pytest
from numpy.typing import NDArray

from countperf.devices.binding import (
    bind_arguments,
    default_inputs,
    describe_indices,
    resolve_arguments,
)
from countperf.devices.description import describe_kernel
from countperf.devices.device import Device
from countperf.errors import KernelBuildError
from tests.devices.test_layouts import GuardedSession
from tests.kernels import made

F8, I4, C8 = np.float64, np.int32, np.complex64
SIZES = {"n": 12, "m": 30, "q": 9}

Inputs = Mapping[str, NDArray[Any]]


def _kernel(arguments: str, body: str, domain: Any = "i<n") -> Any:
    return made(domain, body, f"{arguments}; z f64 n; n,m,q i32")


def gather(at: str = "at[i]") -> Any:
    return _kernel("x f64 m; at i32 n", f"z[i] = x[{at}]")


def triples() -> Any:
    body = "z[i] = sum(d, x[3*at[i] + d])"
    return _kernel("x f64 m; at i64 n", body, "{[i,d]: 0<=i<n and 0<=d<3}")


def by_a_variable() -> Any:
    body = "<> k = 2*at[i] + 1 {id=k}\nz[i] = x[k, other[i]] {dep=k}"
    return _kernel("x f64 m,q; at,other i32 n", body)


def rows() -> Any:
    bounds, body = "<> s = start[i]\n<> e = start[i+1]", "z[i] = sum(j, v[j]*x[column[j]])"
    arguments = "start i32 n+1; v f64 m; column i32 m; x f64 q"
    return _kernel(arguments, f"for i\n{bounds}\n{body}\nend", ["i<n", "{[j]: s<=j<e}"])


def starts_and_counts() -> Any:
    body = "for i\n<> s = start[i]\n<> c = number[i]\nz[i] = sum(j, x[s + j])\nend"
    return _kernel("start,number i32 n; x f64 m", body, ["i<n", "{[j]: 0<=j<c}"])


def _rows(given: Inputs) -> NDArray[Any]:
    start = given["start"]
    products = given["v"] * given["x"][given["column"]]
    return np.array([products[s:e].sum() for s, e in pairwise(start)])


def _counted(given: Inputs) -> NDArray[Any]:
    pairs = zip(given["start"], given["number"], strict=True)
    return np.array([given["x"][s : s + c].sum() for s, c in pairs])


def _triples(given: Inputs) -> NDArray[Any]:
    return np.array([given["x"][3 * k : 3 * k + 3].sum() for k in given["at"]])


KERNELS: dict[str, tuple[Callable[[], Any], Callable[[Inputs], NDArray[Any]]]] = {
    "gather": (gather, lambda given: given["x"][given["at"]]),
    "subscripts from one": (lambda: gather("at[i] - 1"), lambda given: given["x"][given["at"] - 1]),
    "triples": (triples, _triples),
    "by a variable": (by_a_variable, lambda given: given["x"][2 * given["at"] + 1, given["other"]]),
    "sparse rows": (rows, _rows),
    "starts and counts": (starts_and_counts, _counted),
}


def _made(unit: Any, seed: int = 3, sizes: Mapping[str, int] = SIZES) -> dict[str, Any]:
    return default_inputs(describe_kernel(unit), np.random.default_rng(seed), sizes)


@pytest.mark.device
@pytest.mark.parametrize("name", KERNELS)
def test_index_arrays_keep_a_kernel_inside_of_its_arrays(device: Device, name: str) -> None:
    build, expected = KERNELS[name]
    session = GuardedSession(device)
    kernel = session.build_kernel(build())
    given = default_inputs(kernel, np.random.default_rng(3), SIZES)
    bound = bind_arguments(session, kernel, SIZES, given)
    kernel.launch(bound.arguments)
    # NumPy raises where a subscript is too large, and takes those below zero from the end
    assert all(array.min() >= 0 for array in given.values())
    np.testing.assert_allclose(bound.read("z"), expected(given), rtol=1e-12)
    assert session.touched() == 0
    assert "z" not in given
    indices = [key for key, array in given.items() if array.dtype.kind in "iu"]
    assert indices
    for index in indices:  # given ones that leave an array are refused before a launch
        wrong = given[index].copy()
        wrong.flat[wrong.size // 2] = 100_000
        with pytest.raises(KernelBuildError, match="nothing was launched: pass other elements"):
            bind_arguments(session, kernel, SIZES, {**given, index: wrong})
        bind_arguments(session, kernel, SIZES, {**given, index: wrong}, unchecked=True)


@pytest.mark.parametrize("mean", [None, 0.5, 1.0])
def test_rows_have_the_stated_mean_length(mean: float | None) -> None:
    kernel = describe_kernel(rows())
    stated = {} if mean is None else {"j": mean}
    given = default_inputs(kernel, np.random.default_rng(3), SIZES, statistics=stated)
    said = describe_indices(kernel, SIZES, {}, stated)
    lengths = np.diff(given["start"])
    wanted = SIZES["m"] / SIZES["n"] if mean is None else mean
    assert np.all(lengths >= 0)
    assert given["start"][0] == 0
    assert lengths.mean() == pytest.approx(wanted, abs=0.5 / SIZES["n"])
    assert f"start: rows of {lengths.mean():.4g} on average, all alike (j)" in said
    assert f"column: random, 0 to {SIZES['q'] - 1}" in said


@pytest.mark.parametrize(
    ("build", "statistics", "said"),
    [
        (rows, {"j": 1e6}, "rows of 1e[+]06 elements .* make sizes and statistics agree"),
        (rows, {"j": 1.0, "x": "stride1"}, "x=stride1 is stated of the data.*make_arguments="),
        (gather, {"x": "stride1"}, "x=stride1 is stated of the data"),
        (starts_and_counts, {"j": 2.0}, "j=2.0 is stated of the data"),
        (gather, {"c[i] > 0.5": 0.5}, "is stated of the data"),
    ],
)
def test_data_that_would_not_be_as_stated_are_not_made_up(
    build: Callable[[], Any], statistics: dict[str, Any], said: str
) -> None:
    kernel = describe_kernel(build())
    with pytest.raises(KernelBuildError, match=said):
        default_inputs(kernel, np.random.default_rng(3), SIZES, statistics=statistics)


def test_what_given_indices_decide_is_as_stated_with_made_up_numbers() -> None:
    kernel = describe_kernel(rows())
    start = np.arange(SIZES["n"] + 1, dtype=np.int32)
    given = {"start": start, "column": np.zeros(SIZES["m"], np.int32)}
    stated = {"j": 1.0, "x": "uniform"}
    inputs = default_inputs(kernel, np.random.default_rng(3), SIZES, given, stated)
    assert np.all(inputs["x"] > 0)


def test_the_same_generator_gives_the_same_inputs() -> None:
    first, again, other = (_made(gather(), seed) for seed in (7, 7, 8))
    for name, array in first.items():
        np.testing.assert_array_equal(array, again[name])
    assert np.any(first["x"] != other["x"])


def test_numbers_are_positive_and_of_the_declared_types() -> None:
    unit = made(
        "i<n",
        "z[i] = a*c[i] + x[i] + k*t\ny[i] = y[i] + i",
        "x f64 n; c,z c64 n; k i32 (); y i32 n; a f64; t,n i32",
    )
    given = _made(unit, sizes={"n": 100})
    assert set(given) == {"x", "c", "k", "y", "a", "t"}
    assert {name: given[name].dtype for name in "xcky"} == {"x": F8, "c": C8, "k": I4, "y": I4}
    for numbers in (given["x"], given["c"].real, given["c"].imag, np.array(given["a"])):
        assert 0.5 <= numbers.min() <= numbers.max() < 1.5
    assert set(given["y"].tolist()) == {1, 2, 3}
    assert 1 <= given["t"] <= 3


@pytest.mark.parametrize(
    ("unit", "sizes", "said"),
    [
        (gather(), {"n": 12}, r"no value for argument m; pass m=\.\.\."),
        (
            _kernel("x f64 m; at i32 n", "at[i] = 2*at[i] {id=at}\nz[i] = x[at[i]] {dep=at}"),
            *(SIZES, r"x\[at\[i\]\] has a subscript that is computed.*make_arguments="),
        ),
    ],
    ids=["sizes", "subscripts that the kernel makes"],
)
def test_what_is_not_made_up(unit: Any, sizes: dict[str, int], said: str) -> None:
    with pytest.raises(KernelBuildError, match=said):
        _made(unit, sizes=sizes)


def test_loops_whose_bounds_have_copies_are_not_launched() -> None:
    unit = lp.split_iname(lp.assume(rows(), "n mod 2 = 0"), "i", 2, inner_tag="ilp")
    with pytest.raises(KernelBuildError, match="Loopy generates wrong code"):
        resolve_arguments(describe_kernel(unit), SIZES)


def test_sizes_that_are_not_declared_have_the_type_that_loopy_gives_them() -> None:
    arguments = [lp.GlobalArg("a", F8, shape="n,m"), lp.GlobalArg("x,y", F8), "..."]
    domain, body = "{ [i,j]: 0 <= i < n and 0 <= j < m }", "y[i] = sum(j, a[i,j]*x[j])"
    unit = lp.make_kernel(domain, body, arguments, lang_version=(2018, 2))
    assert describe_kernel(unit).scalars == {"n": np.dtype(I4), "m": np.dtype(I4)}
