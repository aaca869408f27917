"""Small kernels, each for one rule of the compiler's view or one limit of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import loopy as lp

from tests.kernels import made

Build = Callable[[], Any]

SQUARE, CUBE = "i<n, j<n", "i<n, j<n, k<n"


def _kernel(loops: Any, body: str, arguments: str, **options: Any) -> Build:
    """Make a kernel of one parallel loop, in work groups of four."""
    more: dict[str, Any] = {"split": "i:4", **options}
    return lambda: made(loops, body, f"{arguments}; n i32", **more)


def _line(body: str, names: str) -> Build:
    return _kernel("i<n", body, f"{names} f32 n")


def _steps(names: str, *steps: str) -> Build:
    return _kernel("i<n", "\n".join(steps), f"{names} f32 n", seq_dependencies=True)


VECTORS = "a,b,c,d f32 n"
SCALED = "a,b,c,d f32 n; s,t f32"
MATRIX = "c f32 n,n; a,b f32 n"
MATRICES = "a,b,c f32 n,n"


def _row_by_row() -> Any:
    kernel = _kernel(CUBE, "c[i, j] = c[i, j] + a[i, k]*b[k, j]", MATRICES, split="")()
    return lp.prioritize_loops(kernel, "i,k,j")


def _in_groups(body: str, assumptions: str = "n >= 4 and n mod 4 = 0") -> Build:
    """Make a kernel with a local array of four, one element per item."""
    return _kernel(
        "{ [g, l, j] : 0 <= g and 4*g + l < n and 0 <= l < 4 and 0 <= j < n }",
        body,
        f"{VECTORS}; tile f32 4 local",
        split="",
        assumptions=assumptions,
        tags={"g": "g.0", "l": "l.0"},
    )


TILE_BEFORE_LOOP = """
for g, l
    tile[l] = a[4*g + l] {id=fill}
    ... lbarrier {id=wait, dep=fill}
    c[4*g + l] = sum(j, tile[3 - l]*b[j]) {dep=wait}
end
"""
TILE_IN_LOOP = """
for g, l
    <float32> total = 0 {id=start}
    for j
        tile[l] = a[4*g + l]*b[j] {id=fill, dep=start}
        total = total + tile[3 - l]*d[4*g + l] {id=use, dep=fill}
    end
    c[4*g + l] = total {dep=use}
end
"""
LOAD_AFTER_BARRIER = """
for g, l
    tile[l] = a[4*g + l] {id=fill}
    ... lbarrier {id=wait, dep=fill}
    c[4*g + l] = tile[3 - l]*a[4*g + l] {dep=wait}
end
"""
GUARDED_AND_NOT = """
for i, j
    d[i, j] = b[j] {{id=first}}
    c[i, j] = {value}*b[j] {{if={condition}, dep=first}}
end
"""
ROWS_OF_FOUR = "a,d f32 n; b f32 4; c f32 n,4"
FOUR_SUMS = "i<n, j<4, k<n"

KERNELS: dict[str, Build] = {
    # rules 1 and 2: values that are there
    "square": _line("c[i] = (a[i]*2 + b[i])**2", "a,b,c"),
    "shared prefix": _line("c[i] = (a[i] + b[i] + d[i])*(b[i] + a[i] + e[i])", "a,b,c,d,e"),
    "two instructions": _steps("a,b,c,d", "c[i] = a[i]*b[i]", "d[i] = a[i]*b[i] + c[i]"),
    "named value": _steps("a,b,c,d", "<> z = a[i]*2", "c[i] = z*b[i]", "d[i] = a[i]*2*b[i] + 1"),
    "new value of a name": _steps(
        "a,b,c,d", "<> z = a[i]*2", "c[i] = z*b[i] + z*b[i]", "z = b[i]", "d[i] = z*b[i]"
    ),
    "condition, then none": _steps("a,b,c,d", "c[i] = a[i]*b[i] {if=i>3}", "d[i] = a[i]*b[i]"),
    "none, then condition": _steps("a,b,c,d", "c[i] = a[i]*b[i]", "d[i] = a[i]*b[i] {if=i>3}"),
    "same condition": _steps("a,b,c,d", "c[i] = a[i]*b[i] {if=i>3}", "d[i] = a[i]*b[i] {if=i>3}"),
    "same branches": _line(
        "c[i] = (a[i]*b[i] if i > 3 else d[i]) + (a[i]*b[i] if i > 3 else d[i])", "a,b,c,d"
    ),
    "two sums over one loop": _kernel(
        SQUARE, "c[i] = sum(j, a[j]*b[j]) + sum(j, d[j]*b[j])", VECTORS
    ),
    "read-only array after a barrier": _in_groups(LOAD_AFTER_BARRIER),
    # rule 3: contraction
    "sum of products": _line("c[i] = a[i]*b[i] + c[i]*d[i] + b[i]*d[i] - a[i]*c[i]", "a,b,c,d"),
    "differences of products": _line("e[i] = (c[i] - a[i]*b[i])/(a[i]*d[i] - b[i])", "a,b,c,d,e"),
    "negative first": _line("c[i] = -a[i] + b[i]*d[i]", "a,b,c,d"),
    "product fused and not": _line("c[i] = (a[i]*b[i] + d[i])/(a[i]*b[i])", "a,b,c,d"),
    "conversion between": _kernel("i<n", "c[i] = a[i]*b[i] + c[i]", "a,b f32 n; c f64 n"),
    "squares": _line("c[i] = a[i]**2 + b[i]**2 + d[i]", "a,b,c,d"),
    # rules 4 and 5: invariants
    "invariant load": _kernel(SQUARE, "c[i] = sum(j, a[i]*b[j])", VECTORS),
    "invariant product": _kernel(SQUARE, "c[i] = sum(j, a[i]*2*b[j])", VECTORS),
    "product in the wrong order": _kernel(SQUARE, "c[i] = sum(j, b[j]*a[i]*s)", SCALED),
    "loop empty for some": _kernel(
        "{ [i, j] : 0 <= i < n and 0 <= j < i }", "c[i] = sum(j, a[i]*b[j])", VECTORS
    ),
    "two loops around": _kernel(CUBE, "c[i] = sum([j, k], a[i]*b[j]*d[k])", VECTORS),
    "inner loop begins empty": _kernel(
        ["i<n", "j<n", "k<j"], "c[i] = sum(j, b[j] + sum(k, a[i]*d[k]))", VECTORS
    ),
    "speculated in inner loop": _kernel(
        ["i<n", "j<n", "k<j"], "c[i] = sum(j, b[j] + sum(k, s*t*d[k]))", SCALED
    ),
    "two loops in sequence": _kernel(
        CUBE, "c[i] = sum(j, a[i]*b[j])\ne[i] = sum(k, a[i]*d[k])", "a,b,c,d,e f32 n"
    ),
    "store to another array": _kernel(SQUARE, "c[i, j] = a[i]*b[j]", MATRIX),
    "condition changes": _kernel(SQUARE, "c[i, j] = a[i]*b[j] {if=j>2}", MATRIX),
    "condition does not change": _kernel(SQUARE, "c[i, j] = a[i]*b[j] {if=i>2}", MATRIX),
    "condition on one of two": _kernel(
        SQUARE, GUARDED_AND_NOT.format(value="a[i]", condition="i>2"), "c,d f32 n,n; a,b f32 n"
    ),
    "speculated under a condition": _kernel(
        SQUARE,
        GUARDED_AND_NOT.format(value="s*t", condition="j>2"),
        "c,d f32 n,n; b f32 n; s,t f32",
    ),
    "condition in an expression": _kernel(
        SQUARE, "c[i] = sum(j, a[i]/3*b[j] if j > 1 else b[j])", VECTORS
    ),
    "function": _kernel(SQUARE, "c[i] = sum(j, exp(a[i])*b[j])", VECTORS),
    "address from data": _kernel(
        SQUARE, "c[i] = sum(j, a[where[i]]*b[j])", "a,b,c f32 n; where i32 n"
    ),
    "no hardware axis": _kernel(SQUARE, "c[i, j] = a[i]*b[j] + a[i]", MATRIX, split=""),
    "three sequential loops": _row_by_row,
    "local array": _in_groups(TILE_BEFORE_LOOP),
    "loop with barriers": _in_groups(TILE_IN_LOOP),
    "loop with barriers, partial groups": _in_groups(TILE_IN_LOOP, "n >= 1"),
    "private array": _kernel(
        FOUR_SUMS,
        """
        for i
            for j
                z[j] = a[i, j]*2 {id=z}
            end
            for k
                c[i, k] = z[1]*z[2]*b[k] {dep=z}
            end
        end
        """,
        "a f32 n,4; z f32 4 -; b f32 n; c f32 n,n",
    ),
    # rule 6: accumulators in memory
    "accumulator": _kernel(SQUARE, "c[i] = c[i] + a[i]*b[j] {inames=i:j}", VECTORS),
    "accumulator per column": _kernel(CUBE, "c[i, j] = c[i, j] + a[i, k]*b[k, j]", MATRICES),
    "accumulator under a condition": _kernel(
        SQUARE, "c[i] = c[i] + a[i]*b[j] {inames=i:j, if=j>2}", VECTORS
    ),
    # rule 7: unrolled loops
    "unrolled": _kernel("i<n, j<4", "c[i] = sum(j, a[i]*b[j])", "a,c f32 n; b f32 4", tags="j:unr"),
    "unrolled stores": _kernel("i<n, j<4", "c[i, j] = a[i]*b[j]", ROWS_OF_FOUR, tags="j:unr"),
    "loop in an unrolled one": _kernel(
        FOUR_SUMS, "c[i, j] = sum(k, a[i]*b[j]*d[k])", ROWS_OF_FOUR, tags="j:unr"
    ),
    # rule 8: divisors and powers
    "divisors": _line("c[i] = a[i]/4 + b[i]/3", "a,b,c"),
    "cube": _line("c[i] = a[i]**2*b[i] + (a[i] + 1)**3", "a,b,c"),
    "powers": _line("c[i] = a[i]**4 + b[i]**7 + d[i]**8", "a,b,c,d"),
    "factors of one": _line("c[i] = 1.0*a[i]*b[i] + d[i]/1 + (a[i]*b[i]*1 + d[i])", "a,b,c,d"),
    "divisors of minus one": _line("c[i] = a[i]/(-1) + b[i]*(3 - 2) + b[i]/(3 - 2)", "a,b,c"),
    "terms of zero": _line("c[i] = (a[i] - 0.0)*b[i] + 0.0 + (0.0 - d[i])", "a,b,c,d"),
    "products beside zero": _line("c[i] = -0.0 + a[i]*b[i] + d[i]*(a[i]*d[i] - 0.0)", "a,b,c,d"),
    "reciprocal powers": _line("c[i] = a[i]**(-1) + b[i]**(-3) + d[i]**(-2)", "a,b,c,d"),
    # rule 9: what feeds one branch
    "distances of others": _kernel(
        SQUARE,
        """
        for i
            <> t = 0 {id=begin}
            for j
                <> z = a[i] - b[j] {id=z}
                <> r = z*z {id=r, dep=z}
                t = t + (rsqrt(r) if i != j else 0) {id=add, dep=begin:r}
            end
            c[i] = t {dep=add}
        end
        """,
        VECTORS,
    ),
    "branch and more": _kernel(
        SQUARE,
        """
        for i
            <> t = 0 {id=begin}
            for j
                <> z = a[i] - b[j] {id=z}
                t = t + (exp(z*d[i]) if i != j else 0) + z {id=add, dep=begin:z}
            end
            c[i] = t {dep=add}
        end
        """,
        VECTORS,
    ),
    "straight into a branch": _steps(
        "a,b,c", "<> z = a[i] + b[i]", "c[i] = (exp(z) if i > 3 else b[i])"
    ),
    "guarded store": _steps("a,b,c", "<> z = a[i]*b[i]", "c[i] = z {if=i>3}"),
    "load in the other branch": _steps(
        "a,b,c,d", "<> z = a[i] + b[i]", "c[i] = (-z if i > 3 else d[i])"
    ),
    "no branch, but a choice": _steps("a,b,c", "<> z = a[i] + b[i]", "c[i] = (-z if i > 3 else 0)"),
}


def _tiles_that_do_not_divide() -> Any:
    kernel = lp.split_iname(KERNELS["invariant load"](), "j", 3)
    return lp.prioritize_loops(kernel, "j_inner,j_outer")


LOWER_BOUNDS: dict[str, Build] = {"tiles that do not divide": _tiles_that_do_not_divide}
"""Kernels of which a compiler leaves more, since it does not see that loops are never empty."""

BOUNDS: dict[str, Build] = {
    "addresses that differ": _kernel(
        SQUARE, "a[i, j + 1] = a[i, 0]*b[j] {inames=i:j}", "a f32 n,n+1; b f32 n"
    ),
    "value on some paths": _kernel(
        ["i<n", "j<n", "k<m"],
        "c[i] = sum(j, b[j] + sum(k, b[j]*d[k]))",
        "b,c f32 n; d f32 m; m i32",
    ),
    "store before a branch": _steps(
        "a,b,c,d",
        "<> y = a[i]",
        "<> z = y + b[i]",
        "d[i] = b[i]",
        "c[i] = (exp(z) if i > 3 else 0)",
    ),
    "never used": _line("<> z = a[i]*b[i] {id=z}\nc[i] = b[i] {dep=z}", "a,b,c"),
}
"""Kernels of which a compiler leaves less, in ways that are not modeled."""
