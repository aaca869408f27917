"""Kernels whose structure is known by hand."""

from __future__ import annotations

from typing import Any

import loopy as lp
import numpy as np

VERSION = (2018, 2)


def tiled_matmul(tile: int = 16) -> Any:
    kernel = lp.make_kernel(
        "{ [i, j, k] : 0 <= i, j, k < n }",
        "c[i, j] = sum(k, a[i, k]*b[k, j])",
        [lp.GlobalArg("a,b,c", np.float32, shape=("n", "n")), lp.ValueArg("n", np.int32)],
        assumptions=f"n >= {tile} and n mod {tile} = 0",
        lang_version=VERSION,
    )
    kernel = lp.split_iname(kernel, "i", tile, outer_tag="g.1", inner_tag="l.1")
    kernel = lp.split_iname(kernel, "j", tile, outer_tag="g.0", inner_tag="l.0")
    kernel = lp.split_iname(kernel, "k", tile)
    outer = frozenset(["i_outer", "j_outer", "k_outer"])
    kernel = lp.add_prefetch(
        kernel, "a", ["i_inner", "k_inner"], fetch_outer_inames=outer, default_tag="l.auto"
    )
    return lp.add_prefetch(
        kernel, "b", ["k_inner", "j_inner"], fetch_outer_inames=outer, default_tag="l.auto"
    )


def register_blocked_matmul(width: int = 8) -> Any:
    """Four rows of c for each item, as far apart as the group is wide."""
    kernel = lp.make_kernel(
        "{ [i, j, k] : 0 <= i, j, k < n }",
        "c[i, j] = sum(k, a[i, k]*b[k, j])",
        [lp.GlobalArg("a,b,c", np.float32, shape=("n", "n")), lp.ValueArg("n", np.int32)],
        assumptions=f"n >= {4 * width} and n mod {4 * width} = 0",
        lang_version=VERSION,
        silenced_warnings=["v1_scheduler_fallback"],
    )
    kernel = lp.split_iname(kernel, "i", 4 * width, outer_tag="g.1")
    kernel = lp.split_iname(kernel, "i_inner", width, outer_tag="ilp", inner_tag="l.1")
    return lp.split_iname(kernel, "j", width, outer_tag="g.0", inner_tag="l.0")


def stencil(tile: int = 16) -> Any:
    kernel = lp.make_kernel(
        "{ [i, j] : 0 <= i, j < n }",
        "b[i, j] = a[i, j+1] + a[i+2, j+1] + a[i+1, j] + a[i+1, j+2] - 4*a[i+1, j+1]",
        [
            lp.GlobalArg("a", np.float32, shape=("n + 2", "n + 2")),
            lp.GlobalArg("b", np.float32, shape=("n", "n")),
            lp.ValueArg("n", np.int32),
        ],
        assumptions=f"n >= {tile} and n mod {tile} = 0",
        lang_version=VERSION,
    )
    kernel = lp.split_iname(kernel, "i", tile, outer_tag="g.1", inner_tag="l.1")
    kernel = lp.split_iname(kernel, "j", tile, outer_tag="g.0", inner_tag="l.0")
    return lp.add_prefetch(
        kernel, "a", ["i_inner", "j_inner"], fetch_bounding_box=True, default_tag="l.auto"
    )


def transpose(tile: int = 32, padding: int = 0, dtype: Any = np.float32) -> Any:
    """Through a tile in local memory, its rows padded; stride 1 in global memory."""
    kernel = lp.make_kernel(
        "{ [I, J, i, j] : 0 <= I, J < m and 0 <= i, j < tile }".replace("tile", str(tile)),
        f"""
        t[i, j] = a[{tile}*I + i, {tile}*J + j] {{id=fetch}}
        ... lbarrier {{id=wait, dep=fetch}}
        b[{tile}*J + i, {tile}*I + j] = t[j, i] {{id=write, dep=wait}}
        """,
        [
            lp.GlobalArg("a,b", dtype, shape=(f"{tile}*m", f"{tile}*m")),
            lp.TemporaryVariable(
                "t", dtype, shape=(tile, tile + padding), address_space=lp.AddressSpace.LOCAL
            ),
            lp.ValueArg("m", np.int32),
        ],
        assumptions="m >= 1",
        lang_version=VERSION,
    )
    return lp.tag_inames(kernel, {"I": "g.1", "J": "g.0", "i": "l.1", "j": "l.0"})


def naive_transpose() -> Any:
    kernel = lp.make_kernel(
        "{ [i, j] : 0 <= i < n and 0 <= j < m }",
        "b[j, i] = a[i, j]",
        [
            lp.GlobalArg("a", np.float32, shape=("n", "m")),
            lp.GlobalArg("b", np.float32, shape=("m", "n")),
            lp.ValueArg("n,m", np.int32),
        ],
        assumptions="n >= 1 and m >= 1",
        lang_version=VERSION,
    )
    kernel = lp.split_iname(kernel, "i", 8, outer_tag="g.1", inner_tag="l.1")
    return lp.split_iname(kernel, "j", 8, outer_tag="g.0", inner_tag="l.0")


def tiled_layout() -> Any:
    """Rows of 16, cut into blocks of 4: subscripts with quotients and remainders."""
    kernel = lp.make_kernel(
        "{ [i, r] : 0 <= i < n and 0 <= r < 3 }",
        """
        x[i // 4, r, i % 4] = y[i % 4, i // 4]  {id=even}
        z[i, r] = y[0, (i + r) // 3]            {id=uneven}
        """,
        [
            lp.GlobalArg("x", np.float32, shape=("n // 4 + 1", 3, 4)),
            lp.GlobalArg("y", np.float32, shape=(4, "n + 1")),
            lp.GlobalArg("z", np.float32, shape=("n", 3)),
            lp.ValueArg("n", np.int32),
        ],
        assumptions="n >= 4 and n mod 4 = 0",
        lang_version=VERSION,
    )
    return lp.split_iname(kernel, "i", 4, outer_tag="g.0", inner_tag="l.0")


def late_loops(width: int = 8) -> Any:
    """Loops that begin, end or both at the item: the passes of items are not aligned by value."""
    kernel = lp.make_kernel(
        "{ [i, k, l] : 0 <= i < n and i <= k < i + 5 and k <= l < n }",
        "c[i] = sum(k, a[k] * sum(l, b[l]))",
        [
            lp.GlobalArg("a", np.float32, shape="n + 5"),
            lp.GlobalArg("b,c", np.float32, shape="n"),
            lp.ValueArg("n", np.int32),
        ],
        assumptions="n >= 1",
        lang_version=VERSION,
    )
    return lp.split_iname(kernel, "i", width, outer_tag="g.0", inner_tag="l.0")


def guarded(width: int = 8) -> Any:
    """Partial groups, a condition on the item, one on the loop, and axes that say nothing."""
    kernel = lp.make_kernel(
        "{ [i, j, k] : 0 <= i < n and 0 <= j < m and 0 <= k < n }",
        """
        for i, k
            y[i, k] = x[2*i + k] if i + k < n else x[0]  {id=branch}
            z[k, i] = 3*x[i]       {id=some, if=i % 3 == 1 and k > 2}
        end
        w[j] = x[3*j]              {id=other}
        """,
        [
            lp.GlobalArg("x", np.float64, shape="3*n + 3*m"),
            lp.GlobalArg("y,z", np.float64, shape=("n", "n")),
            lp.GlobalArg("w", np.float64, shape="m"),
            lp.ValueArg("n,m", np.int32),
        ],
        assumptions="n >= 1 and m >= 1",
        lang_version=VERSION,
        silenced_warnings=["write_race*"],
    )
    kernel = lp.split_iname(kernel, "i", width, outer_tag="g.0", inner_tag="l.0")
    kernel = lp.split_iname(kernel, "j", 3, outer_tag="g.1", inner_tag="l.1")
    return lp.add_inames_for_unused_hw_axes(kernel)


def small_elements() -> Any:
    """Two-byte elements in local memory, shifted by an odd number from group to group."""
    kernel = lp.make_kernel(
        "{ [g, i] : 0 <= g < n and 0 <= i < 16 }",
        """
        t[i + 16*(g % 2)] = a[16*g + i]      {id=fetch}
        ... lbarrier                         {id=wait, dep=fetch}
        b[g, i] = t[3*i // 2 + g % 3]        {id=use, dep=wait}
        """,
        [
            lp.GlobalArg("a", np.int16, shape="16*n"),
            lp.GlobalArg("b", np.int16, shape=("n", 16)),
            lp.TemporaryVariable("t", np.int16, shape=(32,), address_space=lp.AddressSpace.LOCAL),
            lp.ValueArg("n", np.int32),
        ],
        assumptions="n >= 1",
        lang_version=VERSION,
    )
    return lp.tag_inames(kernel, {"g": "g.0", "i": "l.0"})


def recurrences(body: str) -> Any:
    """Private scalars x, y, s, t in a loop over time inside one over items."""
    kernel = lp.make_kernel(
        "{ [i, k] : 0 <= i < n and 0 <= k < m }",
        body,
        [
            lp.GlobalArg("a", np.float32, shape=("n", "m")),
            lp.GlobalArg("out", np.float32, shape="n"),
            *(
                lp.TemporaryVariable(
                    name, np.float32, shape=(), address_space=lp.AddressSpace.PRIVATE
                )
                for name in "xyst"
            ),
            lp.ValueArg("n,m", np.int32),
            lp.ValueArg("dt", np.float32),
        ],
        assumptions="n >= 1 and m >= 1",
        lang_version=VERSION,
        seq_dependencies=True,
        silenced_warnings=["read_no_write*", "write_race*"],
    )
    return lp.split_iname(kernel, "i", 8, outer_tag="g.0", inner_tag="l.0")
