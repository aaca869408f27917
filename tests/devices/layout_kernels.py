"""Kernels with arrays as real projects make them: offsets, strides, split and vector axes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import loopy as lp
import numpy as np
from numpy.typing import NDArray
from pymbolic import parse

from countperf.devices.binding import bind_arguments
from tests.kernels import in_groups, made

F4, F8, I4 = np.float32, np.float64, np.int32

Declared = Mapping[str, Any]


def scaled(source: Declared | None = None, target: Declared | None = None, more: str = "") -> Any:
    """Return ``z[i] = 2*x[i]``, with arrays declared as told."""
    arrays = (
        lp.GlobalArg(name, F8, **{"shape": "n", **(declared or {})})
        for name, declared in (("x", source), ("z", target))
    )
    return made("i<n", "z[i] = 2*x[i]", f"n{more} i32", *arrays, split="i:16")


def plane(source: Declared, target: Declared, more: str = "") -> Any:
    """Return ``z[i,j] = 2*x[i,j]``, with arrays declared as told."""
    arrays = (
        lp.GlobalArg(name, F4, **{"shape": "n,m", **declared})
        for name, declared in (("x", source), ("z", target))
    )
    domain, assumptions = "{[i,j]: 0<=i<n and 0<=j<m}", "n >= 1 and m >= 1"
    sizes = f"n,m{more} i32"
    return made(domain, "z[i,j] = 2*x[i,j]", sizes, *arrays, assumptions=assumptions, split="j:8")


def rows(width: int, tags: str, *, axis: str = "vec", **declared: Any) -> Any:
    """Return ``z = 2*x`` of arrays with an axis of a few places, tagged as told."""
    shape, index = (f"n,{width}", "i,c") if tags.endswith("vec") else (f"{width},n", "c,i")
    unit = made(
        f"{{[i,c]: 0<=i<n and 0<=c<{width}}}",
        f"z[{index}] = 2*x[{index}]",
        "n i32",
        lp.GlobalArg("x,z", F4, **{"shape": shape, **declared}),
        silenced_warnings=["v1_scheduler_fallback", "vectorize_failed"],
    )
    unit = lp.tag_array_axes(unit, "x,z", tags)
    return in_groups(lp.tag_inames(unit, {"c": axis}), "i:16")


class Laid(NamedTuple):
    """A kernel whose ``z`` is twice its ``x``, and where elements lie, said by hand."""

    build: Callable[[], Any]  # makes the kernel
    sizes: Mapping[str, int]  # its sizes
    shape: tuple[int, ...]  # of both arrays
    # from an index of ``z`` to its element in its buffer, and its buffer if it is not ``z``
    places: Callable[..., int | tuple[str, int]]
    given: Mapping[str, int] = {}  # further scalars
    order: Any = "C"  # in which the input lies

    def assert_doubled(self, session: Any) -> None:
        kernel = session.build_kernel(self.build())
        random = np.random.default_rng(5).random(self.shape) + 1
        x: NDArray[Any] = np.asarray(random, kernel.arrays[0].dtype, order=self.order)
        bound = bind_arguments(session, kernel, self.sizes, {"x": x, **self.given})
        kernel.launch(bound.arguments)
        session.finish()
        np.testing.assert_array_equal(bound.read("z"), 2 * x)
        np.testing.assert_array_equal(bound.read("x"), x)
        wanted: dict[str, dict[int, Any]] = {}
        for index in np.ndindex(self.shape):
            place = self.places(*index)
            buffer, element = place if isinstance(place, tuple) else ("z", place)
            wanted.setdefault(buffer, {})[element] = 2 * x[index]
        for buffer, elements in wanted.items():
            placement = bound.bindings.placements[buffer]
            flat = session.download(bound.arguments[buffer], x.dtype, placement.count)
            expected = np.zeros_like(flat)
            expected[list(elements)] = list(elements.values())
            if self.shape == (100, 3):  # OpenCL leaves open whether the fourth component is written
                flat[3::4] = 0
            np.testing.assert_array_equal(flat, expected)


N, NM = {"n": 100}, {"n": 10, "m": 7}
LONG, FLAT, FOUR, THREE = (100,), (10, 7), (100, 4), (100, 3)
PITCHED = {"strides": ("ld", 1)}
REVERSED = {"strides": (-1,), "offset": parse("n-1")}
_UNKNOWN, _SLOWEST = {"shape": None}, {"shape": (None, parse("m"))}
_OFFSET, _STRIDES = {"offset": lp.auto}, {"dim_tags": "stride:auto,stride:auto"}
_NAMED: Callable[[], Any] = lambda: scaled(target={"offset": "off"}, more=",off")  # noqa: E731
_COLUMNS = {"order": "F"}

LAID: dict[str, Laid] = {
    "plain": Laid(scaled, N, LONG, lambda i: i),
    "offset of the input": Laid(lambda: scaled({"offset": 3}), N, LONG, lambda i: i),
    "offset of the output": Laid(lambda: scaled(target={"offset": 3}), N, LONG, lambda i: 3 + i),
    "large offset": Laid(lambda: scaled(None, {"offset": 10**5}), N, LONG, lambda i: 10**5 + i),
    "offset by name": Laid(_NAMED, N, LONG, lambda i: i),
    "offset by name, given": Laid(_NAMED, {**N, "off": 5}, LONG, lambda i: 5 + i),
    "automatic offset": Laid(lambda: scaled(_OFFSET, _OFFSET), N, LONG, lambda i: i),
    "automatic offset, given": Laid(
        lambda: scaled(_OFFSET, _OFFSET), N, LONG, lambda i: 7 + i, {"z_offset": 7, "x_offset": 1}
    ),
    "gaps": Laid(lambda: scaled({"strides": (5,)}, {"strides": (3,)}), N, LONG, lambda i: 3 * i),
    "backwards": Laid(lambda: scaled(REVERSED, REVERSED), N, LONG, lambda i: 99 - i),
    "unknown shapes": Laid(lambda: scaled(_UNKNOWN, _UNKNOWN), N, LONG, lambda i: i),
    "unknown slowest extents": Laid(
        lambda: plane(_SLOWEST, _SLOWEST), NM, FLAT, lambda i, j: 7 * i + j
    ),
    "pitch by name": Laid(
        lambda: plane(PITCHED, PITCHED, ",ld"), {**NM, "ld": 9}, FLAT, lambda i, j: 9 * i + j
    ),
    "automatic strides": Laid(lambda: plane({}, _STRIDES), NM, FLAT, lambda i, j: 7 * i + j),
    "automatic strides, given": Laid(
        lambda: plane({}, _STRIDES),
        NM,
        FLAT,
        lambda i, j: i + 12 * j,
        {"z_stride0": 1, "z_stride1": 12},
    ),
    "automatic strides of an input in another order": Laid(
        lambda: plane(_STRIDES, {}), NM, FLAT, lambda i, j: 7 * i + j, order="F"
    ),
    "column by column": Laid(lambda: plane(_COLUMNS, _COLUMNS), NM, FLAT, lambda i, j: i + 10 * j),
    "split": Laid(lambda: rows(3, "sep,C", axis="unr"), N, (3, 100), lambda c, i: (f"z_s{c}", i)),
    "split, with automatic offsets": Laid(
        lambda: rows(2, "sep,C", axis="unr", offset=lp.auto),
        N,
        (2, 100),
        lambda c, i: (f"z_s{c}", i + 4 * c),
        {"z_s1_offset": 4},
    ),
    "vectors of 4": Laid(lambda: rows(4, "C,vec"), N, FOUR, lambda i, c: 4 * i + c),
    "vectors of 3": Laid(lambda: rows(3, "C,vec"), N, THREE, lambda i, c: 4 * i + c),
    "components of vectors": Laid(
        lambda: rows(4, "C,vec", axis="unr"), N, FOUR, lambda i, c: 4 * i + c
    ),
    "vectors with an offset": Laid(
        lambda: rows(4, "C,vec", offset=2), N, FOUR, lambda i, c: 4 * (2 + i) + c
    ),
}
