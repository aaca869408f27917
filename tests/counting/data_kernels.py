"""Kernels over rows of a sparse matrix, whose loops and conditions data decides."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import loopy as lp
import numpy as np

VERSION = (2018, 2)


def rows(body: str, domains: Sequence[str] = ()) -> Any:
    """Make a kernel whose loop ``j`` runs over the elements of row ``i``."""
    return lp.make_kernel(
        ["{ [i] : 0 <= i < m }", "{ [j] : 0 <= j < length }", *domains],
        f"""
        for i
            <> length = starts[i + 1] - starts[i] {{id=length}}
            {body}
        end
        """,
        [
            lp.GlobalArg("y", np.float64, shape="m"),
            lp.GlobalArg("v", np.float64, shape="q"),
            lp.GlobalArg("w", np.float64, shape="q,q"),
            lp.GlobalArg("starts", np.int32, shape="m + 1"),
            lp.ValueArg("m,q", np.int32),
        ],
        assumptions="m >= 1",
        lang_version=VERSION,
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
    return lp.make_kernel(
        ["{ [t] : 0 <= t < m }", "{ [i, d] : first <= i < last and 0 <= d < 2 }"],
        """
        for t
            <> first = starts[t]
            <> last = starts[t + 1]
            for i, d
                y[d, i] = 2*x[d, i]
            end
        end
        """,
        [
            lp.GlobalArg("starts", np.int32, shape="m + 1"),
            lp.GlobalArg("x,y", np.float64, shape="2,q"),
            lp.ValueArg("m,q", np.int32),
        ],
        assumptions="m >= 1",
        lang_version=VERSION,
    )


def window(width: str) -> Any:
    """Make a kernel with a loop that begins where data says, and runs as often as sizes say."""
    return lp.make_kernel(
        ["{ [i] : 0 <= i < m }", f"[first, n] -> {{ [j] : first <= j < first + {width} }}"],
        """
        for i
            <> first = starts[i] {id=first}
            y[i] = sum(j, v[j]) {dep=first}
        end
        """,
        [
            lp.GlobalArg("y", np.float64, shape="m"),
            lp.GlobalArg("v", np.float64, shape="q"),
            lp.GlobalArg("starts", np.int32, shape="m"),
            lp.ValueArg("m,n,q", np.int32),
        ],
        assumptions="m >= 1",
        lang_version=VERSION,
    )


def padded(subscript: str) -> Any:
    """Make a kernel over rows of different lengths in one array, a row for each work item."""
    unit = lp.make_kernel(
        ["{ [i] : 0 <= i < m }", "{ [j] : 0 <= j < length }"],
        f"""
        for i
            <> length = lengths[i] {{id=length}}
            y[i] = sum(j, a[{subscript}]) {{dep=length}}
        end
        """,
        [
            lp.GlobalArg("y", np.float64, shape="m"),
            lp.GlobalArg("a", np.float64, shape="m,m"),
            lp.GlobalArg("lengths", np.int32, shape="m"),
            lp.ValueArg("m", np.int32),
        ],
        assumptions="m >= 1",
        lang_version=VERSION,
    )
    return lp.split_iname(unit, "i", 16, outer_tag="g.0", inner_tag="l.0")


def launched() -> Any:
    """Make a kernel of two launches, of which data decides the groups of the second."""
    unit = lp.make_kernel(
        "{ [j] : 0 <= j < number }",
        """
        number = counts[0] {id=number}
        ... gbarrier {id=wait, dep=number}
        z[j] = 2*x[j] {dep=wait}
        """,
        [
            lp.GlobalArg("x,z", np.float32, shape="n"),
            lp.GlobalArg("counts", np.int32, shape=(1,)),
            lp.TemporaryVariable("number", np.int32, address_space=lp.AddressSpace.GLOBAL),
            lp.ValueArg("n", np.int32),
        ],
        lang_version=VERSION,
    )
    return lp.tag_inames(unit, "j:g.0")


def alternatives() -> Any:
    """Make a kernel with two branches of one condition on data."""
    return lp.make_kernel(
        "{ [i] : 0 <= i < m }",
        """
        for i
            if c[i] > 0
                y[i] = 2*v[i] {id=double}
            else
                y[i] = v[i] + 1 {id=more}
            end
        end
        """,
        [lp.GlobalArg("c,v,y", np.float64, shape="m"), lp.ValueArg("m", np.int32)],
        assumptions="m >= 1",
        lang_version=VERSION,
    )


def elementwise(expression: str, domain: str = "{ [i] : 0 <= i < m }", target: str = "y[i]") -> Any:
    """Make a kernel that assigns an expression of ``v[i]``."""
    return lp.make_kernel(
        domain,
        f"{target} = {expression}",
        [
            lp.GlobalArg("v", np.float64, shape="m"),
            lp.GlobalArg("y", np.float64, shape="m,m" if "," in target else "m"),
            lp.ValueArg("m", np.int32),
        ],
        assumptions="m >= 1",
        lang_version=VERSION,
    )
