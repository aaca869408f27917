"""Published kernels are listed apart, and do what their descriptions say."""

from __future__ import annotations

from collections import Counter

import pytest

from countperf.counting.analysis import analyze_kernel
from countperf.errors import KernelSpecificationError
from countperf.measurements import KernelCase
from countperf.properties.count_properties import count_kernel
from measurement_kernels.catalog import entries, entry, families
from measurement_kernels.published import PUBLISHED_PREFIX


def _counts(case: KernelCase) -> dict[str, int]:
    found = count_kernel(case.build(), view="structure").evaluate(case.parameters)
    return {name: int(number) for name, number in found.items() if number}


def test_they_are_listed_apart_and_found_by_name() -> None:
    found = entries(collection="published", element_type=None)
    assert Counter(each.family for each in found) == {
        "published-matmul": 24,
        "published-matrix-sum": 8,
        "published-vector-add": 3,
        "published-dot-product": 3,
    }
    assert set(families(collection="published")) == {each.family for each in found}
    assert all(each.family.startswith(PUBLISHED_PREFIX) for each in found)
    assert all(entry(each.name) is each for each in found)
    listed = entries(element_type=None, purpose=None, collection=None)
    assert not [each for each in listed if each.family.startswith(PUBLISHED_PREFIX)]
    one = entries(collection="published", family="published-matmul", group_shape=(12, 12))
    assert {each.variant for each in one} == {"tiled", "tiled-swapped"}
    with pytest.raises(KernelSpecificationError, match="did you mean published-"):
        entry("published-matmull/tiled/16x16/f32")


@pytest.mark.parametrize("variant", ["tiled", "tiled-swapped"])
def test_a_tiled_product_has_two_barriers_a_tile(variant: str) -> None:
    # 3 x 3 groups of 12 x 12 items, three tiles each
    counts = _counts(entry(f"published-matmul/{variant}/12x12/f32").case_at(n=36))
    assert counts["barrier.local"] == 9 * 144 * 6
    assert counts["lmem.load.32"] == 2 * 36**3
    assert counts["lmem.store.32"] == 2 * 36**3 // 12


def test_a_scalar_product_adds_up_each_group_in_a_tree() -> None:
    case = entry("published-dot-product/64x1/f32").case_at(rows=3, groups=5)
    counts = _counts(case)
    # 64 items: levels of 32, 16, 8, 4, 2, 1 lanes, 63 together
    assert counts["flop.mul.f32"] == 5 * 64 * 3
    assert counts["flop.add.f32"] == 5 * (64 * 3 + 63)
    assert counts["lmem.load.32"] == 5 * (2 * 63 + 1)
    assert counts["lmem.store.32"] == 5 * (64 + 63)
    assert counts["barrier.local"] == 5 * 64 * 7
    stores = [each for each in analyze_kernel(case.build()).accesses if each.access.array == "r"]
    assert [each.executions.evaluate(case.parameters) for each in stores] == [5]
