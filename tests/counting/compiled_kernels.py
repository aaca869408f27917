"""Small kernels, each for one rule of the compiler's view or one limit of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import loopy as lp
import numpy as np

Build = Callable[[], Any]

SQUARE = "{ [i, j] : 0 <= i, j < n }"
CUBE = "{ [i, j, k] : 0 <= i, j, k < n }"


def _make(
    domains: Any, body: str, arrays: Mapping[str, Any], *more: Any, dtype: Any = np.float32
) -> Any:
    """Make a kernel of one parallel loop, in work groups of four."""
    arguments: list[Any] = [lp.GlobalArg(names, dtype, shape=s) for names, s in arrays.items()]
    return lp.make_kernel(
        domains,
        body,
        [*arguments, *more, lp.ValueArg("n", np.int32), ...],
        assumptions="n >= 1",
        lang_version=(2018, 2),
    )


def _spread(t_unit: Any) -> Any:
    return lp.split_iname(t_unit, "i", 4, outer_tag="g.0", inner_tag="l.0")


def _kernel(domains: Any, body: str, arrays: Mapping[str, Any], *more: Any) -> Build:
    return lambda: _spread(_make(domains, body, arrays, *more))


def _line(body: str, arrays: str, **more: Any) -> Build:
    return _kernel("{ [i] : 0 <= i < n }", body, {arrays: "n", **more})


SCALARS = lp.ValueArg("s,t", np.float32)
VECTORS = {"a,b,c,d": "n"}
MATRIX = {"c": ("n", "n"), "a,b": "n"}


def _tagged(build: Build, tags: Mapping[str, str]) -> Build:
    return lambda: lp.tag_inames(build(), dict(tags))


def _double_sum() -> Any:
    kernel = lp.make_kernel(
        "{ [i] : 0 <= i < n }",
        "c[i] = a[i]*b[i] + c[i]",
        [
            lp.GlobalArg("a,b", np.float32, shape="n"),
            lp.GlobalArg("c", np.float64, shape="n"),
            lp.ValueArg("n", np.int32),
        ],
        assumptions="n >= 1",
        lang_version=(2018, 2),
    )
    return _spread(kernel)


def _gathered() -> Any:
    indices = lp.GlobalArg("where", np.int32, shape="n")
    return _spread(_make(SQUARE, "c[i] = sum(j, a[where[i]]*b[j])", {"a,b,c": "n"}, indices))


def _sequential() -> Any:
    return _make(SQUARE, "c[i, j] = a[i]*b[j] + a[i]", MATRIX)


def _row_by_row() -> Any:
    kernel = _make(CUBE, "c[i, j] = c[i, j] + a[i, k]*b[k, j]", {"a,b,c": ("n", "n")})
    return lp.prioritize_loops(kernel, "i,k,j")


def _in_groups(body: str, assumptions: str = "n >= 4 and n mod 4 = 0") -> Build:
    """Make a kernel with a local array of four, one element per item."""

    def build() -> Any:
        kernel = lp.make_kernel(
            "{ [g, l, j] : 0 <= g and 4*g + l < n and 0 <= l < 4 and 0 <= j < n }",
            body,
            [
                lp.GlobalArg("a,b,c,d", np.float32, shape="n"),
                lp.ValueArg("n", np.int32),
                lp.TemporaryVariable(
                    "tile", np.float32, shape=(4,), address_space=lp.AddressSpace.LOCAL
                ),
            ],
            assumptions=assumptions,
            lang_version=(2018, 2),
        )
        return lp.tag_inames(kernel, {"g": "g.0", "l": "l.0"})

    return build


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
TWO_IN_SEQUENCE = """
for i
    c[i] = a[i]*b[i] {{id=first{first}}}
    d[i] = a[i]*b[i] {{dep=first{second}}}
end
"""
GUARDED_AND_NOT = """
for i, j
    d[i, j] = b[j] {{id=first}}
    c[i, j] = {value}*b[j] {{if={condition}, dep=first}}
end
"""
UNROLLED = {"a,c": "n", "b": 4}
ROWS_OF_FOUR = {"a,d": "n", "b": 4, "c": ("n", 4)}
FOUR_SUMS = "{ [i, j, k] : 0 <= i, k < n and 0 <= j < 4 }"

KERNELS: dict[str, Build] = {
    # rules 1 and 2: values that are there
    "square": _line("c[i] = (a[i]*2 + b[i])**2", "a,b,c"),
    "shared prefix": _line("c[i] = (a[i] + b[i] + d[i])*(b[i] + a[i] + e[i])", "a,b,c,d,e"),
    "two instructions": _line(
        "c[i] = a[i]*b[i] {id=first}\nd[i] = a[i]*b[i] + c[i] {dep=first}", "a,b,c,d"
    ),
    "named value": _line(
        """
        <> z = a[i]*2 {id=z}
        c[i] = z*b[i] {id=c, dep=z}
        d[i] = a[i]*2*b[i] + 1 {dep=c}
        """,
        "a,b,c,d",
    ),
    "new value of a name": _line(
        """
        <> z = a[i]*2 {id=z}
        c[i] = z*b[i] + z*b[i] {id=c, dep=z}
        z = b[i] {id=again, dep=c}
        d[i] = z*b[i] {dep=again}
        """,
        "a,b,c,d",
    ),
    "condition, then none": _line(TWO_IN_SEQUENCE.format(first=", if=i>3", second=""), "a,b,c,d"),
    "none, then condition": _line(TWO_IN_SEQUENCE.format(first="", second=", if=i>3"), "a,b,c,d"),
    "same condition": _line(TWO_IN_SEQUENCE.format(first=", if=i>3", second=", if=i>3"), "a,b,c,d"),
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
    "conversion between": _double_sum,
    "squares": _line("c[i] = a[i]**2 + b[i]**2 + d[i]", "a,b,c,d"),
    # rules 4 and 5: invariants
    "invariant load": _kernel(SQUARE, "c[i] = sum(j, a[i]*b[j])", VECTORS),
    "invariant product": _kernel(SQUARE, "c[i] = sum(j, a[i]*2*b[j])", VECTORS),
    "product in the wrong order": _kernel(SQUARE, "c[i] = sum(j, b[j]*a[i]*s)", VECTORS, SCALARS),
    "loop empty for some": _kernel(
        "{ [i, j] : 0 <= i < n and 0 <= j < i }", "c[i] = sum(j, a[i]*b[j])", VECTORS
    ),
    "two loops around": _kernel(CUBE, "c[i] = sum([j, k], a[i]*b[j]*d[k])", VECTORS),
    "inner loop begins empty": _kernel(
        ["{ [i] : 0 <= i < n }", "{ [j] : 0 <= j < n }", "{ [k] : 0 <= k < j }"],
        "c[i] = sum(j, b[j] + sum(k, a[i]*d[k]))",
        VECTORS,
    ),
    "speculated in inner loop": _kernel(
        ["{ [i] : 0 <= i < n }", "{ [j] : 0 <= j < n }", "{ [k] : 0 <= k < j }"],
        "c[i] = sum(j, b[j] + sum(k, s*t*d[k]))",
        VECTORS,
        SCALARS,
    ),
    "two loops in sequence": _kernel(
        CUBE, "c[i] = sum(j, a[i]*b[j])\ne[i] = sum(k, a[i]*d[k])", {"a,b,c,d,e": "n"}
    ),
    "store to another array": _kernel(SQUARE, "c[i, j] = a[i]*b[j]", MATRIX),
    "condition changes": _kernel(SQUARE, "c[i, j] = a[i]*b[j] {if=j>2}", MATRIX),
    "condition does not change": _kernel(SQUARE, "c[i, j] = a[i]*b[j] {if=i>2}", MATRIX),
    "condition on one of two": _kernel(
        SQUARE,
        GUARDED_AND_NOT.format(value="a[i]", condition="i>2"),
        {"c,d": ("n", "n"), "a,b": "n"},
    ),
    "speculated under a condition": _kernel(
        SQUARE,
        GUARDED_AND_NOT.format(value="s*t", condition="j>2"),
        {"c,d": ("n", "n"), "b": "n"},
        SCALARS,
    ),
    "condition in an expression": _kernel(
        SQUARE, "c[i] = sum(j, a[i]/3*b[j] if j > 1 else b[j])", VECTORS
    ),
    "function": _kernel(SQUARE, "c[i] = sum(j, exp(a[i])*b[j])", VECTORS),
    "address from data": _gathered,
    "no hardware axis": _sequential,
    "three sequential loops": _row_by_row,
    "local array": _in_groups(TILE_BEFORE_LOOP),
    "loop with barriers": _in_groups(TILE_IN_LOOP),
    "loop with barriers, partial groups": _in_groups(TILE_IN_LOOP, "n >= 1"),
    "private array": _kernel(
        FOUR_SUMS,
        """
        for i
            for j
                <> z[j] = a[i, j]*2 {id=z}
            end
            for k
                c[i, k] = z[1]*z[2]*b[k] {dep=z}
            end
        end
        """,
        {"a": ("n", 4), "b": "n", "c": ("n", "n")},
    ),
    # rule 6: accumulators in memory
    "accumulator": _kernel(SQUARE, "c[i] = c[i] + a[i]*b[j] {inames=i:j}", VECTORS),
    "accumulator per column": _kernel(
        CUBE, "c[i, j] = c[i, j] + a[i, k]*b[k, j]", {"a,b,c": ("n", "n")}
    ),
    "accumulator under a condition": _kernel(
        SQUARE, "c[i] = c[i] + a[i]*b[j] {inames=i:j, if=j>2}", VECTORS
    ),
    # rule 7: unrolled loops
    "unrolled": _tagged(
        _kernel("{ [i, j] : 0 <= i < n and 0 <= j < 4 }", "c[i] = sum(j, a[i]*b[j])", UNROLLED),
        {"j": "unr"},
    ),
    "unrolled stores": _tagged(
        _kernel("{ [i, j] : 0 <= i < n and 0 <= j < 4 }", "c[i, j] = a[i]*b[j]", ROWS_OF_FOUR),
        {"j": "unr"},
    ),
    "loop in an unrolled one": _tagged(
        _kernel(FOUR_SUMS, "c[i, j] = sum(k, a[i]*b[j]*d[k])", ROWS_OF_FOUR), {"j": "unr"}
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
    "straight into a branch": _line(
        """
        <> z = a[i] + b[i] {id=z}
        c[i] = (exp(z) if i > 3 else b[i]) {dep=z}
        """,
        "a,b,c",
    ),
    "guarded store": _line(
        """
        <> z = a[i]*b[i] {id=z}
        c[i] = z {dep=z, if=i>3}
        """,
        "a,b,c",
    ),
    "load in the other branch": _line(
        """
        <> z = a[i] + b[i] {id=z}
        c[i] = (-z if i > 3 else d[i]) {dep=z}
        """,
        "a,b,c,d",
    ),
    "no branch, but a choice": _line(
        """
        <> z = a[i] + b[i] {id=z}
        c[i] = (-z if i > 3 else 0) {dep=z}
        """,
        "a,b,c",
    ),
}


def _tiles_that_do_not_divide() -> Any:
    kernel = lp.split_iname(KERNELS["invariant load"](), "j", 3)
    return lp.prioritize_loops(kernel, "j_inner,j_outer")


LOWER_BOUNDS: dict[str, Build] = {"tiles that do not divide": _tiles_that_do_not_divide}
"""Kernels of which a compiler leaves more, since it does not see that loops are never empty."""

BOUNDS: dict[str, Build] = {
    "addresses that differ": _kernel(
        SQUARE, "a[i, j + 1] = a[i, 0]*b[j] {inames=i:j}", {"a": ("n", "n + 1"), "b": "n"}
    ),
    "value on some paths": _kernel(
        ["{ [i] : 0 <= i < n }", "{ [j] : 0 <= j < n }", "{ [k] : 0 <= k < m }"],
        "c[i] = sum(j, b[j] + sum(k, b[j]*d[k]))",
        {"b,c": "n", "d": "m"},
        lp.ValueArg("m", np.int32),
    ),
    "store before a branch": _line(
        """
        <> y = a[i] {id=y}
        <> z = y + b[i] {id=z, dep=y}
        d[i] = b[i] {id=d, dep=z}
        c[i] = (exp(z) if i > 3 else 0) {dep=d}
        """,
        "a,b,c,d",
    ),
    "never used": _line("<> z = a[i]*b[i] {id=z}\nc[i] = b[i] {dep=z}", "a,b,c"),
}
"""Kernels of which a compiler leaves less, in ways that are not modeled."""
