"""Kernels in the style of Loopy's own tests and examples."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import loopy as lp
import numpy as np

from tests.corpus import Unit

F4, F8, C8, I4, I8, U4 = np.float32, np.float64, np.complex64, np.int32, np.int64, np.uint32
LOCAL = lp.AddressSpace.LOCAL
Transformation = Callable[[Any], Any]


def _split(iname: str, length: int, outer: str = "g.0", inner: str = "l.0") -> Transformation:
    return lambda unit: lp.split_iname(
        unit, iname, length, outer_tag=outer or None, inner_tag=inner or None
    )


def _made(
    domains: str | list[str],
    body: str,
    arrays: dict[str, tuple[Any, str]],
    sizes: str,
    *steps: Transformation,
    assumptions: str = "",
    more: tuple[Any, ...] = (),
) -> Any:
    arguments: list[Any] = [
        lp.GlobalArg(name, dtype, shape=shape) for name, (dtype, shape) in arrays.items()
    ]
    if sizes:
        arguments.append(lp.ValueArg(sizes, I4))
        assumptions = assumptions or " and ".join(f"{n} >= 1" for n in sizes.split(","))
    unit = lp.make_kernel(
        domains,
        body,
        [*arguments, *more],
        assumptions=assumptions or "1 >= 0",
        lang_version=(2018, 2),
        silenced_warnings=["v1_scheduler_fallback", "vectorize_failed"],
    )
    for step in steps:
        unit = step(unit)
    return unit


_I = "{ [i] : 0 <= i < n }"
_IJ = "{ [i, j] : 0 <= i < n and 0 <= j < m }"
_IJK = "{ [i, j, k] : 0 <= i, j, k < n }"
_MATRICES = {"a": (F4, "n,n"), "b": (F4, "n,n"), "c": (F4, "n,n")}


def _prefetched(*, tile: int, chunk: int) -> Any:
    unit = _made(
        _IJK,
        "c[i, j] = sum(k, a[i, k]*b[k, j])",
        _MATRICES,
        "n",
        _split("i", tile, "g.0", "l.1"),
        _split("j", tile, "g.1", "l.0"),
        lambda unit: lp.split_iname(unit, "k", chunk),
        assumptions=f"n mod {tile} = 0 and n >= {tile}",
    )
    for array, inames in (("a", ["k_inner", "i_inner"]), ("b", ["j_inner", "k_inner"])):
        unit = lp.add_prefetch(
            unit,
            array,
            inames,
            fetch_bounding_box=True,
            fetch_outer_inames="i_outer, j_outer, k_outer",
            default_tag="l.auto",
            temporary_address_space=LOCAL,
        )
    return unit


def _rank_one(*, is_prefetched: bool) -> Any:
    unit = _made(
        "{ [i, j] : 0 <= i, j < n }",
        "c[i, j] = a[i]*b[j]",
        {"a": (F4, "n"), "b": (F4, "n"), "c": (F4, "n,n")},
        "n",
        _split("i", 256, "g.0", ""),
        _split("j", 256, "g.1", ""),
        assumptions="n mod 256 = 0 and n >= 256",
    )
    if is_prefetched:
        for array, iname in (("a", "i_inner"), ("b", "j_inner")):
            unit = lp.add_prefetch(
                unit,
                array,
                [iname],
                fetch_bounding_box=True,
                fetch_outer_inames="i_outer, j_outer",
                default_tag=None,
            )
            unit = lp.split_iname(unit, f"{array}_dim_0", 16, outer_tag="l.1", inner_tag="l.0")
    unit = lp.split_iname(unit, "i_inner", 16, inner_tag="l.0")
    return lp.split_iname(unit, "j_inner", 16, inner_tag="l.1")


def _image() -> Any:
    unit = _made(
        "{ [i, j, u, v] : 0 <= i < n and 0 <= j < m and -1 <= u, v <= 1 }",
        "o[i, j] = sum((u, v), f[1 + u, 1 + v]*img[i + 1 - u, j + 1 - v])",
        {"f": (F4, "3,3"), "img": (F4, "n+2,m+2"), "o": (F4, "n,m")},
        "n,m",
        _split("i", 16, "g.1", "l.1"),
        _split("j", 16, "g.0", "l.0"),
        lambda unit: lp.tag_inames(unit, "u:unr, v:unr"),
        assumptions="n mod 16 = 0 and m mod 16 = 0 and n, m >= 16",
    )
    return lp.add_prefetch(unit, "f[:, :]", fetch_outer_inames="i_outer, j_outer, i_inner, j_inner")


def _batched() -> Any:
    return _made(
        "{ [k, i, j] : 0 <= k < n and 0 <= i, j < 32 }",
        "o[k, i] = sum(j, d[i, j]*f[k, j])",
        {"d": (F4, "32,32"), "f": (F4, "n,32"), "o": (F4, "n,32")},
        "n",
        _split("k", 8, "g.0", "l.1"),
        lambda unit: lp.tag_inames(unit, "i:l.0"),
        lambda unit: lp.add_prefetch(
            unit, "d[:, :]", fetch_outer_inames="k_outer", default_tag="l.auto"
        ),
    )


def _stencil() -> Any:
    unit = _made(
        "{ [i, j] : 0 <= i, j < n }",
        """
        z[i, j] = (a[i, j + 1] + a[i + 1, j] + a[i + 2, j + 1] + a[i + 1, j + 2]
                   - 4*a[i + 1, j + 1])
        """,
        {"a": (F4, "n+2,n+2"), "z": (F4, "n,n")},
        "n",
        _split("i", 16, "g.1", "l.1"),
        _split("j", 16, "g.0", "l.0"),
        assumptions="n mod 16 = 0 and n >= 16",
    )
    return lp.add_prefetch(
        unit, "a", ["i_inner", "j_inner"], fetch_bounding_box=True, default_tag="l.auto"
    )


def _two_stages() -> Any:
    unit = _made(
        ["{ [g, l, s] : 0 <= g < n and 0 <= l < 64 and 0 <= s < 4 }", "{ [h] : 0 <= h < n }"],
        """
        part[g] = sum(l, sum(s, x[256*g + 64*s + l])) {id=part}
        ... gbarrier {id=wait, dep=part}
        o[0] = sum(h, part[h]) {dep=wait}
        """,
        {"x": (F8, "256*n"), "o": (F8, "1"), "part": (F8, "n")},
        "n",
    )
    return lp.tag_inames(unit, "g:g.0, l:l.0")


def _sparse() -> Any:
    return _made(
        ["{ [i] : 0 <= i < n }", "{ [j] : 0 <= j < len }"],
        """
        for i
            <> first = starts[i] {id=first}
            <> len = starts[i + 1] - first {id=len, dep=first}
            y[i] = sum(j, values[first + j]*x[columns[first + j]]) {dep=len}
        end
        """,
        {
            **{"values": (F8, "nnz"), "columns": (I4, "nnz"), "starts": (I4, "n+1")},
            **{"x": (F8, "n"), "y": (F8, "n")},
        },
        "n,nnz",
        _split("i", 128),
        assumptions="n >= 1",
    )


def _scanned(*, is_local: bool) -> Any:
    unit = _made(
        "{ [i, j] : 0 <= i < 64 and 0 <= j <= i }",
        "o[i] = sum(j, a[j])",
        {"a": (F8, "64"), "o": (F8, "64")},
        "",
    )
    unit = lp.tag_inames(unit, "i:l.0") if is_local else unit
    return lp.realize_reduction(unit, force_scan=True)


def _vectorized(width: int, tag: str = "vec") -> Any:
    return _made(
        f"{{ [i, c] : 0 <= i < n and 0 <= c < {width} }}",
        "z[i, c] = 5*x[i, c] + y[i, c]",
        dict.fromkeys("xyz", (F4, f"n,{width}")),
        "n",
        lambda unit: lp.tag_array_axes(unit, "x,y,z", "c,vec"),
        lambda unit: lp.tag_inames(unit, {"c": tag}),
        _split("i", 16),
    )


def _called() -> Any:
    callee = lp.make_function(
        "{ [i] : 0 <= i < 10 }",
        "y[i] = 2*x[i] + x[9 - i]",
        [lp.GlobalArg("x", F8, shape=10), lp.GlobalArg("y", F8, shape=10, is_input=False)],
        name="twice",
        lang_version=(2018, 2),
    )
    caller = _made(
        "{ [k] : 0 <= k < n }",
        "o[k, :] = twice(a[k, :])",
        {"a": (F8, "n,10"), "o": (F8, "n,10")},
        "n",
    )
    return lp.merge([caller, callee])


def _precomputed() -> Any:
    unit = _made(
        "{ [i, j] : 0 <= i < n and 0 <= j < 5 }",
        """
        f(k) := a[k]*a[k] + 1
        o[i] = sum(j, f(i + j))
        """,
        {"a": (F4, "n+4"), "o": (F4, "n")},
        "n",
        _split("i", 16),
        assumptions="n mod 16 = 0 and n >= 16",
    )
    return lp.precompute(
        unit,
        "f",
        ["i_inner", "j"],
        default_tag="l.0",
        precompute_outer_inames=frozenset(["i_outer"]),
        temporary_address_space=LOCAL,
    )


_SIMPLE: dict[str, tuple[Any, ...]] = {
    "axpy": (_I, "z[i] = 5*x[i] + 7*y[i]", dict.fromkeys("xyz", (F4, "n")), "n", _split("i", 128)),
    "transpose": (
        *("{ [i, j] : 0 <= i, j < n }", "o[i, j] = a[j, i]", dict.fromkeys("ao", (F4, "n,n"))),
        *("n", _split("i", 16, "g.1", "l.1"), _split("j", 16)),
    ),
    "matmul": (
        *(_IJK, "c[i, j] = sum(k, a[i, k]*b[k, j])", _MATRICES, "n"),
        *(_split("i", 16, "g.1", "l.1"), _split("j", 16)),
    ),
    "triangle": (
        *("{ [i, j] : 0 <= i < n and 0 <= j <= i }", "o[i] = sum(j, a[i, j]*x[j])"),
        *({"a": (F8, "n,n"), "x": (F8, "n"), "o": (F8, "n")}, "n", _split("i", 32)),
    ),
    "banded": (
        "{ [i, j] : 0 <= i < n and 0 <= j < n and i - 2 <= j <= i + 2 }",
        *("o[i] = sum(j, a[i, j]*x[j])", {"a": (F8, "n,n"), "x": (F8, "n"), "o": (F8, "n")}, "n"),
    ),
    "strided_domain": (
        "{ [i, k] : 0 <= i < n and i = 3*k }",
        *("o[i] = 2*a[i]", dict.fromkeys("ao", (F4, "n")), "n"),
    ),
    "unrolled": (
        *("{ [i, j] : 0 <= i < n and 0 <= j < 6 }", "o[i, j] = j*a[i, j] + a[i, 5 - j]"),
        *(dict.fromkeys("ao", (F4, "n,6")), "n"),
        *(lambda unit: lp.tag_inames(unit, "j:unr"), _split("i", 64)),
    ),
    "ilp": (
        *(_I, "o[i] = a[i]*a[i] + 1", dict.fromkeys("ao", (F4, "n")), "n"),
        lambda unit: lp.split_iname(unit, "i", 4, inner_tag="ilp"),
    ),
    "conditional": (
        *(_IJ, "o[i, j] = if(i < j, a[i, j], 2*a[j, i])", dict.fromkeys("ao", (F4, "n,m"))),
        *("n,m", _split("j", 32)),
    ),
    "data_conditional": (
        *(_I, "o[i] = if(a[i] > 0, sqrt(a[i]), 0)", dict.fromkeys("ao", (F8, "n")), "n"),
        _split("i", 64),
    ),
    "predicate": (
        _I,
        """
        <> is_hot = t[i] > 900 {id=hot}
        o[i] = 3*t[i] {if=is_hot, dep=hot}
        """,
        *(dict.fromkeys("to", (F4, "n")), "n", _split("i", 64)),
    ),
    "bits": (
        *(_I, "o[i] = ((a[i] >> 3) ^ (a[i] << 5)) & 1023 | ~a[i]", dict.fromkeys("ao", (U4, "n"))),
        *("n", _split("i", 64)),
    ),
    "integer_quotients": (
        *(_I, "o[i] = a[i] // 7 + a[i] % 5 + a[i] // 8", dict.fromkeys("ao", (I8, "n")), "n"),
        _split("i", 64),
    ),
    "powers": (
        *(_I, "o[i] = a[i]**2 + a[i]**5 + a[i]**0.3", dict.fromkeys("ao", (F8, "n")), "n"),
        _split("i", 64),
    ),
    "functions": (
        _I,
        "o[i] = sin(a[i])*exp(a[i]) + atan2(a[i], 2.0) + tan(a[i]) + cosh(a[i]) + log10(a[i])",
        *(dict.fromkeys("ao", (F8, "n")), "n", _split("i", 64)),
    ),
    "complex": (
        *(_I, "o[i] = 2j*a[i]*conj(a[i]) + real(a[i])", dict.fromkeys("ao", (C8, "n"))),
        *("n", _split("i", 64)),
    ),
    "argmax": (
        *(_IJ, "hi[i], at[i] = argmax(j, fabs(a[i, j]), j)"),
        *({"a": (F8, "n,m"), "hi": (F8, "n"), "at": (I4, "n")}, "n,m", _split("i", 32)),
    ),
    "maximum": (
        *(_IJ, "o[i] = max(j, a[i, j])", {"a": (F8, "n,m"), "o": (F8, "n")}, "n,m"),
        _split("i", 32),
    ),
    "any": (
        *(_IJ, "o[i] = reduce(any, j, a[i, j])", {"a": (I4, "n,m"), "o": (I4, "n")}, "n,m"),
        _split("i", 32),
    ),
    "product": (
        *(_IJ, "o[i] = product(j, a[i, j])", {"a": (F4, "n,m"), "o": (F4, "n")}, "n,m"),
        _split("i", 32),
    ),
    "rotated": (
        *(_IJ, "o[i, j] = a[(i + 2) % n, (j + 3) % m]", dict.fromkeys("ao", (F4, "n,m"))),
        *("n,m", _split("j", 32)),
    ),
    "uneven": (
        *(_IJ, "o[i, j] = a[i, (i*j) % m] + a[i, j // 3]", dict.fromkeys("ao", (F4, "n,m"))),
        *("n,m", _split("j", 32)),
    ),
    "global_barrier": (
        "{ [i, j] : 0 <= i, j < n }",
        """
        u[i] = 2*v[i] {id=first}
        ... gbarrier {id=wait, dep=first}
        w[j] = u[n - 1 - j] + 1 {id=second, dep=wait}
        """,
        *(dict.fromkeys("uvw", (F4, "n")), "n", _split("i", 32), _split("j", 32)),
    ),
    "slabs": (
        *(_I, "o[i] = a[i] + a[n - 1 - i]", dict.fromkeys("ao", (F4, "n")), "n"),
        lambda unit: lp.split_iname(unit, "i", 16, outer_tag="g.0", inner_tag="l.0", slabs=(1, 1)),
    ),
}

_N, _NM = {"n": 1024}, {"n": 256, "m": 96}
UNITS: list[Unit] = [
    *(
        (name, partial(_made, *parts), _NM if parts[3] == "n,m" else _N)
        for name, parts in _SIMPLE.items()
    ),
    ("matmul_prefetched", partial(_prefetched, tile=16, chunk=16), _N),
    ("matmul_prefetched_narrow", partial(_prefetched, tile=8, chunk=4), _N),
    ("rank_one", partial(_rank_one, is_prefetched=False), _N),
    ("rank_one_prefetched", partial(_rank_one, is_prefetched=True), _N),
    ("image_filter", _image, {"n": 256, "m": 128}),
    ("batched_matvec", _batched, _N),
    ("stencil_prefetched", _stencil, _N),
    ("two_stage_sum", _two_stages, {"n": 64}),
    ("sparse_matvec", _sparse, {"n": 1000, "nnz": 9000}),
    ("scan", partial(_scanned, is_local=False), {}),
    ("scan_local", partial(_scanned, is_local=True), {}),
    ("vectors_of_2", partial(_vectorized, 2), _N),
    ("vectors_of_3", partial(_vectorized, 3), _N),
    ("vectors_of_4", partial(_vectorized, 4), _N),
    ("vectors_of_8", partial(_vectorized, 8), _N),
    ("vectors_unrolled", partial(_vectorized, 4, "unr"), _N),
    ("callee", _called, _N),
    ("precomputed", _precomputed, _N),
]
