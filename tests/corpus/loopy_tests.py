"""Kernels in the style of Loopy's own tests and examples."""

from __future__ import annotations

from functools import partial
from typing import Any

import loopy as lp

from tests.corpus import Unit
from tests.kernels import made

LOCAL = lp.AddressSpace.LOCAL


def _prefetched(*, tile: int, chunk: int) -> Any:
    unit = made(
        "i<n, j<n, k<n",
        "c[i, j] = sum(k, a[i, k]*b[k, j])",
        "a,b,c f32 n,n; n i32",
        split=f"i:{tile}:g.0,l.1 j:{tile}:g.1,l.0 k:{chunk}:,",
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
    unit = made(
        "i<n, j<n",
        "c[i, j] = a[i]*b[j]",
        "a,b f32 n; c f32 n,n; n i32",
        split="i:256:g.0, j:256:g.1,",
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
    unit = made(
        "{ [i, j, u, v] : 0 <= i < n and 0 <= j < m and -1 <= u, v <= 1 }",
        "o[i, j] = sum((u, v), f[1 + u, 1 + v]*img[i + 1 - u, j + 1 - v])",
        "f f32 3,3; img f32 n+2,m+2; o f32 n,m; n,m i32",
        split="i:16:1 j:16",
        tags="u:unr, v:unr",
        assumptions="n mod 16 = 0 and m mod 16 = 0 and n, m >= 16",
    )
    return lp.add_prefetch(unit, "f[:, :]", fetch_outer_inames="i_outer, j_outer, i_inner, j_inner")


def _batched() -> Any:
    unit = made(
        "k<n, i<32, j<32",
        "o[k, i] = sum(j, d[i, j]*f[k, j])",
        "d f32 32,32; f,o f32 n,32; n i32",
        split="k:8:g.0,l.1",
        tags="i:l.0",
    )
    return lp.add_prefetch(unit, "d[:, :]", fetch_outer_inames="k_outer", default_tag="l.auto")


def _stencil() -> Any:
    unit = made(
        "i<n, j<n",
        """
        z[i, j] = (a[i, j + 1] + a[i + 1, j] + a[i + 2, j + 1] + a[i + 1, j + 2]
                   - 4*a[i + 1, j + 1])
        """,
        "a f32 n+2,n+2; z f32 n,n; n i32",
        split="i:16:1 j:16",
        assumptions="n mod 16 = 0 and n >= 16",
    )
    return lp.add_prefetch(
        unit, "a", ["i_inner", "j_inner"], fetch_bounding_box=True, default_tag="l.auto"
    )


def _scanned(*, is_local: bool) -> Any:
    unit = made(
        "{ [i, j] : 0 <= i < 64 and 0 <= j <= i }",
        "o[i] = sum(j, a[j])",
        "a,o f64 64",
        tags="i:l.0" if is_local else None,
    )
    return lp.realize_reduction(unit, force_scan=True)


def _precomputed() -> Any:
    unit = made(
        "i<n, j<5",
        "f(k) := a[k]*a[k] + 1\no[i] = sum(j, f(i + j))",
        "a f32 n+4; o f32 n; n i32",
        split="i:16",
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


def _slabs() -> Any:
    unit = made("i<n", "o[i] = a[i] + a[n - 1 - i]", "a,o f32 n; n i32")
    return lp.split_iname(unit, "i", 16, outer_tag="g.0", inner_tag="l.0", slabs=(1, 1))


_NM = "i<n, j<m"
_SIMPLE: dict[str, tuple[str | list[str], str, str, str]] = {
    "axpy": ("i<n", "z[i] = 5*x[i] + 7*y[i]", "x,y,z f32 n; n i32", "i:128"),
    "transpose": ("i<n, j<n", "o[i, j] = a[j, i]", "a,o f32 n,n; n i32", "i:16:1 j:16"),
    "matmul": (
        *("i<n, j<n, k<n", "c[i, j] = sum(k, a[i, k]*b[k, j])"),
        *("a,b,c f32 n,n; n i32", "i:16:1 j:16"),
    ),
    "triangle": (
        *("{ [i, j] : 0 <= i < n and 0 <= j <= i }", "o[i] = sum(j, a[i, j]*x[j])"),
        *("a f64 n,n; x,o f64 n; n i32", "i:32"),
    ),
    "banded": (
        "{ [i, j] : 0 <= i < n and 0 <= j < n and i - 2 <= j <= i + 2 }",
        *("o[i] = sum(j, a[i, j]*x[j])", "a f64 n,n; x,o f64 n; n i32", ""),
    ),
    "strided_domain": (
        *("{ [i, k] : 0 <= i < n and i = 3*k }", "o[i] = 2*a[i]", "a,o f32 n; n i32", ""),
    ),
    "unrolled": (*("i<n, j<6", "o[i, j] = j*a[i, j] + a[i, 5 - j]", "a,o f32 n,6; n i32", "i:64"),),
    "ilp": ("i<n", "o[i] = a[i]*a[i] + 1", "a,o f32 n; n i32", "i:4:,ilp"),
    "conditional": (
        *(_NM, "o[i, j] = if(i < j, a[i, j], 2*a[j, j])", "a,o f32 n,m; n,m i32", "j:32"),
    ),
    "data_conditional": (
        *("i<n", "o[i] = if(a[i] > 0, sqrt(a[i]), 0)", "a,o f64 n; n i32", "i:64"),
    ),
    "predicate": (
        *("i<n", "<> is_hot = t[i] > 900 {id=hot}\no[i] = 3*t[i] {if=is_hot, dep=hot}"),
        *("t,o f32 n; n i32", "i:64"),
    ),
    "bits": (
        *("i<n", "o[i] = ((a[i] >> 3) ^ (a[i] << 5)) & 1023 | ~a[i]", "a,o u32 n; n i32", "i:64"),
    ),
    "integer_quotients": (
        *("i<n", "o[i] = a[i] // 7 + a[i] % 5 + a[i] // 8", "a,o i64 n; n i32", "i:64"),
    ),
    "powers": ("i<n", "o[i] = a[i]**2 + a[i]**5 + a[i]**0.3", "a,o f64 n; n i32", "i:64"),
    "functions": (
        "i<n",
        "o[i] = sin(a[i])*exp(a[i]) + atan2(a[i], 2.0) + tan(a[i]) + cosh(a[i]) + log10(a[i])",
        *("a,o f64 n; n i32", "i:64"),
    ),
    "complex": ("i<n", "o[i] = 2j*a[i]*conj(a[i]) + real(a[i])", "a,o c64 n; n i32", "i:64"),
    "argmax": (
        *(_NM, "hi[i], at[i] = argmax(j, fabs(a[i, j]), j)"),
        *("a f64 n,m; hi f64 n; at i32 n; n,m i32", "i:32"),
    ),
    "maximum": (_NM, "o[i] = max(j, a[i, j])", "a f64 n,m; o f64 n; n,m i32", "i:32"),
    "any": (_NM, "o[i] = reduce(any, j, a[i, j])", "a i32 n,m; o i32 n; n,m i32", "i:32"),
    "product": (_NM, "o[i] = product(j, a[i, j])", "a f32 n,m; o f32 n; n,m i32", "i:32"),
    "rotated": (_NM, "o[i, j] = a[(i + 2) % n, (j + 3) % m]", "a,o f32 n,m; n,m i32", "j:32"),
    "uneven": (_NM, "o[i, j] = a[i, (i*j) % m] + a[i, j // 3]", "a,o f32 n,m; n,m i32", "j:32"),
    "global_barrier": (
        "i<n, j<n",
        """
        u[i] = 2*v[i] {id=first}
        ... gbarrier {id=wait, dep=first}
        w[j] = u[n - 1 - j] + 1 {id=second, dep=wait}
        """,
        *("u,v,w f32 n; n i32", "i:32 j:32"),
    ),
    "two_stage_sum": (
        ["g<n, l<64, s<4", "h<n"],
        """
        part[g] = sum(l, sum(s, x[256*g + 64*s + l])) {id=part}
        ... gbarrier {id=wait, dep=part}
        o[0] = sum(h, part[h]) {dep=wait}
        """,
        *("x f64 256*n; o f64 1; part f64 n; n i32", ""),
    ),
    "sparse_matvec": (
        ["i<n", "j<len"],
        """
        for i
            <> first = starts[i] {id=first}
            <> len = starts[i + 1] - first {id=len, dep=first}
            y[i] = sum(j, values[first + j]*x[columns[first + j]]) {dep=len}
        end
        """,
        "values f64 nnz; columns i32 nnz; starts i32 n+1; x,y f64 n; n,nnz i32",
        "i:128",
    ),
}
_TAGS = {"unrolled": "j:unr", "two_stage_sum": "g:g.0, l:l.0"}
_SIZES = {"two_stage_sum": {"n": 64}, "sparse_matvec": {"n": 1000, "nnz": 9000}}


def _simple(name: str) -> Any:
    loops, body, arguments, split = _SIMPLE[name]
    return made(loops, body, arguments, split=split, tags=_TAGS.get(name))


_N, _SMALL = {"n": 1024}, {"n": 256, "m": 96}
UNITS: list[Unit] = [
    *(
        (name, partial(_simple, name), _SIZES.get(name, _SMALL if "n,m i32" in arguments else _N))
        for name, (_, _, arguments, _) in _SIMPLE.items()
    ),
    ("slabs", _slabs, _N),
    ("matmul_prefetched", partial(_prefetched, tile=16, chunk=16), _N),
    ("matmul_prefetched_narrow", partial(_prefetched, tile=8, chunk=4), _N),
    ("rank_one", partial(_rank_one, is_prefetched=False), _N),
    ("rank_one_prefetched", partial(_rank_one, is_prefetched=True), _N),
    ("image_filter", _image, {"n": 256, "m": 128}),
    ("batched_matvec", _batched, _N),
    ("stencil_prefetched", _stencil, _N),
    ("scan", partial(_scanned, is_local=False), {}),
    ("scan_local", partial(_scanned, is_local=True), {}),
    ("precomputed", _precomputed, _N),
]
