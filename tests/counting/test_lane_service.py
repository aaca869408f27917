"""Parts of sub-groups: numbers worked out by hand for small kernels."""

from __future__ import annotations

from functools import cache

import loopy as lp
import numpy as np
import pytest
from loopy.version import LOOPY_USE_LANGUAGE_VERSION_2018_2

from countperf.counting.access_analysis import AccessAnalysis
from countperf.counting.analysis import analyze_kernel
from lane_service import KEPLER_WIDE, MAXWELL_WIDE, WideService, served_sectors, wide_load_passes
from measurement_kernels.catalog import entry


@cache
def _copy(index: str) -> tuple[AccessAnalysis, ...]:
    """Analyze ``out[i] = a[index]`` in groups of 32 items."""
    unit = lp.make_kernel(
        "{ [i] : 0 <= i < n }",
        f"out[i] = a[{index}]",
        [
            lp.GlobalArg("a", np.float32, shape="(2*n + 4,)"),
            lp.GlobalArg("out", np.float32, shape="(n,)", is_input=False),
            lp.ValueArg("n", np.int32),
        ],
        assumptions="n >= 32 and n mod 32 = 0",
        lang_version=LOOPY_USE_LANGUAGE_VERSION_2018_2,
    )
    return analyze_kernel(lp.split_iname(unit, "i", 32, outer_tag="g.0", inner_tag="l.0")).accesses


def _only(accesses: tuple[AccessAnalysis, ...], direction: str, array: str) -> AccessAnalysis:
    (found,) = (
        each
        for each in accesses
        if each.access.direction == direction and each.access.array == array
    )
    return found


@pytest.mark.parametrize(
    ("index", "sectors"),
    [
        ("i", 8),  # lanes 0-3 lie in one sector, lanes 8-11 in another: two for each of four parts
        ("0", 4),  # one sector for each part
        ("i + 4", 8),  # 16 bytes on: still a sector for each four lanes
        # 4 bytes on: lanes 0-3 lie in sector 0 and 8-11 in 1; 4-7 in 0 and 1, 12-15 in 1 and 2
        ("i + 1", 10),
        ("2*i", 8),  # four lanes fill a sector
    ],
)
def test_parts_of_a_sub_group_ask_for_sectors_of_their_own(index: str, sectors: int) -> None:
    load = _only(_copy(index), "load", "a")
    assert served_sectors(load, {"n": 96}) == 3 * sectors


def test_a_store_goes_on_in_the_line_in_which_the_part_before_ended() -> None:
    store = _only(_copy("i"), "store", "out")
    assert served_sectors(store, {"n": 96}) == 3 * 8
    assert served_sectors(store, {"n": 96}, joined_bytes=128) == 3 * 4


def test_lanes_along_columns_come_back_to_lines_too_late_to_go_on() -> None:
    # 8 by 8 items of an 8 by 8 matrix: lane x of row y stores byte 32 x + 4 y. A sub-group has
    # y = 0..3. Parts hold x = 0..3 (line 0) with two y, then x = 4..7 (line 1), then both again
    accesses = analyze_kernel(entry("published-matrix-sum/columns/8x8").build()).accesses
    store = _only(accesses, "store", "s")
    assert served_sectors(store, {"n": 8}) == 2 * 16
    assert served_sectors(store, {"n": 8}, joined_bytes=128) == 2 * 16
    load = _only(accesses, "load", "a")
    assert served_sectors(load, {"n": 8}) == 2 * 16


@pytest.mark.parametrize(
    ("variant", "service", "passes"),
    [
        # 16 lanes read the same 16 bytes of one row, the others of the next: a pass for each half
        ("tiled", KEPLER_WIDE, 2),
        ("tiled", MAXWELL_WIDE, 2),
        # lane x reads 16 bytes at 64 x. In banks of 8 bytes, every fourth of 16 lanes meets the
        # same bank: 4 passes for each half. In banks of 4 bytes, every second of 8 lanes does: 4
        # passes for each quarter
        ("tiled-swapped", KEPLER_WIDE, 8),
        ("tiled-swapped", MAXWELL_WIDE, 16),
    ],
)
def test_loads_of_four_elements_pass_over_the_banks(
    variant: str, service: WideService, passes: int
) -> None:
    # one group of 8 sub-groups, one tile, 16 elements a row: four loads for each sub-group
    accesses = analyze_kernel(entry(f"published-matmul/{variant}/16x16").build()).accesses
    wide = _only(accesses, "load", "a_fetch")
    assert wide_load_passes(wide, {"n": 16}, service) == (32, 32 * passes)
    assert wide_load_passes(wide, {"n": 32}, service) == (8 * 32, 8 * 32 * passes)


def test_what_does_not_run_along_a_row_is_not_wide() -> None:
    accesses = analyze_kernel(entry("published-matmul/tiled/16x16").build()).accesses
    along_a_column = _only(accesses, "load", "b_fetch")
    assert wide_load_passes(along_a_column, {"n": 16}, MAXWELL_WIDE) == (0, 0)
