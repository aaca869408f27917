"""The ranking of the published convolution: its models by hand, and how orders are judged."""

from __future__ import annotations

import numpy as np
import pytest

from convolution_features import GroupCounts, count_group, groups
from countperf.hardware.library import load_device
from rank_published_convolution import judged, registers, resident, sheet_s

ALL = (16, 16, 1, 1, 0)


def test_an_order_is_judged_by_the_times() -> None:
    times = np.array([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, np.nan])

    assert judged([1, 2, 3, 4, 5, 6, 7, 0], times) == (pytest.approx(1.0), 1.0, 1.0)
    assert judged([7, 6, 5, 4, 3, 2, 1, 0], times) == (pytest.approx(-1.0), 7.0, 3.0)
    # what does not fit is left out; of those alike, the first comes first
    assert judged([np.inf, 1, 1, 1, 1, 1, 1, 0], times)[1:] == (2.0, 2.0)


def test_groups_at_the_border_are_whole() -> None:
    assert groups((16, 16, 1, 1, 0)) == 256 * 256
    assert groups((48, 16, 2, 1, 0)) == 43 * 256


def test_the_data_sheet_by_hand() -> None:
    counts = count_group(ALL)
    a100 = load_device("nvidia-a100")

    # 8 sub-groups, 225 taps; two rows of 16 lanes are 30 words apart: two passes a load
    assert (counts.fused_instructions, counts.local_load_passes) == (8 * 225, 8 * 225 * 2)
    # groups on a multiprocessor: 2048 items, 65536 registers of which 28 round up to 32 an item
    assert (registers(ALL), resident(ALL, counts, a100)) == (28, 8)
    passes = counts.local_load_passes + counts.local_store_passes
    alone = passes + counts.load_sectors / 2 + 500
    cycles = max(passes, counts.load_sectors / 2, alone / 8)
    rounds = -(-256 * 256 // 108)
    assert sheet_s(ALL, counts, a100) == pytest.approx(rounds * cycles / 1.41e9)


def test_a_variant_that_does_not_fit_is_last() -> None:
    counts: GroupCounts = count_group((256, 4, 4, 4, 0))

    assert counts.local_bytes > 64 * 1024
    assert sheet_s((256, 4, 4, 4, 0), counts, load_device("amd-mi250x")) == float("inf")
