"""Tests of instructions of sub-groups against numbers worked out by hand."""

from __future__ import annotations

import pytest

from countperf.counting.analysis import TransactionCounts
from countperf.counting.counts import transaction_roots
from measurement_kernels.catalog import entry


def _counted(kernel: str, **sizes: int) -> dict[str, int]:
    counts = TransactionCounts(
        kernel=entry(kernel).build(), roots=("subgroups.32", "distinct"), statistics={}
    )
    return counts(sizes)


def test_a_partial_sub_group_counts_as_one() -> None:
    # 3 x 3 groups of 144 items, 4.5 sub-groups each, which are 5; three tiles of 12
    assert _counted("published-matmul/tiled/12x12", n=36) == {
        "subgroups.32.launched": 45,
        "subgroups.32.arithmetic": 45 * 36,  # a product and its addition are one
        "subgroups.32.load": 45 * 2 * 3,
        "subgroups.32.store": 45,
        "subgroups.32.local": 45 * 3 * (2 + 2 * 12),
        "subgroups.32.passes": 45 * 3 * (2 + 2 * 12),
        "subgroups.32.barrier": 45 * 3 * 2,
        "distinct.load": 2 * 4 * 36**2,
        "distinct.store": 4 * 36**2,
    }


def test_lanes_along_columns_of_tiles_meet_in_banks() -> None:
    # 16 x 16 items, row pitch 16 words: lanes x = 0..15 with two y lie in banks 0 and 16 (+y):
    # 8 words of one bank. Elements of the first tile, read along k, and both stores; the second
    # tile is read at two words
    found = _counted("published-matmul/tiled-swapped/16x16", n=16)
    assert found["subgroups.32.local"] == 8 * (2 + 2 * 16)
    assert found["subgroups.32.passes"] == 8 * (2 * 8 + 16 * 8 + 16)


def test_a_tree_occupies_fewer_sub_groups_with_each_level() -> None:
    # 256 items: levels of 128, 64 and 32 lanes, 4, 2 and 1 sub-groups, then five levels of one
    found = _counted("published-dot-product/256x1", rows=2, groups=3)
    assert found["subgroups.32.arithmetic"] == 3 * (2 * 8 + 12)
    assert found["subgroups.32.local"] == 3 * (8 + 3 * 12 + 1)
    assert found["subgroups.32.barrier"] == 3 * 8 * 9
    assert (found["distinct.load"], found["distinct.store"]) == (2 * 4 * 2 * 3 * 256, 4 * 3)


@pytest.mark.parametrize(
    ("name", "roots"),
    [
        ("subgroups.32.barrier", ("subgroups.32",)),
        ("subgroups.32.*", ("subgroups.32",)),
        ("distinct.load", ("distinct",)),
        ("subgroups.load", ()),
        ("distinctly.load", ()),
    ],
)
def test_names_say_what_is_meant(name: str, roots: tuple[str, ...]) -> None:
    assert transaction_roots([name]) == roots
