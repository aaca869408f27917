"""Kernels with arrays as real projects make them: offsets, strides, split and vector axes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import loopy as lp
import numpy as np
from pymbolic import parse

F4, F8, I4 = np.float32, np.float64, np.int32


def scaled(
    source: Mapping[str, Any] | None = None,
    target: Mapping[str, Any] | None = None,
    *,
    more: str = "",
    dtype: Any = F8,
) -> Any:
    """Return ``z[i] = 2*x[i]``, with arrays declared as told."""
    arguments = [
        lp.GlobalArg("x", dtype, **{"shape": "n", **(source or {})}),
        lp.GlobalArg("z", dtype, **{"shape": "n", **(target or {})}),
        lp.ValueArg(f"n{more}", I4),
    ]
    unit = _made("{[i]: 0<=i<n}", "z[i] = 2*x[i]", arguments)
    return lp.split_iname(unit, "i", 16, outer_tag="g.0", inner_tag="l.0")


def plane(source: Mapping[str, Any], target: Mapping[str, Any], *, more: str = "") -> Any:
    """Return ``z[i,j] = 2*x[i,j]``, with arrays declared as told."""
    arguments = [
        lp.GlobalArg("x", F4, **{"shape": "n,m", **source}),
        lp.GlobalArg("z", F4, **{"shape": "n,m", **target}),
        lp.ValueArg(f"n,m{more}", I4),
    ]
    unit = _made("{[i,j]: 0<=i<n and 0<=j<m}", "z[i,j] = 2*x[i,j]", arguments)
    return lp.split_iname(unit, "j", 8, outer_tag="g.0", inner_tag="l.0")


def rows(width: int, tags: str, *, axis: str = "vec", **declared: Any) -> Any:
    """Return ``z = 2*x`` of arrays with an axis of a few places, tagged as told."""
    shape = f"n,{width}" if tags.endswith("vec") else f"{width},n"
    index = "i,c" if tags.endswith("vec") else "c,i"
    arguments = [
        lp.GlobalArg("x,z", F4, **{"shape": shape, **declared}),
        lp.ValueArg("n", I4),
    ]
    domain = f"{{[i,c]: 0<=i<n and 0<=c<{width}}}"
    unit = _made(domain, f"z[{index}] = 2*x[{index}]", arguments)
    unit = lp.tag_array_axes(unit, "x,z", tags)
    unit = lp.tag_inames(unit, {"c": axis})
    return lp.split_iname(unit, "i", 16, outer_tag="g.0", inner_tag="l.0")


def _made(domain: str, body: str, arguments: list[Any]) -> Any:
    return lp.make_kernel(
        domain,
        body,
        arguments,
        assumptions="n >= 1" + (" and m >= 1" if "j" in domain else ""),
        lang_version=(2018, 2),
        silenced_warnings=["v1_scheduler_fallback", "vectorize_failed"],
    )


@dataclass(frozen=True, kw_only=True)
class Laid:
    """A kernel whose ``z`` is twice its ``x``, and where elements lie, said by hand."""

    build: Callable[[], Any]  # makes the kernel
    sizes: Mapping[str, int]  # its sizes
    shape: tuple[int, ...]  # of both arrays
    # from an index of ``z`` to its buffer and its element there
    places: Callable[..., tuple[str, int]]
    given: Mapping[str, int] = field(default_factory=dict[str, int])  # further scalars
    order: Any = "C"  # in which the input lies


N = {"n": 100}
NM = {"n": 10, "m": 7}
PITCHED = {"strides": ("ld", 1)}
REVERSED = {"strides": (-1,), "offset": parse("n-1")}

LAID: dict[str, Laid] = {
    "plain": Laid(build=scaled, sizes=N, shape=(100,), places=lambda i: ("z", i)),
    "offset of the input": Laid(
        build=lambda: scaled({"offset": 3}), sizes=N, shape=(100,), places=lambda i: ("z", i)
    ),
    "offset of the output": Laid(
        build=lambda: scaled(target={"offset": 3}),
        sizes=N,
        shape=(100,),
        places=lambda i: ("z", 3 + i),
    ),
    "large offset": Laid(
        build=lambda: scaled(target={"offset": 100_000}),
        sizes=N,
        shape=(100,),
        places=lambda i: ("z", 100_000 + i),
    ),
    "offset by name": Laid(
        build=lambda: scaled(target={"offset": "off"}, more=",off"),
        sizes=N,
        shape=(100,),
        places=lambda i: ("z", i),
    ),
    "offset by name, given": Laid(
        build=lambda: scaled(target={"offset": "off"}, more=",off"),
        sizes={**N, "off": 5},
        shape=(100,),
        places=lambda i: ("z", 5 + i),
    ),
    "automatic offset": Laid(
        build=lambda: scaled({"offset": lp.auto}, {"offset": lp.auto}),
        sizes=N,
        shape=(100,),
        places=lambda i: ("z", i),
    ),
    "automatic offset, given": Laid(
        build=lambda: scaled({"offset": lp.auto}, {"offset": lp.auto}),
        sizes=N,
        shape=(100,),
        places=lambda i: ("z", 7 + i),
        given={"z_offset": 7, "x_offset": 1},
    ),
    "gaps": Laid(
        build=lambda: scaled({"strides": (5,)}, {"strides": (3,)}),
        sizes=N,
        shape=(100,),
        places=lambda i: ("z", 3 * i),
    ),
    "backwards": Laid(
        build=lambda: scaled(REVERSED, REVERSED),
        sizes=N,
        shape=(100,),
        places=lambda i: ("z", 99 - i),
    ),
    "unknown shapes": Laid(
        build=lambda: scaled({"shape": None}, {"shape": None}),
        sizes=N,
        shape=(100,),
        places=lambda i: ("z", i),
    ),
    "unknown slowest extents": Laid(
        build=lambda: plane({"shape": (None, parse("m"))}, {"shape": (None, parse("m"))}),
        sizes=NM,
        shape=(10, 7),
        places=lambda i, j: ("z", 7 * i + j),
    ),
    "pitch by name": Laid(
        build=lambda: plane(PITCHED, PITCHED, more=",ld"),
        sizes={**NM, "ld": 9},
        shape=(10, 7),
        places=lambda i, j: ("z", 9 * i + j),
    ),
    "automatic strides": Laid(
        build=lambda: plane({}, {"dim_tags": "stride:auto,stride:auto"}),
        sizes=NM,
        shape=(10, 7),
        places=lambda i, j: ("z", 7 * i + j),
    ),
    "automatic strides, given": Laid(
        build=lambda: plane({}, {"dim_tags": "stride:auto,stride:auto"}),
        sizes=NM,
        shape=(10, 7),
        places=lambda i, j: ("z", i + 12 * j),
        given={"z_stride0": 1, "z_stride1": 12},
    ),
    "automatic strides of an input in another order": Laid(
        build=lambda: plane({"dim_tags": "stride:auto,stride:auto"}, {}),
        sizes=NM,
        shape=(10, 7),
        places=lambda i, j: ("z", 7 * i + j),
        order="F",
    ),
    "column by column": Laid(
        build=lambda: plane({"order": "F"}, {"order": "F"}),
        sizes=NM,
        shape=(10, 7),
        places=lambda i, j: ("z", i + 10 * j),
    ),
    "split": Laid(
        build=lambda: rows(3, "sep,C", axis="unr"),
        sizes=N,
        shape=(3, 100),
        places=lambda c, i: (f"z_s{c}", i),
    ),
    "split, with automatic offsets": Laid(
        build=lambda: rows(2, "sep,C", axis="unr", offset=lp.auto),
        sizes=N,
        shape=(2, 100),
        places=lambda c, i: (f"z_s{c}", i + 4 * c),
        given={"z_s1_offset": 4},
    ),
    "vectors of 4": Laid(
        build=lambda: rows(4, "C,vec"),
        sizes=N,
        shape=(100, 4),
        places=lambda i, c: ("z", 4 * i + c),
    ),
    "vectors of 3": Laid(
        build=lambda: rows(3, "C,vec"),
        sizes=N,
        shape=(100, 3),
        places=lambda i, c: ("z", 4 * i + c),
    ),
    "components of vectors": Laid(
        build=lambda: rows(4, "C,vec", axis="unr"),
        sizes=N,
        shape=(100, 4),
        places=lambda i, c: ("z", 4 * i + c),
    ),
    "vectors with an offset": Laid(
        build=lambda: rows(4, "C,vec", offset=2),
        sizes=N,
        shape=(100, 4),
        places=lambda i, c: ("z", 4 * (2 + i) + c),
    ),
}
