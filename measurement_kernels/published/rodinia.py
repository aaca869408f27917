"""The fourteen kernels of the Rodinia suite by which Lemeire et al. judge models (their Table 9).

Che et al., "Rodinia: a benchmark suite for heterogeneous computing" (IISWC 2009). The kernels are
written from the algorithms, with Rodinia's sizes of groups, layouts, tiles and barriers. Loopy
cannot express, or not as briefly:

- subscripts that are clamped at borders: ``hotspot`` reads an array with a margin;
- places computed by remainders of symbolic sizes: pixels of ``opt_srad1`` and ``opt_srad2`` are
  numbered along two axes;
- a branch on data between kinds of faces: all faces in ``compute_flux`` have a neighbor.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
from numpy.typing import NDArray

from measurement_kernels.arguments import ArrayArgument, Extent, Sizes, arrays
from measurement_kernels.loopy_kernels import (
    Arrays,
    LoopyKernel,
    Results,
    any_sizes,
    changed,
    computed_from,
    in_f64,
    mapped,
    sizes_along,
)


def in_single(instructions: str) -> str:
    """Return instructions with their floating-point numbers in single precision."""
    return re.sub(r"\b\d+\.\d+(?:e-?\d+)?\b", r"\g<0>f", instructions)


def rodinia_kernel(instructions: str, **attributes: Any) -> LoopyKernel:
    """Return a kernel of the suite, in single precision; attributes are those of `LoopyKernel`."""
    return LoopyKernel(
        family="published-rodinia",
        collection="published",
        exponents=range(9, 21),
        instructions=in_single(instructions),
        **attributes,
    )


_TILES = sizes_along(n=None)


# --- elimination and LU decomposition


def _fan2(arguments: Arrays, sizes: Sizes) -> Results:
    t = sizes["t"]
    m, a, b = in_f64(arguments, "m a b")
    a[t + 1 :, t:] -= np.outer(m[t + 1 :, t], a[t, t:])
    b[t + 1 :] -= m[t + 1 :, t] * b[t]
    return {"a": a, "b": b}


def dominant(random: np.random.Generator, shape: tuple[int, ...]) -> NDArray[np.float64]:
    """Return a matrix that elimination without pivots keeps small."""
    return random.random(shape) - 0.5 + 8 * np.eye(shape[0], shape[1])


def _lud_perimeter(a: NDArray[Any]) -> Results:
    pivot = a[:16, :16]
    lower, upper = np.tril(pivot, -1) + np.eye(16), np.triu(pivot)
    a[:16, 16:] = np.linalg.solve(lower, a[:16, 16:])
    a[16:, :16] = np.linalg.solve(upper.T, a[16:, :16].T).T
    return {"a": a}


def _lud_internal(a: NDArray[Any]) -> Results:
    a[16:, 16:] -= a[16:, :16] @ a[:16, 16:]
    return {"a": a}


_OTHERS = "upper:lower:row:column:p:q"
"""Accesses to other tiles, with which stores need no barrier."""

_ELIMINATION = (
    rodinia_kernel(
        variant="fan2",
        groups=((8, 8),),
        sizes=changed(any_sizes("n", "t"), t={"fixed": 1}),
        arguments=arrays("m[n, n], updated a[n, n], updated b[n]"),
        check={"n": 61, "t": 1},
        domain="{ [x, y] : 0 <= x < n - 1 - t and 0 <= y < n - t }",
        instructions="""
            a[x + 1 + t, y + t] = a[x + 1 + t, y + t] - m[x + 1 + t, t]*a[t, y + t] {id=a}
            b[x + 1 + t] = b[x + 1 + t] - m[x + 1 + t, t]*b[t] {id=b, if=y == 0, inames=x:y}
        """,
        transform=mapped(x=0, y=1, guarded="b"),
        expected=_fan2,
    ),
    rodinia_kernel(
        variant="lud-perimeter",
        groups=((32, 1),),
        sizes=_TILES,
        arguments=arrays("updated a[16*n + 16, 16*n + 16]", values=dominant),
        check={"n": 9},
        domain=(
            "{ [g, t] : 0 <= g < n and 0 <= t < 32 }",
            "{ [d, e, r, c, p, q] : 0 <= d < 8 and 8 <= e < 16 and 0 <= r, c, p, q < 16 }",
            "{ [i] : 0 <= i < 16 }",
            "{ [j] : 0 <= j < i }",
            "{ [k] : 0 <= k < 16 }",
            "{ [l] : 0 <= l < k }",
        ),
        instructions=f"""
            for g, t
                if t < 16
                    <> dia[d, t] = a[d, t] {{id=upper}}
                    <> row[r, t] = a[r, 16*g + 16 + t] {{id=row}}
                else
                    dia[e, t - 16] = a[e, t - 16] {{id=lower, dep=upper}}
                    <> column[c, t - 16] = a[16*g + 16 + c, t - 16] {{id=column}}
                end
                ... lbarrier {{id=loaded, dep=upper:lower:row:column}}
                if t < 16
                    row[i, t] = row[i, t] - dia[i, j]*row[j, t] {{id=down, dep=loaded}}
                else
                    <> s = sum(l, column[t - 16, l]*dia[l, k]) {{id=sum, dep=loaded:down}}
                    column[t - 16, k] = (column[t - 16, k] - s) / dia[k, k] {{id=right, dep=sum}}
                end
                ... lbarrier {{id=solved, dep=down:right}}
                if t < 16
                    a[p, 16*g + 16 + t] = row[p, t] {{id=p, dep=solved, nosync={_OTHERS}}}
                else
                    a[16*g+16 + q, t-16] = column[q, t-16] {{id=q, dep=solved:p, nosync={_OTHERS}}}
                end
            end
        """,
        transform=mapped(tags={"g": "g.0", "t": "l.0"}),
        expected=computed_from("a", _lud_perimeter),
    ),
    rodinia_kernel(
        variant="lud-internal",
        groups=((16, 16),),
        sizes=_TILES,
        arguments=arrays("updated a[16*n + 16, 16*n + 16]"),
        check={"n": 5},
        domain="{ [g, h, y, x, k] : 0 <= g, h < n and 0 <= y, x, k < 16 }",
        instructions="""
            for g, h, y, x
                <> row[y, x] = a[y, 16*h + 16 + x] {id=row, dep=*}
                <> column[y, x] = a[16*g + 16 + y, x] {id=column, dep=*}
                ... lbarrier {id=loaded, dep=row:column}
                <> s = sum(k, column[y, k]*row[k, x]) {id=sum, dep=loaded}
                a[16*g + 16 + y, 16*h + 16 + x] = a[16*g + 16 + y, 16*h + 16 + x] - s {dep=sum}
            end
        """,
        transform=mapped(tags={"g": "g.1", "h": "g.0", "y": "l.1", "x": "l.0"}),
        expected=computed_from("a", _lud_internal),
    ),
)

# --- sequence alignment and clusters


def _scores(random: np.random.Generator, sizes: Sizes) -> NDArray[np.int32]:
    side = 16 * sizes["n"]
    return random.integers(-4, 11, size=(side, side), dtype="int32")


def _border(random: np.random.Generator, sizes: Sizes) -> NDArray[np.int32]:
    side = 16 * sizes["n"] + 1
    return random.integers(-50, 50, size=(side, side), dtype="int32")


def _align_slices(arguments: Arrays, sizes: Sizes) -> Results:
    n, items, scores = sizes["n"], arguments["items"].copy(), arguments["scores"]
    for block in range(n):
        top, left = 16 * (n - 1 - block), 16 * block
        for r in range(top + 1, top + 17):
            for c in range(left + 1, left + 17):
                match = items[r - 1, c - 1] + scores[r - 1, c - 1]
                items[r, c] = max(match, items[r, c - 1] - 10, items[r - 1, c] - 10)
    return {"items": items}


def no_indices(random: np.random.Generator, sizes: Sizes) -> NDArray[np.int32]:
    """Return nothing: an output of integers has no contents to begin with."""
    raise NotImplementedError


def _nearest(arguments: Arrays, sizes: Sizes) -> Results:
    del sizes
    feature, clusters = in_f64(arguments, "feature clusters")
    distances = ((feature[None] - clusters[:, :, None]) ** 2).sum(axis=1)
    return {"member": distances.argmin(axis=0)}


def _cell(name: str, y: str, x: str, active: str, after: str) -> str:
    """Return instructions that compute a cell of a tile from three neighbors, and a barrier."""
    steps = {
        f"match{name}": f"temp[{y} - 1, {x} - 1] + ref[{y} - 1, {x} - 1]",
        f"west{name}": f"temp[{y}, {x} - 1] - 10",
        f"north{name}": f"temp[{y} - 1, {x}] - 10",
        f"gap{name}": f"west{name} if west{name} > north{name} else north{name}",
        f"best{name}": f"match{name} if match{name} > gap{name} else gap{name}",
    }
    lines = [
        f"<> {key} = {value} {{id={key}, dep={after}, if={active}}}" for key, value in steps.items()
    ]
    return "\n".join(
        [
            *lines,
            f"temp[{y}, {x}] = best{name} {{id=cell{name}, dep=best{name}, if={active},"
            f" nosync=match{name}:west{name}:north{name}}}",
            f"... lbarrier {{id=wait{name}, dep=cell{name}}}",
        ]
    )


_CLUSTERS, _FEATURES = 5, 34

_ALIGNMENT = (
    rodinia_kernel(
        variant="nw-kernel1",
        groups=((16, 1),),
        sizes=_TILES,
        arguments=(
            ArrayArgument(name="scores", shape=(Extent("n", factor=16),) * 2, indices=_scores),
            ArrayArgument(
                name="items",
                shape=(Extent("n", factor=16, offset=1),) * 2,
                indices=_border,
                role="updated",
            ),
        ),
        check={"n": 7},
        domain=(
            "{ [g, t, r, s] : 0 <= g < n and 0 <= t, r, s < 16 }",
            "{ [m] : 0 <= m < 16 }",
            "{ [q] : 0 <= q < 15 }",
        ),
        instructions=f"""
            for g, t
                <> temp[0, 0] = items[16*(n - 1 - g), 16*g] {{id=corner, dep=*, if=t == 0}}
                <> ref[r, t] = scores[16*(n - 1 - g) + r, 16*g + t] {{id=ref}}
                temp[t + 1, 0] = items[16*(n - 1 - g) + t + 1, 16*g] {{id=west, dep=*corner}}
                temp[0, t + 1] = items[16*(n - 1 - g), 16*g + t + 1] {{id=north, dep=*west}}
                ... lbarrier {{id=loaded, dep=corner:ref:west:north}}
                for m
                    {_cell("1", "(m - t + 1)", "(t + 1)", "t <= m", "loaded")}
                end
                for q
                    {_cell("2", "(16 - t)", "(t + 2 + q)", "t + q < 15", "wait1")}
                end
                items[16*(n-1-g) + s + 1, 16*g + t + 1] = temp[s + 1, t + 1] {{dep=wait2}}
            end
        """,
        transform=mapped(
            tags={"g": "g.0", "t": "l.0"},
            local={"temp": (17, 17), "ref": (16, 16)},
            guarded="corner",
        ),
        expected=_align_slices,
    ),
    rodinia_kernel(
        variant="kmeans-kernel-c",
        groups=((256, 1),),
        sizes=sizes_along(n=None),
        arguments=(
            *arrays(f"feature[{_FEATURES}, n], clusters[{_CLUSTERS}, {_FEATURES}]"),
            ArrayArgument(name="member", shape=(Extent("n"),), role="output", indices=no_indices),
        ),
        check={"n": 1000},
        domain=(
            "{ [p] : 0 <= p < n }",
            f"{{ [i] : 0 <= i < {_CLUSTERS} }}",
            f"{{ [l] : 0 <= l < {_FEATURES} }}",
        ),
        instructions="""
            for p
                <real> best = 3.4e38f {id=best}
                <int32> index = 0 {id=index}
                for i
                    <real> d = 0 {id=zero}
                    for l
                        <> difference = feature[l, p] - clusters[i, l] {id=difference}
                        d = d + difference*difference {id=d, dep=zero:difference}
                    end
                    index = i if d < best else index {id=closer, dep=d:best:index}
                    best = d if d < best else best {id=smaller, dep=closer:best:d}
                end
                member[p] = index {dep=closer:smaller}
            end
        """,
        transform=mapped(p=0),
        expected=_nearest,
    ),
    rodinia_kernel(
        variant="kmeans-swap",
        groups=((64, 1),),
        sizes=sizes_along(n=None),
        arguments=arrays(f"feature[n, {_FEATURES}], output swapped[{_FEATURES}, n]"),
        check={"n": 1000},
        domain=f"{{ [p, i] : 0 <= p < n and 0 <= i < {_FEATURES} }}",
        instructions="swapped[i, p] = feature[p, i]",
        transform=mapped(p=0),
        expected=computed_from("feature", lambda feature: {"swapped": feature.T}),
    ),
)

RODINIA = (*_ELIMINATION, *_ALIGNMENT)
