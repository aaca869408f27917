"""Work items and rows of all groups, from the names of counts."""

from __future__ import annotations

import loopy as lp
import pytest

from countperf.counting.count_properties import count_kernel
from countperf.counting.counts import GROUP_SHAPE, granularity_of, group_shape, says_group_shape
from countperf.counting.keys import Granularity
from countperf.errors import CountingError
from tests.kernels import made


def _scale() -> lp.TranslationUnit:
    arguments = "x,z f32 m,n; m,n i32"
    return made("i<n, j<m", "z[j, i] = 2*x[j, i]", arguments, split="i:16 j:4:1")


def test_items_and_rows_are_symbolic_counts() -> None:
    vector = count_kernel(_scale(), view="structure").mapped(lambda c: {**c, **group_shape(c)})

    for n, m in ((16, 4), (17, 9), (1000, 3)):
        values = vector.evaluate(n=n, m=m)
        groups = -(-n // 16) * -(-m // 4)
        assert [values[key] for key in ("groups", "items", "rows")] == [
            size * groups for size in (1, 64, 4)
        ]
    assert all(vector[name].exact for name in GROUP_SHAPE)


@pytest.mark.parametrize(
    ("counts", "said"),
    [
        ({"groups": 3}, "how many items"),
        (
            {"groups": 3, "site.free.flat.8x8.passes": 1, "site.sync.flat.8x4.passes": 2},
            r"several shapes are launched \(8x4, 8x8\)",
        ),
    ],
)
def test_what_counts_do_not_say_is_refused(counts: dict[str, int], said: str) -> None:
    with pytest.raises(CountingError, match=said):
        group_shape(counts)
    assert not says_group_shape(counts)


def test_no_groups_have_no_shape_and_no_instruction_executes_it() -> None:
    assert group_shape({"launches": 1}) == {}
    assert says_group_shape(["launches"])
    assert {granularity_of(name) for name in GROUP_SHAPE} == {Granularity.WORK_GROUP}
    with pytest.raises(CountingError, match="items is counted per work group"):
        count_kernel(_scale(), instruction_counts={"insn": {"items": 1}})
