"""Kinds of work groups, against kinds that are known by hand."""

from __future__ import annotations

from fractions import Fraction
from math import prod
from typing import Any

import numpy as np
import pytest

from countperf.counting import domains
from countperf.counting.work_groups import GroupKinds, WorkGroups
from countperf.devices.compile.objects import HostCode
from countperf.symbolic.point_arrays import MAX_KINDS
from tests.kernels import made

ROWS = made("i<n, j<m", "s[i] = sum(j, x[i,j])", "x f32 n,m; s f32 n; n,m i32", split="i:64")
TILES = made("i<n, j<m", "t[j,i] = a[i,j]", "a f32 n,m; t f32 m,n; n,m i32", split="i:16 j:8:1")
BLOCKS = made(
    "i<n, j<m, k<l", "b[i,j,k] = 2*a[i,j,k]", "a,b f32 n,m,l; n,m,l i32", split="i:16 j:4:1 k:2:2"
)
TRIANGLE = made(
    "{ [i, j] : 0 <= j <= i < n }", "z[i] = sum(j, x[j]*y[i])", "x,y,z f32 n; n i32", split="i:32"
)
HALF = made(
    "{ [i, j] : 0 <= j <= i < n }",
    "z[i,j] = x[i]*y[j]",
    "x,y f32 n; z f32 n,n; n i32",
    split="i:16 j:16:1",
)
BAND = made(
    "{ [i, j] : 0 <= i, j < n and i - 2 <= j <= i + 2 }",
    "z[i] = sum(j, x[j])",
    "x,z f32 n; n i32",
    split="i:32",
)
GUARD = made("i<n", "z[i] = x[i+3] {if=i<n-3}", "x,z f32 n; n i32", split="i:32")
SIDES = made("i<n", "z[i] = x[i-3] if i > 2 else 0", "x,z f32 n; n i32", split="i:32")
SECOND = made("i<n", "z[i] = x[i] {if=(i//32)%2==0}", "x,z f32 n; n i32", split="i:32")
NAMED = made(
    "i<n",
    """
    <> k = 2*i
    z[i] = x[i] {if=k<n}
    """,
    "x,z f32 n; n i32",
    split="i:32",
)
HALO = made("1<=i<n-1", "z[i] = x[i-1] + x[i+1]", "x,z f32 n; n i32", split="i:32")
DATA = made("i<n", "z[i] = x[i] {if=flag[i]>0}", "x,z f32 n; flag i32 n; n i32", split="i:32")
STEPS = made(
    "i<n, k<n",
    """
    for k
        for i
            x[i] = x[i] - 2 {id=first,if=i>k}
        end
        ... gbarrier {dep=first}
    end
    """,
    "x f32 n; n i32",
    split="i:32",
)


def kinds(unit: Any, groups: tuple[int, ...], **sizes: int) -> GroupKinds:
    name = unit.default_entrypoint.name
    return WorkGroups(unit).kinds(name, groups, sizes)


@pytest.mark.parametrize(
    ("unit", "groups", "sizes", "expected"),
    [
        pytest.param(ROWS, (2, 1, 1), {"n": 128, "m": 5}, {0: 2}, id="no edge"),
        pytest.param(ROWS, (2, 1, 1), {"n": 65, "m": 5}, {0: 1, 1: 1}, id="edge"),
        pytest.param(ROWS, (3, 1, 1), {"n": 129, "m": 5}, {0: 2, 2: 1}, id="edge of three"),
        pytest.param(
            TILES, (7, 9, 1), {"n": 100, "m": 70}, {0: 48, 6: 8, 56: 6, 62: 1}, id="edges"
        ),
        pytest.param(TILES, (7, 9, 1), {"n": 112, "m": 70}, {0: 56, 56: 7}, id="one edge"),
        pytest.param(
            BLOCKS,
            (4, 3, 3),
            {"n": 50, "m": 11, "l": 5},
            {0: 12, 3: 4, 8: 6, 11: 2, 24: 6, 27: 2, 32: 3, 35: 1},
            id="three axes",
        ),
        pytest.param(TRIANGLE, (4, 1, 1), {"n": 100}, {0: 1, 1: 1, 2: 1, 3: 1}, id="triangle"),
        pytest.param(HALF, (8, 8, 1), {"n": 128}, {0: 8, 1: 28, 8: 28}, id="tiles of a triangle"),
        pytest.param(BAND, (10, 1, 1), {"n": 320}, {0: 1, 1: 8, 9: 1}, id="band"),
        pytest.param(GUARD, (32, 1, 1), {"n": 1000}, {0: 31, 31: 1}, id="guard"),
        pytest.param(GUARD, (32, 1, 1), {"n": 1024}, {0: 31, 31: 1}, id="guard at the end"),
        pytest.param(SIDES, (32, 1, 1), {"n": 1024}, {0: 1, 1: 31}, id="sides of an if"),
        pytest.param(SECOND, (32, 1, 1), {"n": 1024}, {0: 16, 1: 16}, id="every second"),
        pytest.param(NAMED, (32, 1, 1), {"n": 1024}, {0: 16, 16: 16}, id="idle groups"),
        pytest.param(HALO, (10, 1, 1), {"n": 321}, {0: 1, 1: 9}, id="halo"),
        pytest.param(HALO, (10, 1, 1), {"n": 300}, {0: 1, 1: 8, 9: 1}, id="halo with an edge"),
    ],
)
def test_kinds(
    unit: Any, groups: tuple[int, int, int], sizes: dict[str, int], expected: dict[int, int]
) -> None:
    found = kinds(unit, groups, **sizes)
    assert found.is_known
    assert found.order is not None
    numbers = [kind.times for kind in found.kinds]
    # the first group of each kind, and how many there are
    places = [int(np.argmax(found.order == number)) for number in range(len(numbers))]
    assert dict(zip(places, numbers, strict=True)) == expected
    assert np.bincount(found.order).tolist() == numbers
    assert sum(numbers) == prod(groups)


def _items(group: int, n: int) -> list[int]:
    return [i for i in range(32 * group, 32 * group + 32) if i < n]


@pytest.mark.parametrize("n", [1000, 32 * 40])
def test_of_many_kinds_parts_have_as_many_iterations_as_all_their_groups(n: int) -> None:
    groups = -(-n // 32)
    assert groups > MAX_KINDS

    def iterations(group: int) -> int:
        return sum(i + 1 + 1 for i in _items(group, n))  # the sum is stored once for each item

    first, middle, last = kinds(TRIANGLE, (groups, 1, 1), n=n).kinds
    assert (first.point[0], first.times) == (0, 1)
    assert (last.point[0], last.times) == (groups - 1, 1)
    between = sum(map(iterations, range(1, groups - 1)))
    assert middle.times == Fraction(between, iterations(middle.point[0]))
    assert abs(middle.point[0] - groups / 2) <= 1


def test_what_data_decides_is_told() -> None:
    assert not kinds(DATA, (32, 1, 1), n=1024).is_known
    assert [kind.times for kind in kinds(DATA, (32, 1, 1), n=1000).kinds] == [31, 1]


def test_what_is_too_complicated_is_sorted_by_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(domains, "_OPERATIONS", 3)
    found = kinds(TILES, (7, 9, 1), n=100, m=70)
    assert not found.is_known
    assert len(found.kinds) == 9
    assert sum(kind.times for kind in found.kinds) == 63
    assert ((3, 4, 0), 35) in [(kind.point, kind.times) for kind in found.kinds]


def test_loops_of_the_host_have_their_values_among_the_arguments() -> None:
    launches = HostCode.of(STEPS).launches({"n": 96})
    assert len(launches) == 96
    sorter = WorkGroups(STEPS)
    found = {
        k: [
            kind.times
            for kind in sorter.kinds(
                launches[k].kernel, launches[k].groups, {"n": 96}, launches[k].integers
            ).kinds
        ]
        for k in (31, 40, 95)
    }
    # those before the step do nothing, and one that it is in does a part
    assert found == {31: [1, 2], 40: [1, 1, 1], 95: [3]}
