"""Callees whose names are those of the caller, against what Oclgrind executes of Loopy's functions,
which are not inlined."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import loopy as lp
import numpy as np
import pytest

from countperf.counting.count_properties import count_kernel
from countperf.errors import CountingError
from tests.kernels import made
from tests.oracles import oclgrind

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of Loopy's dependencies
N, M = 9, 7
BOUNDS = {"t": 3, "i": "n", "p": "m", "q": "m", "r": "n", "s": "n"}  # of the caller's loops


def function(
    loops: str, body: str, sizes: str, name: str = "dbl", assumptions: str | None = None
) -> Any:
    """Make a callee of sizes, whose further arguments are a vector or matrix x, and y."""
    values = [lp.ValueArg(sizes, np.int32)] if sizes else []
    arrays = lp.GlobalArg("x,y", np.float64, shape=lp.auto)
    options: dict[str, Any] = {"assumptions": assumptions} if assumptions else {}
    return lp.make_function(
        f"{{ [{loops.split(':')[0]}] : {loops.split(':')[1]} }}",
        body,
        [*values, arrays, ...],
        name=name,
        lang_version=(2018, 2),
        options=lp.Options(enforce_array_accesses_within_bounds="no_check"),
        **options,
    )


def double(size: str, loop: str = "j", **more: Any) -> Any:
    return function(f"{loop}: 0<={loop}<{size}", f"y[{loop}] = 2*x[{loop}]", size, **more)


def caller(body: str, *callees: Any, **options: Any) -> Any:
    loops = [f"{name}<{end}" for name, end in BOUNDS.items() if re.search(rf"\b{name}\b", body)]
    unit = made(", ".join(loops), body, "A,out f64 n+m,n+m; n,m i32", **options)
    return lp.merge([unit, *callees])


ROW = "[p]: out[i, p] = dbl(m, [q]: A[i, q])"
NESTED = "for o\n [k]: y[o, k] = inner({}, [l]: x[o, l])\nend"


def rectangle(sizes: str) -> Any:
    first, second = sizes.split(",")
    return function(f"j,k: 0<=j<{first} and 0<=k<{second}", "y[j, k] = 2*x[j, k]", sizes)


def nested(first: str, second: str) -> Any:
    """Make a callee of first rows of second elements that calls one for each row."""
    loops = f"k,l,o: 0<=k,l<{second} and 0<=o<{first}"
    return function(loops, NESTED.format(second), "n,m", name="outer")


# the unit, and the number of its multiplications
CALLS: dict[str, tuple[Any, int]] = {
    "a size of the same name": (caller(ROW, double("m")), N * M),
    "the name of another size": (caller(ROW, double("n")), N * M),
    "the name of a loop of the caller": (caller(ROW, double("i")), N * M),
    "the name of an array of the caller": (caller(ROW, double("out")), N * M),
    "a loop of the same name": (caller(ROW, double("m", loop="i")), N * M),
    "in groups": (caller(ROW, double("m"), split="i:4"), N * M),
    "in a loop": (caller(f"for t,i\n {ROW}\nend", double("m")), 3 * N * M),
    "under a condition": (caller(f"if i < 3\n {ROW}\nend", double("m")), 3 * M),
    "an expression": (caller(ROW.replace("m,", "m//2 + 1,"), double("m")), N * (M // 2 + 1)),
    "a loop variable": (
        caller("[r]: out[i, r] = dbl(i, [s]: A[i, s])", double("m", assumptions="m >= 0")),
        N * (N - 1) // 2,
    ),
    "assumed": (caller(ROW.replace("m,", "m - 2,"), double("n", assumptions="n >= 4")), N * 5),
    "two calls": (
        caller(f"{ROW} {{id=a}}\n[r]: out[i, r] = dbl(n, [s]: A[i, s]) {{dep=a}}", double("m")),
        N * (M + N),
    ),
    "names exchanged": (
        caller("[p, r]: out[p, r] = dbl(m, n, [q, s]: A[q, s])", rectangle("n,m")),
        N * M,
    ),
    "one name in two arguments": (
        caller("[p, r]: out[p, r] = dbl(m, m - 1, [q, s]: A[q, s])", rectangle("n,m")),
        M * (M - 1),
    ),
    "a callee of a callee": (
        caller(
            "[r, p]: out[r, p] = outer(n, m, [s, q]: A[s, q]) {id=a}\n"
            "[r, p]: out[r, p] = outer(n - 1, m - 2, [s, q]: A[s, q]) {dep=a}",
            nested("n", "m"),
            double("m", name="inner"),
        ),
        N * M + (N - 1) * (M - 2),
    ),
    "names exchanged in a callee of a callee": (
        caller(
            "[r, p]: out[r, p] = outer(m, n, [s, q]: A[s, q])",
            nested("m", "n"),
            double("n", name="inner"),
        ),
        N * M,
    ),
    "rules of one name": (
        caller(
            f"two(k) := 3*A[k, 0]*A[k, 0]\n{ROW} {{id=a}}\nout[i, 0] = two(i) {{dep=a}}",
            function("j: 0<=j<m", "two(k) := 2*x[k]\ny[j] = two(j)", "m"),
        ),
        N * M + 2 * N,
    ),
    "temporaries and instructions of one name": (
        caller(
            f"<> t0 = 3*A[i, 0] {{id=a}}\n{ROW} {{id=b, dep=a}}\nout[i, 0] = 5*t0 {{dep=b}}",
            function("j: 0<=j<m", "<> t0 = 2*x[j] {id=a}\ny[j] = t0 {id=b, dep=a}", "m"),
        ),
        N * M + 2 * N,
    ),
    "a condition in the callee": (
        caller(
            ROW.replace("m,", "m, 3,"),
            function("j: 0<=j<w", "if j < m\n y[j] = 2*x[j]\nend", "w,m"),
        ),
        3 * N,
    ),
}


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.oclgrind
@pytest.mark.skipif(oclgrind.PROGRAM is None, reason="oclgrind-kernel is not installed")
def test_calls_are_what_is_executed(name: str, tmp_path: Path) -> None:
    unit, multiplications = CALLS[name]
    vector = count_kernel(unit)
    sizes = {size: {"n": N, "m": M}[size] for size in vector.parameters}
    counts = vector.evaluate(sizes)
    assert counts["flop.mul.f64"] == multiplications
    assert oclgrind.disagreements(counts, oclgrind.run(unit, sizes, tmp_path)) == {}


def test_a_size_from_data_is_that_of_its_statistic() -> None:
    text = "<> m = columns[i]\n[s]: out[i, s] = dbl(m, [r]: a[i, r])"
    unit = made("i<n, r<n, s<n", text, "a,out f64 n,n; columns i32 n; n i32")
    vector = count_kernel(lp.merge([unit, double("m")]), statistics={"dbl_j": 3})
    assert vector.evaluate(n=N)["flop.mul.f64"] == 3 * N


def test_recursive_calls_are_refused() -> None:
    loops = "j,k: 0<=j,k<m"
    unit = caller(
        "[p]: out[i, p] = first(m, [q]: A[i, q])",
        function(loops, "[j]: y[j] = second(m, [k]: x[k])", "m", "first"),
        function(loops, "[j]: y[j] = first(m, [k]: x[k])", "m", "second"),
    )
    with pytest.raises(CountingError, match="'first' calls itself, by second; recursive"):
        count_kernel(unit)


def test_callees_that_loopy_cannot_inline_are_refused() -> None:
    external = lp.make_function(
        "{ [k] : 0 <= k < 4 }", "out[k] = given[k]", name="copied", lang_version=(2018, 2)
    )
    caller = made("i<n, j<4", "[j]: z[i, j] = copied([j]: a[i, j])", "a,z f32 n,4; n i32")
    assert count_kernel(lp.merge([caller, external])).evaluate(n=N)["gmem.load.32.uniform"] == 4 * N
    with pytest.raises(CountingError):
        count_kernel(caller)
