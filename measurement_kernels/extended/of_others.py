"""Classes for what kernels of other projects do: one group, einsum nests, blocks, cache borders."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import reduce

from measurement_kernels.arguments import SizeParameter, Sizes, arrays
from measurement_kernels.entry import CatalogEntry
from measurement_kernels.groups import GroupShape
from measurement_kernels.loopy_kernels import Arrays, LoopyKernel, Results, in_f64, mapped
from measurement_kernels.nests import Nest, operator_nest
from measurement_kernels.paper import product
from measurement_kernels.programs import Recurrence

# --- one group: kernels that nobody transformed

_SERIES = reduce(lambda text, _: f"(0.25 + {text} * x[i])", range(7), "x[i]")
_NINE = " + ".join(f"0.1 * x[i+{p}, j+{q}]" for p in range(3) for q in range(3))
_BILINEAR = Nest(
    "e:n i:7 j:7 k:7",
    "t[7, 7, 7], u[n, 7], v[n, 7], output r[n, 7]",
    "r[e, i] = sum j k: t[i, j, k] * u[e, j] * v[e, k]",
)

_ONE_GROUP = {
    "scaled-sum": Nest("i:n", "x[n], y[n], output r[n]", "r[i] = 1.5 * x[i] + y[i]"),
    "row-sums": Nest("i:n j:300", "a[n, 300], output r[n]", "r[i] = sum j: a[i, j]"),
    "column-sums": Nest(
        "i:n k:64", "a[64, n], output r[n]", "r[i] = sum k: a[k, i]", element_type="f32"
    ),
    "product": Nest(
        "i:n j:48 k:40",
        "a[n, 40], b[40, 48], output r[n, 48]",
        "r[i, j] = sum k: a[i, k] * b[k, j]",
    ),
    "product-of-transposes": Nest(
        "i:n j:32 k:56",
        "a[56, n], b[32, 56], output r[n, 32]",
        "r[i, j] = sum k: a[k, i] * b[j, k]",
        element_type="f32",
    ),
    "operator-6": operator_nest(6),
    "operator-24": operator_nest(24, element_type="f32"),
    "operator-56": operator_nest(56),
    "bilinear": _BILINEAR,
    "matrices": Nest(
        "e:n i:5 j:5 k:5",
        "a[n, 5, 5], b[n, 5, 5], output r[n, 5, 5]",
        "r[e, i, j] = sum k: a[e, i, k] * b[e, k, j]",
    ),
    "three-points": Nest("i:n", "x[n + 2], output r[n]", "r[i] = x[i] - 2.0 * x[i+1] + x[i+2]"),
    "nine-points": Nest(
        "i:n j:120", "x[n + 2, 122], output r[n, 120]", f"r[i, j] = {_NINE}", element_type="f32"
    ),
    "series": Nest("i:n", "x[n], output r[n]", f"r[i] = {_SERIES}"),
    "quotients": Nest(
        "i:n", "x[n], y[n], output r[n]", "r[i] = x[i] / (y[i] * y[i] + 1.5)", element_type="f32"
    ),
    "roots": Nest("i:n", "x[n], y[n], output r[n]", "r[i] = sqrt(x[i] * x[i] + y[i] * y[i])"),
    "exponentials": Nest(
        "i:n", "x[n], output r[n]", "r[i] = exp(-x[i] * x[i])", element_type="f32"
    ),
    "outer": Nest("i:n j:70", "x[n], y[70], output r[n, 70]", "r[i, j] = x[i] * y[j]"),
    "turned": Nest("i:n j:90", "x[n, 90], output r[90, n]", "r[j, i] = x[i, j] + 1.0"),
    "two-results": Nest(
        "i:n",
        "x[2, n], y[2, n], output r[n], output s[n]",
        (
            "r[i] = x[0, i] * y[0, i] - x[1, i] * y[1, i]",
            "s[i] = x[0, i] * y[1, i] + x[1, i] * y[0, i]",
        ),
    ),
    "largest": Nest(
        "i:n k:110",
        "a[n, 110], output r[n]",
        Recurrence("r[i]", (("0.0", "fmax(s0, fabs(a[i, k]))"),), "k", "s0"),
    ),
    "decay": Nest(
        "i:n k:80",
        "a[n, 80], output r[n]",
        Recurrence("r[i]", (("0.0", "0.75 * s0 + a[i, k]"),), "k", "s0"),
        element_type="f32",
    ),
    "quotient-chain": Nest(
        "i:n k:60",
        "a[n, 60], output r[n]",
        Recurrence("r[i]", (("1.0", "a[i, k] / (1.5 + s0 * s0)"),), "k", "s0"),
    ),
    "rows-by-items": Nest(
        "e:n i:64 j:20",
        "m[64, 20], u[n, 20], output r[n, 64]",
        "r[e, i] = sum j: m[i, j] * u[e, j]",
        items="i:64",
    ),
    "lines-by-items": Nest(
        "e:n i:128", "x[n, 128], output r[n, 128]", "r[e, i] = 2.0 * x[e, i]", "i:128"
    ),
}


def one_group() -> Iterator[CatalogEntry]:
    """List ``one-group``."""
    for variant, nest in _ONE_GROUP.items():
        yield nest.entry("one-group", variant)


# --- einsums over elements, in groups that need not divide their number

_EINSUMS = {
    "operator-12": operator_nest(12, "e:32"),
    "operator-20": operator_nest(20, "e:64", element_type="f32"),
    "operator-56": operator_nest(56, "e:16"),
    "points-20": operator_nest(20, "i:20", "e"),
    "points-48": operator_nest(48, "i:16", "e", element_type="f32"),
    "elements-and-points": operator_nest(20, "i:20 e:8"),
    "gradients": Nest(
        "e:n r:3 i:15 j:15",
        "d[3, 15, 15], u[n, 15], output g[3, n, 15]",
        "g[r, e, i] = sum j: d[r, i, j] * u[e, j]",
        "e:32",
    ),
    "scaled-gradients": Nest(
        "e:n r:2 i:15 j:15",
        "d[2, 15, 15], w[2, n], u[n, 15], output g[n, 15]",
        "g[e, i] = sum r j: w[r, e] * d[r, i, j] * u[e, j]",
        "e:128",
        element_type="f32",
    ),
    "lifting": Nest(
        "e:n i:15 f:3 j:5",
        "l[15, 3, 5], v[n, 3, 5], output r[n, 15]",
        "r[e, i] = sum f j: l[i, f, j] * v[e, f, j]",
        "i:15 e:4",
    ),
    "bilinear": replace(_BILINEAR, items="e:64"),
    "matrices": Nest(
        "e:n i:6 j:6 k:6",
        "a[n, 6, 6], b[n, 6, 6], output r[n, 6, 6]",
        "r[e, i, j] = sum k: a[e, i, k] * b[e, k, j]",
        "e:32",
    ),
    "matrices-by-points": Nest(
        "e:n i:12 j:12 k:12",
        "a[n, 12, 12], b[n, 12, 12], output r[n, 12, 12]",
        "r[e, i, j] = sum k: a[e, i, k] * b[e, k, j]",
        "j:12 i:12",
        "e",
        element_type="f32",
    ),
    "element-norms": Nest(
        "e:n j:20", "u[n, 20], output r[n]", "r[e] = sum j: u[e, j] * u[e, j]", "e:64"
    ),
    "moments": Nest(
        "e:n i:4 j:20",
        "p[4, 20], w[n, 20], u[n, 20], output r[4, n]",
        "r[i, e] = sum j: p[i, j] * w[e, j] * u[e, j]",
        "e:32",
    ),
}


def einsums() -> Iterator[CatalogEntry]:
    """List ``element-einsums``."""
    for variant, nest in _EINSUMS.items():
        yield nest.entry("element-einsums", variant)


# --- products whose items hold a block of results in registers, and load operands into others


@dataclass(frozen=True, slots=True)
class Block:
    """Rows and columns of an item's block, and where they lie."""

    rows: int  # results of an item
    columns: int
    lanes_apart: bool  # whether columns of neighboring items lie side by side, an item's far apart
    transposed: bool  # whether the first factor is stored column by column
    group: GroupShape  # items of a group
    element_type: str  # type of the numbers

    @property
    def variant(self) -> str:
        """Name in the catalogue."""
        words = [f"{self.rows}x{self.columns}"]
        words += ["apart"] * self.lanes_apart + ["transposed"] * self.transposed
        return "-".join(words)

    def kernel(self, family: str, **attributes: object) -> LoopyKernel:
        """Return the product of matrices; attributes are those of `LoopyKernel`."""
        p, q = self.rows, self.columns
        column = "{}*m + j" if self.lanes_apart else f"{q}*j + {{}}"
        factor, left = f"a[{p}*n, l]", f"a[{p}*i + p0, k]"
        if self.transposed:
            factor, left = f"a[l, {p}*n]", f"a[k, {p}*i + p0]"
        return LoopyKernel(
            family=family,
            variant=self.variant,
            groups=(self.group,),
            element_types=(self.element_type,),
            exponents=range(9),
            exponent_steps=(0, 3),
            sizes=_block_sizes,
            arguments=arrays(f"{factor}, b[l, {q}*m], output c[{p}*n, {q}*m]"),
            check={"n": 2, "m": 3, "l": 7},
            domain=(
                "{ [i, j, k] : 0 <= i < n and 0 <= j < m and 0 <= k < l }",
                f"{{ [p, p0, p1, p2] : 0 <= p, p0, p1, p2 < {p} }}",
                f"{{ [q, q0, q1, q2] : 0 <= q, q0, q1, q2 < {q} }}",
            ),
            instructions=f"""
                for i, j
                    <real> sum[p, q] = 0.0 {{id=clear}}
                    for k
                        <real> left[p0] = {left} {{id=left, dep=clear}}
                        <real> right[q0] = b[k, {column.format("q0")}] {{id=right, dep=clear}}
                        sum[p1, q1] = sum[p1, q1] + left[p1]*right[q1] {{id=add, dep=left:right}}
                    end
                    c[{p}*i + p2, {column.format("q2")}] = sum[p2, q2] {{dep=add}}
                end
            """,
            transform=mapped(i=1, j=0, unrolled="p p0 p1 p2 q q0 q1 q2"),
            expected=_transposed_product if self.transposed else product,
            **attributes,  # pyright: ignore[reportArgumentType]
        )


def _block_sizes(group: GroupShape) -> tuple[SizeParameter, ...]:
    columns, rows = group
    return (
        SizeParameter("n", rows, base=rows),
        SizeParameter("m", columns, base=4 * columns, thirds=1),
        SizeParameter("l", base=90, thirds=1),
    )


def _transposed_product(arguments: Arrays, sizes: Sizes) -> Results:
    del sizes
    a, b = in_f64(arguments, "a b")
    return {"c": a.T @ b}


_BLOCKS = (
    Block(4, 4, False, False, (8, 8), "f32"),
    Block(4, 4, True, True, (16, 4), "f32"),
    Block(8, 2, True, False, (16, 8), "f32"),
    Block(2, 8, False, True, (8, 4), "f32"),
    Block(8, 8, False, True, (8, 8), "f32"),
    Block(8, 1, True, True, (32, 2), "f32"),
    Block(1, 8, False, False, (16, 16), "f32"),
    Block(2, 2, True, False, (32, 4), "f64"),
    Block(4, 2, True, True, (16, 4), "f64"),
    Block(4, 6, False, False, (8, 8), "f64"),
    Block(8, 4, False, True, (16, 2), "f64"),
    Block(3, 5, False, False, (12, 6), "f64"),
)


def register_blocks() -> Iterator[CatalogEntry]:
    """List ``register-blocks``."""
    for block in _BLOCKS:
        yield from block.kernel("register-blocks", collection="extended").entries()


# --- streams of a few sizes around each cache, 100 KiB to 200 MiB

_STREAMS = {
    "scaled-sum": Nest(
        "i:n", "x[n], y[n], output r[n]", "r[i] = 1.5 * x[i] + y[i]", "i:128", base=4001
    ),
    "copy": Nest(
        "i:n", "x[n], output r[n]", "r[i] = x[i]", "i:256", element_type="f32", base=12001
    ),
    "row-sums": Nest(
        "i:n j:250", "a[n, 250], output r[n]", "r[i] = sum j: a[i, j]", "i:32", base=51
    ),
    "five-points": Nest(
        "i:n j:500",
        "x[n + 2, 502], output r[n, 500]",
        "r[i, j] = x[i+1, j+1] - 0.25 * (x[i, j+1] + x[i+2, j+1] + x[i+1, j] + x[i+1, j+2])",
        "j:32 i:8",
        element_type="f32",
        base=24,
    ),
}
STREAM_STEPS = (0, 2, 4, 6, 7, 8, 9, 10, 11)
"""Factors of two in size; those between are covered by streams that need other bytes an item."""


def around_caches() -> Iterator[CatalogEntry]:
    """List ``around-caches``."""
    for variant, nest in _STREAMS.items():
        made = nest.entry("around-caches", variant, steps=STREAM_STEPS)
        yield replace(made, exponents=range(1))


def entries() -> Iterator[CatalogEntry]:
    """List the classes."""
    yield from one_group()
    yield from einsums()
    yield from register_blocks()
    yield from around_caches()
