"""Caches that groups fill one after the other."""

from __future__ import annotations

import numpy as np
import pytest

from countperf.harness.compiled.accesses import Accesses
from countperf.harness.compiled.caches import LEVELS, LINE_BYTES, Cache, Caches, run_groups


def accesses(addresses: object, size: int = 4, *, is_store: bool = False) -> Accesses:
    places = np.array(addresses, dtype=np.int64)
    return Accesses(
        address=places,
        size=np.full(len(places), size),
        is_store=np.full(len(places), is_store),
        unknown=0,
    )


LINES = np.arange(1000) * LINE_BYTES


def test_lines_are_fetched_once() -> None:
    caches = Caches()
    walk = np.arange(4000) * 16
    assert caches.run(accesses(walk)) == {"cold_far_load": 1, "cold_near_load": 999}
    assert not caches.run(accesses(walk[:2800:-1]))


def test_what_the_first_cache_has_no_more_the_second_has() -> None:
    caches = Caches()
    caches.run(accesses(LINES))
    first = LEVELS[0].sets * LEVELS[0].ways
    assert first < len(LINES)
    # each line makes way for the one that comes back
    assert sum(caches.run(accesses(LINES)).values()) == len(LINES)
    assert set(caches.run(accesses(LINES, is_store=True))) <= {
        "miss1_near_store",
        "miss1_far_store",
    }


def test_lines_that_share_a_set_make_way() -> None:
    caches = Caches()
    sets, ways = LEVELS[0].sets, LEVELS[0].ways
    for number, expected in ((ways, 0), (ways + 1, ways + 1)):
        places = np.arange(number) * sets * LINE_BYTES
        caches.run(accesses(places))
        assert sum(caches.run(accesses(places)).values()) == expected


def test_second_caches_are_too_small_as_well() -> None:
    caches = Caches((Cache(sets=1, ways=2), Cache(sets=1, ways=4)))
    walk = accesses(np.arange(5) * 10 * LINE_BYTES)
    assert caches.run(walk) == {"cold_far_load": 5}
    assert caches.run(walk) == {"miss2_far_load": 5}


@pytest.mark.parametrize(("start", "lines"), [(0, 1), (56, 1), (60, 2), (63, 2)])
def test_accesses_across_lines_take_both(start: int, lines: int) -> None:
    assert sum(Caches().run(accesses([start], 8)).values()) == lines


def test_first_groups_only_fill_the_caches() -> None:
    groups = [accesses(LINES[:100]), accesses(LINES[50:150]), accesses(LINES[:150])]
    found = run_groups(groups, 1)
    assert found == {"cold_near_load": 50}
    assert not run_groups(groups, 2)
