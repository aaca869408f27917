"""Loads that are left where each element of an item is loaded once."""

from __future__ import annotations

import itertools
from fractions import Fraction

import loopy as lp
import numpy as np
import pytest
from loopy.version import LOOPY_USE_LANGUAGE_VERSION_2018_2

from countperf.counting.access_analysis import AccessAnalysis
from countperf.counting.analysis import analyze_kernel
from countperf.errors import CountingError
from measurement_kernels.published.convolution import TAPS, build_convolution
from merged_loads import merged_share

OWN = ("i", "j", "ey", "ex")


def _access(unit: lp.TranslationUnit, array: str, direction: str = "load") -> AccessAnalysis:
    (found,) = (
        each
        for each in analyze_kernel(unit).accesses
        if (each.access.array, each.access.direction) == (array, direction)
    )
    return found


@pytest.mark.parametrize(
    ("block", "tile"),
    [
        ((32, 1), (1, 4)),
        ((16, 8), (2, 3)),
        ((16, 16), (4, 4)),
        ((48, 2), (3, 1)),
        ((16, 4), (1, 1)),
    ],
)
def test_a_convolution_loads_each_pixel_of_an_item_once(
    block: tuple[int, int], tile: tuple[int, int]
) -> None:
    (wide, high), (columns, rows) = block, tile
    pixels = [
        (high * ey + i, wide * ex + j)
        for ey, ex, i, j in itertools.product(range(rows), range(columns), range(TAPS), range(TAPS))
    ]

    share = merged_share(_access(build_convolution(*block, *tile), "tile"), OWN)

    assert share == Fraction(len(set(pixels)), len(pixels))


def test_a_loop_that_is_not_unrolled_keeps_its_loads() -> None:
    access = _access(build_convolution(16, 1, 1, 4), "tile")

    assert merged_share(access, ("j",)) == 1
    assert merged_share(access, ("i", "ey")) == Fraction(15 + 3, 15 * 4)


def _unit(text: str) -> lp.TranslationUnit:
    return lp.make_kernel(
        "[n] -> { [g, k, m]: 0 <= g < n and 0 <= k < 8 and 0 <= m < n }",
        text,
        [
            lp.GlobalArg("a", np.float32, shape=("n + 64",)),
            lp.GlobalArg("b", np.float32, shape=("n",), is_input=False),
            lp.ValueArg("n", np.int32),
        ],
        assumptions="n >= 1",
        lang_version=LOOPY_USE_LANGUAGE_VERSION_2018_2,
    )


def test_refusals() -> None:
    squares = _unit("b[g] = sum(k, a[k*k])")
    long = _unit("b[g] = sum(m, a[m])")

    with pytest.raises(CountingError, match="is no load"):
        merged_share(_access(squares, "b", "store"), ("k",))
    with pytest.raises(CountingError, match="does not move evenly along 'k'"):
        merged_share(_access(squares, "a"), ("k",))
    with pytest.raises(CountingError, match="'m' has no constant number of iterations"):
        merged_share(_access(long, "a"), ("m",))
