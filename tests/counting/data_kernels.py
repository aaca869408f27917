"""Kernels over rows of a sparse matrix, whose loops and conditions data decides."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.kernels import made


def rows(body: str, domains: Sequence[str] = ()) -> Any:
    """Make a kernel whose loop ``j`` runs over the elements of row ``i``."""
    return made(
        ["i<m", "j<length", *domains],
        f"""
        for i
            <> length = starts[i + 1] - starts[i] {{id=length}}
            {body}
        end
        """,
        "y f64 m; v f64 q; w f64 q,q; starts i32 m+1; m,q i32",
    )


def guarded(condition: str) -> Any:
    """Make a kernel that adds those elements of a row for which a condition holds."""
    return rows(
        f"""
        for j
            if {condition}
                y[i] = y[i] + v[starts[i] + j] {{id=add, dep=length}}
            end
        end
        """
    )


def summed() -> Any:
    """Make a kernel with a condition inside a reduction."""
    return rows("y[i] = sum(j, v[starts[i] + j] if j >= 1 else 0) {dep=length}")


def triangle() -> Any:
    """Make a kernel with a loop that a loop over data bounds."""
    return rows(
        """
        for j, k
            y[i] = y[i] + w[j, k] {dep=length}
        end
        """,
        ["[j] -> { [k] : 0 <= k <= j }"],
    )


def shared_domain() -> Any:
    """Make a kernel in which a loop over data shares a domain with one of two iterations."""
    return made(
        ["t<m", "first<=i<last, d<2"],
        """
        for t
            <> first = starts[t]
            <> last = starts[t + 1]
            for i, d
                y[d, i] = 2*x[d, i]
            end
        end
        """,
        "starts i32 m+1; x,y f64 2,q; m,q i32",
    )


def window(width: str) -> Any:
    """Make a kernel with a loop that begins where data says, and runs as often as sizes say."""
    return made(
        ["i<m", f"[first, n] -> {{ [j] : first <= j < first + {width} }}"],
        """
        for i
            <> first = starts[i] {id=first}
            y[i] = sum(j, v[j]) {dep=first}
        end
        """,
        "y f64 m; v f64 q; starts i32 m; m,n,q i32",
    )


def padded(subscript: str) -> Any:
    """Make a kernel over rows of different lengths in one array, a row for each work item."""
    return made(
        ["i<m", "j<length"],
        f"""
        for i
            <> length = lengths[i] {{id=length}}
            y[i] = sum(j, a[{subscript}]) {{dep=length}}
        end
        """,
        "y f64 m; a f64 m,m; lengths i32 m; m i32",
        split="i:16",
    )


def launched() -> Any:
    """Make a kernel of two launches, of which data decides the groups of the second."""
    return made(
        "j<number",
        """
        number = counts[0] {id=number}
        ... gbarrier {id=wait, dep=number}
        z[j] = 2*x[j] {dep=wait}
        """,
        "x,z f32 n; counts i32 1; number i32 () global; n i32",
        tags="j:g.0",
    )


def alternatives() -> Any:
    """Make a kernel with two branches of one condition on data."""
    return made(
        "i<m",
        """
        for i
            if c[i] > 0
                y[i] = 2*v[i] {id=double}
            else
                y[i] = v[i] + 1 {id=more, dep=double}
            end
        end
        """,
        "c,v,y f64 m; m i32",
    )


def elementwise(expression: str, loops: str = "i<m", target: str = "y[i]") -> Any:
    """Make a kernel that assigns an expression of ``v[i]``."""
    shape = "m,m" if "," in target else "m"
    return made(loops, f"{target} = {expression}", f"v f64 m; y f64 {shape}; m i32")
