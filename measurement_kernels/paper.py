"""The paper's nine classes of measurement kernels; matrices are row major."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from measurement_kernels.arguments import ELEMENT_TYPES, ScalarArgument, Sizes, arrays
from measurement_kernels.groups import LINEAR_GROUPS, PLANAR_GROUPS
from measurement_kernels.loopy_kernels import (
    ONE_PER_ITEM,
    Arrays,
    LoopyKernel,
    Results,
    Tile,
    Transform,
    changed,
    in_f64,
    mapped,
    sizes_along,
    tile_of,
)

_TYPES = tuple(ELEMENT_TYPES)
_LINE = "{ [i]: 0 <= i < n }"
_PLANE = "{ [i, j]: 0 <= i < n and 0 <= j < m }"


# --- 1, 2: matrix products, c = a · b

PRODUCT_ARGUMENTS = arrays("a[n, m], b[m, l], output c[n, l]")
"""Arguments of a matrix product."""

PRODUCT_DOMAIN = "{ [i, j, k]: 0 <= i < n and 0 <= j < l and 0 <= k < m }"
"""Loops of a matrix product."""

PRODUCT = "c[i, j] = sum(k, a[i, k] * b[k, j])"
"""Instructions of a matrix product."""


def product(arguments: Arrays, parameters: Sizes) -> Results:
    """Return the product of two matrices."""
    del parameters
    a, b = in_f64(arguments, "a b")
    return {"c": a @ b}


def tiled_product() -> Transform:
    """Return a transformation that fetches a tile of each factor between two barriers.

    A group steps along the sum in tiles as wide as the group. It fetches as many rows of a as it
    has rows of items, and the square of b that belongs to them.
    """
    step = "i_outer j_outer k_outer"
    return mapped(
        tile_of("a", "i_inner k_inner", step),
        tile_of("b", "k_inner j_inner", step),
        split={"k": 0},
        i=1,
        j=0,
    )


_SHIFTS: Mapping[str, dict[str, dict[str, int]]] = {
    "square": {},
    "half-n": {"n": {"shift": 1}},
    "half-m": {"m": {"shift": 1}},
    "half-l": {"l": {"shift": 1}},
}


_product = partial(
    LoopyKernel,
    domain=PRODUCT_DOMAIN,
    instructions=PRODUCT,
    arguments=PRODUCT_ARGUMENTS,
    expected=product,
)
TILED_PRODUCT = partial(_product, name="matmul_tiled", transform=tiled_product())
"""Makes kernels from the tiled matrix product; they differ in sizes and share their units."""

TILED_SIZES = sizes_along(n=1, m=0, l=0)
"""Size parameters of the tiled matrix product."""

_PRODUCTS = (
    *(
        TILED_PRODUCT(
            family="matmul-tiled",
            variant=variant,
            groups=PLANAR_GROUPS,
            element_types=_TYPES,
            exponents=range(4, 13),
            sizes=changed(TILED_SIZES, **shifts),
            check={"n": 2, "m": 2, "l": 3},
        )
        for variant, shifts in _SHIFTS.items()
    ),
    _product(
        name="matmul_naive",
        family="matmul-naive",
        groups=PLANAR_GROUPS,
        element_types=_TYPES,
        exponents=range(4, 13),
        sizes=sizes_along(n=1, m=None, l=0),
        check={"n": 2, "m": 50, "l": 3},
        transform=ONE_PER_ITEM,
    ),
)

# --- 3: z = a·x + b·y on every element, every other, or every third


def _weighted_sum(arguments: Arrays, parameters: Sizes) -> Results:
    x, y = (values[:, 0] for values in in_f64(arguments, "x y"))
    value = float(arguments["a"]) * x + float(arguments["b"]) * y
    if "z" not in arguments:
        return {"z": value.reshape(parameters["n"], 1)}
    (z,) = in_f64(arguments, "z")
    z[:, 0] = value
    return {"z": z}


# The vectors are first columns of matrices that have as many columns as the stride: from a vector
# of length s·n, Loopy's executor could not infer n. Columns of z that are not written keep their
# values.
_VECTOR_SCALE_ADD = tuple(
    LoopyKernel(
        name="vector_scale_add",
        family="vector-scale-add",
        variant=f"stride{stride}",
        groups=LINEAR_GROUPS,
        exponents=range(12, 24),
        exponent_steps=(0, 2, 4, 6),
        sizes=sizes_along(n=0),
        arguments=(
            *arrays(f"x[n, {stride}], y[n, {stride}], {role} z[n, {stride}]"),
            ScalarArgument(name="a", value=0.75),
            ScalarArgument(name="b", value=-1.375),
        ),
        check={"n": 3},
        domain=_LINE,
        instructions="z[i, 0] = a*x[i, 0] + b*y[i, 0]",
        transform=mapped(i=0),
        expected=_weighted_sum,
    )
    for stride, role in ((1, "output"), (2, "updated"), (3, "updated"))
)

# --- 4: transpose, one work item per element of b


def transposed(arguments: Arrays, parameters: Sizes) -> Results:
    """Return the transpose of a matrix."""
    del parameters
    return {"b": arguments["a"].T}


TRANSPOSE_ARGUMENTS = arrays("a[m, n], output b[n, m]")
"""Arguments of a transpose."""

_TRANSPOSES = tuple(
    LoopyKernel(
        name="transpose",
        family="transpose",
        variant=variant,
        groups=PLANAR_GROUPS,
        exponents=range(6, 13),
        sizes=sizes_along(n=i, m=j),
        arguments=TRANSPOSE_ARGUMENTS,
        check={"n": 2, "m": 3},
        domain=_PLANE,
        instructions="b[i, j] = a[j, i]",
        transform=mapped(*tiles, i=i, j=j),
        expected=transposed,
    )
    for variant, i, j, tiles in (
        ("tiled", 1, 0, [tile_of("a", "i_inner j_inner", "i_outer j_outer")]),
        ("stride1-writes", 1, 0, []),
        ("stride1-reads", 0, 1, []),
    )
)

# --- 5: access with stride 1, one work item per element


def _sum_of_vectors(names: str, arguments: Arrays, parameters: Sizes) -> Results:
    if not names:
        return {"out": np.arange(parameters["n"])}
    out = arguments["a"].astype("float64")
    for name in names[1:]:
        out += arguments[name]
    return {"out": out}


_STRIDE1 = tuple(
    LoopyKernel(
        name="stride1_" + variant.replace("-", "_"),
        family="stride1",
        variant=variant,
        groups=LINEAR_GROUPS,
        element_types=_TYPES,
        exponents=range(10, 23),
        exponent_steps=tuple(range(9)),
        sizes=sizes_along(n=0),
        arguments=arrays("".join(f"{name}[n], " for name in names) + "output out[n]"),
        check={"n": 3},
        domain=_LINE,
        # without a variable for it, Loopy would compute the index itself in floating point
        instructions="out[i] = " + " + ".join(f"{name}[i]" for name in names)
        if names
        else "<int32> index = i {id=index}\nout[i] = index {dep=index}",
        transform=mapped(i=0),
        expected=partial(_sum_of_vectors, names),
    )
    for variant, names in (("copy", "a"), ("add-four", "abcd"), ("store-index", ""))
)

# --- 6, 7: access with stride 2 or 3 that uses every element in the end

TERMS = 256
"""Pairs or triples that each work item sums."""


def _sums_of_neighbors(arguments: Arrays, parameters: Sizes) -> Results:
    n = parameters["n"]
    ends = np.zeros(n + TERMS)
    np.cumsum(arguments["a"].sum(axis=0, dtype="float64"), out=ends[1:])
    return {"out": ends[TERMS:] - ends[:n]}


# Each row of a is one access with stride s across lanes; ``prefetched`` fetches the columns that a
# group needs into local memory, with the same strides.
_STRIDED = tuple(
    LoopyKernel(
        name=f"stride{stride}_filled_{variant}",
        family=f"stride{stride}-filled",
        variant=variant,
        groups=LINEAR_GROUPS,
        exponents=range(8, 21),
        exponent_steps=(0, 3, 6, 9),
        sizes=sizes_along(n=0),
        arguments=arrays(f"column-major a[{stride}, n + {TERMS - 1}], output out[n]"),
        check={"n": 2},
        domain=f"{{ [i, j]: 0 <= i < n and 0 <= j < {TERMS} }}",
        instructions="out[i] = sum(j, "
        + " + ".join(f"a[{row}, i + j]" for row in range(stride))
        + ")",
        transform=mapped(*tiles, i=0),
        expected=_sums_of_neighbors,
    )
    for stride in (2, 3)
    for variant, tiles in (
        ("direct", []),
        ("prefetched", [Tile("a", "i_inner j", "i_outer", {"a_row": None, "a_column": 0})]),
    )
)

# --- 8: arithmetic of one kind, nearly without memory access
#
# Each work item sums k terms into its element of the result. A term is a chain of operations of one
# kind on the loop index, from 1 to k, converted to the element type. The sum adds one addition per
# term, whatever the kind. k is a parameter of the kernel; its three values are variants, so that
# entries have one exponent.
#
# Constants are exact in binary32, so that Loopy gives them the element type. No operation can be
# replaced by a cheaper one: all divisors depend on the loop index, no exponent is half an integer.
# A term is stored before it is added, so that only the addition waits for the one before. Terms do
# not depend on the work item, as in the paper: a compiler that vectorizes across work items may
# compute each once per vector.

TERM_COUNTS = (256, 512, 768)
"""Terms per sum, k."""

_TERMS: Mapping[str, tuple[str, Any]] = {
    "add": (
        "x + 1.5 - 0.75 + 2.25 - 1.125 + 0.875 - 2.5 + 1.75 - 1.375",
        lambda x: x + (1.5 - 0.75 + 2.25 - 1.125 + 0.875 - 2.5 + 1.75 - 1.375),
    ),
    "mul": (
        "x * 1.5 * 0.75 * 1.25 * 0.625 * 1.125 * 0.875 * 1.375 * 0.8125",
        lambda x: x * (1.5 * 0.75 * 1.25 * 0.625 * 1.125 * 0.875 * 1.375 * 0.8125),
    ),
    "div": (
        "1.5 / (0.75 / (1.25 / (0.625 / (1.125 / (0.875 / (1.375 / (0.8125 / x)))))))",
        lambda x: x * (1.5 / 0.75 * 1.25 / 0.625 * 1.125 / 0.875 * 1.375 / 0.8125),
    ),
    "pow": (
        "(((((x**1.25)**0.875)**1.125)**0.8125)**1.375)**0.6875",
        lambda x: x ** (1.25 * 0.875 * 1.125 * 0.8125 * 1.375 * 0.6875),
    ),
    "rsqrt": ("rsqrt(" * 8 + "x" + ")" * 8, lambda x: x ** (0.5**8)),
}
"""By kind: the term of x, and its value."""


def _sum_of_terms(kind: str, arguments: Arrays, parameters: Sizes) -> Results:
    del arguments
    term = _TERMS[kind][1](np.arange(1, parameters["k"] + 1, dtype="float64"))
    return {"out": np.full((parameters["n"], parameters["m"]), term.sum())}


_ARITHMETIC = tuple(
    LoopyKernel(
        name=f"arithmetic_{kind}",
        family="arithmetic",
        variant=f"{kind}-k{terms}",
        groups=PLANAR_GROUPS,
        element_types=_TYPES,
        exponents=range(4, 13),
        exponent_steps=(0, 1, 2),
        sizes=changed(sizes_along(n=1, m=0, k=None), k={"fixed": terms}),
        arguments=arrays("output out[n, m]"),
        check={"n": 2, "m": 2, "k": 24},
        domain="{ [i, j, r]: 0 <= i < n and 0 <= j < m and 1 <= r <= k }",
        instructions=f"""
            for i, j
                <real> total = 0 {{id=begin}}
                for r
                    <real> x = r {{id=convert}}
                    <real> term = {term} {{id=term, dep=convert}}
                    total = total + term {{id=add, dep=begin:term}}
                end
                out[i, j] = total {{dep=add}}
            end
        """,
        transform=ONE_PER_ITEM,
        expected=partial(_sum_of_terms, kind),
    )
    for kind, (term, _) in _TERMS.items()
    for terms in TERM_COUNTS
)

# --- 9: the kernel that does nothing, in as many groups as an n by m matrix would take

_EMPTY = LoopyKernel(
    family="empty",
    groups=PLANAR_GROUPS,
    exponents=range(4, 11),
    exponent_steps=tuple(range(6)),
    sizes=sizes_along(n=1, m=0),
    check={"n": 2, "m": 3},
    domain=_PLANE,
    instructions="... nop {inames=i:j}",
    transform=ONE_PER_ITEM,
    expected=lambda arguments, parameters: {},  # noqa: ARG005 - as for all kernels
)

KERNELS: tuple[LoopyKernel, ...] = (
    *_PRODUCTS,
    *_VECTOR_SCALE_ADD,
    *_TRANSPOSES,
    *_STRIDE1,
    *_STRIDED,
    *_ARITHMETIC,
    _EMPTY,
)
"""All of them in the paper's order."""
