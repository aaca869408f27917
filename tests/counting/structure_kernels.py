"""Kernels whose structure is known by hand."""

from __future__ import annotations

from typing import Any

import loopy as lp

from tests.kernels import made


def tiled_matmul(tile: int = 16) -> Any:
    kernel = made(
        "i<n, j<n, k<n",
        "c[i, j] = sum(k, a[i, k]*b[k, j])",
        "a,b,c f32 n,n; n i32",
        assumptions=f"n >= {tile} and n mod {tile} = 0",
        split=f"i:{tile}:1 j:{tile} k:{tile}:,",
    )
    outer = frozenset(["i_outer", "j_outer", "k_outer"])
    kernel = lp.add_prefetch(
        kernel, "a", ["i_inner", "k_inner"], fetch_outer_inames=outer, default_tag="l.auto"
    )
    return lp.add_prefetch(
        kernel, "b", ["k_inner", "j_inner"], fetch_outer_inames=outer, default_tag="l.auto"
    )


def register_blocked_matmul(width: int = 8) -> Any:
    """Four rows of c for each item, as far apart as the group is wide."""
    return made(
        "i<n, j<n, k<n",
        "c[i, j] = sum(k, a[i, k]*b[k, j])",
        "a,b,c f32 n,n; n i32",
        assumptions=f"n >= {4 * width} and n mod {4 * width} = 0",
        split=f"i:{4 * width}:g.1, i_inner:{width}:ilp,l.1 j:{width}",
    )


def stencil(tile: int = 16) -> Any:
    kernel = made(
        "i<n, j<n",
        "b[i, j] = a[i, j+1] + a[i+2, j+1] + a[i+1, j] + a[i+1, j+2] - 4*a[i+1, j+1]",
        "a f32 n+2,n+2; b f32 n,n; n i32",
        assumptions=f"n >= {tile} and n mod {tile} = 0",
        split=f"i:{tile}:1 j:{tile}",
    )
    return lp.add_prefetch(
        kernel, "a", ["i_inner", "j_inner"], fetch_bounding_box=True, default_tag="l.auto"
    )


def transpose(tile: int = 32, padding: int = 0) -> Any:
    """Through a tile in local memory, its rows padded; stride 1 in global memory."""
    return made(
        f"I<m, J<m, i<{tile}, j<{tile}",
        f"""
        t[i, j] = a[{tile}*I + i, {tile}*J + j] {{id=fetch}}
        ... lbarrier {{id=wait, dep=fetch}}
        b[{tile}*J + i, {tile}*I + j] = t[j, i] {{id=write, dep=wait}}
        """,
        f"a,b f32 {tile}*m,{tile}*m; t f32 {tile},{tile + padding} local; m i32",
        tags={"I": "g.1", "J": "g.0", "i": "l.1", "j": "l.0"},
    )


def naive_transpose() -> Any:
    return made("i<n, j<m", "b[j, i] = a[i, j]", "a f32 n,m; b f32 m,n; n,m i32", split="i:8:1 j:8")


def tiled_layout() -> Any:
    """Rows of 16, cut into blocks of 4: subscripts with quotients and remainders."""
    return made(
        "i<n, r<3",
        """
        x[i // 4, r, i % 4] = y[i % 4, i // 4]  {id=even}
        z[i, r] = y[0, (i + r) // 3]            {id=uneven}
        """,
        "x f32 n//4+1,3,4; y f32 4,n+1; z f32 n,3; n i32",
        assumptions="n >= 4 and n mod 4 = 0",
        split="i:4",
    )


def late_loops(width: int = 8) -> Any:
    """Loops that begin, end or both at the item: the passes of items are not aligned by value."""
    return made(
        "{ [i, k, l] : 0 <= i < n and i <= k < i + 5 and k <= l < n }",
        "c[i] = sum(k, a[k] * sum(l, b[l]))",
        "a f32 n+5; b,c f32 n; n i32",
        split=f"i:{width}",
    )


def guarded(width: int = 8) -> Any:
    """Partial groups, a condition on the item, one on the loop, and axes that say nothing."""
    kernel = made(
        "i<n, j<m, k<n",
        """
        for i, k
            y[i, k] = x[2*i + k] if i + k < n else x[0]  {id=branch}
            z[k, i] = 3*x[i]       {id=some, if=i % 3 == 1 and k > 2}
        end
        w[j] = x[3*j]              {id=other}
        """,
        "x f64 3*n+3*m; y,z f64 n,n; w f64 m; n,m i32",
        split=f"i:{width} j:3:1",
    )
    return lp.add_inames_for_unused_hw_axes(kernel)


def small_elements() -> Any:
    """Two-byte elements in local memory, shifted by an odd number from group to group."""
    return made(
        "g<n, i<16",
        """
        t[i + 16*(g % 2)] = a[16*g + i]      {id=fetch}
        ... lbarrier                         {id=wait, dep=fetch}
        b[g, i] = t[3*i // 2 + g % 3]        {id=use, dep=wait}
        """,
        "a i16 16*n; b i16 n,16; t i16 32 local; n i32",
        tags={"g": "g.0", "i": "l.0"},
    )


def recurrences(body: str) -> Any:
    """Private scalars x, y, s, t in a loop over time inside one over items."""
    return made(
        "i<n, k<m",
        body,
        "a f32 n,m; out f32 n; x,y,s,t f32 () private; n,m i32; dt f32",
        seq_dependencies=True,
        split="i:8",
    )
