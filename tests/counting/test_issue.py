"""Issued work of policies for a unit of a count: by hand, from the rules of a row of items."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest

from countperf.counting.structure.issue import ExecutionPolicy, apply_policy, issue
from countperf.counting.taxonomy import validate_name

_EIGHT: dict[str, Any] = {"width": 8, "remainder": "scalar"}
_FLAT = {"width": 8, "remainder": "scalar", "vectorized": "flat"}
_MASKED = _FLAT | {"guards": "masked"}
_BEHIND = {"rows": "multiples behind barriers", "remainder": "scalar"}
_REUSED = ["l1_reuse", "l2_reuse", "beyond_l2"]
_LED = ["data", "l2_reuse", "beyond_l2"]


def _each(*servings: str, space: str = "scalar.gmem.load", share: Any = 1) -> dict[str, Any]:
    return {f"{space}.{serving}": share for serving in servings}


@pytest.mark.parametrize(
    ("policy", "site", "issued"),
    [
        # rows of 20 items: two vectors of 8, and four items
        (
            _EIGHT,
            "free.flat.20x2.flop.fma.f64",
            "vector.arithmetic.f64.fma 2/20, scalar.arithmetic.f64.fma 4/20",
        ),
        ({"width": 8}, "free.flat.20x2.flop.fma.f64", "vector.arithmetic.f64.fma 3/20"),
        (
            {"width": 8, "along": "group"},
            "free.flat.20x2.flop.fma.f64",
            "vector.arithmetic.f64.fma 5/40",
        ),
        (
            {"width": 32, "along": "group"},
            "free.flat.16x3.flop.add.f32",
            "vector.arithmetic.f32.add 2/48",
        ),
        # which rows run in vectors
        (_BEHIND, "sync.flat.24x1.flop.fma.f32", "scalar.arithmetic.f32.fma 1"),
        (
            _BEHIND,
            "free.flat.24x1.flop.fma.f32",
            "vector.arithmetic.f32.fma 1/24, scalar.arithmetic.f32.fma 8/24",
        ),
        # accesses within lines; wide elements take more of them
        (
            _EIGHT,
            "free.flat.20x2.gmem.load.64.next",
            "vector.gmem.load.next 4/20, scalar.gmem.load.walk 4/20",
        ),
        ({}, "free.flat.4x32.gmem.load.32.next-l1_reuse", "vector.gmem.load.next 1/4"),
        *(
            (
                {"width": 8},
                f"sync.{place}.16x2.lmem.load.32.{lane}{walk}",
                {f"vector.lmem.load.{lane}": "1/8"},
            )
            for lane in ("same", "next", "shifted")
            for place, walk in (("flat", ""), ("loop", ".near"))
        ),
        # accesses to other lines, item by item, pass the nearer caches
        *(
            (policy, f"free.flat.20x2.gmem.load.32.{prefix}{level}", _each(*served[: k + 1]))
            for policy in ({"width": 1}, _EIGHT)
            for prefix, served in (("", _REUSED), ("data_", _LED))
            for k, level in enumerate(_REUSED)
            if (prefix, level) != ("data_", "l1_reuse")
        ),
        (_FLAT, "free.loop.16x2.gmem.store.32.data.data", "scalar.gmem.store.data 1"),
        ({}, "sync.loop.32x1.gmem.load.32.l1_reuse.next", "scalar.gmem.load.l1_reuse 1"),
        *(
            (
                {"width": 1},
                f"free.flat.20x2.gmem.load.32.l1_reuse_conflict{grade}",
                _each("l1_reuse") | _each("set_conflict", share=share),
            )
            for grade, share in ((1, "1/4"), (2, "5/8"), (3, 1))
        ),
        ({}, "free.flat.16x1.gmem.load.32.beyond_l2_conflict3", _each(*_REUSED, "set_conflict")),
        # vectors of neighbors that go on to other lines
        (
            _EIGHT,
            "free.flat.20x2.gmem.load.32.next.l2_reuse",
            {
                **_each("strided", "l2_reuse", space="vector.gmem.load", share="2/20"),
                **_each("l1_reuse", "l2_reuse", share="4/20"),
            },
        ),
        # rows that access memory one by one: odd single ones, and several with shifted local loads
        ({"odd_rows": "apart"}, "free.flat.48x1.gmem.load.32.next", _each("walk")),
        ({"odd_rows": "apart"}, "free.flat.64x1.gmem.load.32.next", "vector.gmem.load.next 1/16"),
        ({"odd_rows": "apart"}, "free.flat.48x2.gmem.load.32.next", "vector.gmem.load.next 1/16"),
        (
            {"odd_rows": "apart"},
            "free.short.48x1.gmem.load.32.next.near",
            "vector.gmem.load.next 1/16",
        ),
        (
            {"odd_rows": "apart"},
            "free.loop.48x1.gmem.load.32.next.l1_reuse",
            "vector.gmem.load.strided 1/16",
        ),
        ({"shifted": "apart"}, "sync.flat.32x2.lmem.load.32.shifted", "scalar.lmem.load.walk 1"),
        ({"shifted": "apart"}, "sync.flat.32x2.lmem.load.32.next", "vector.lmem.load.next 1/16"),
        (
            {"shifted": "apart"},
            "sync.flat.32x2.lmem.store.32.shifted",
            "vector.lmem.store.shifted 1/16",
        ),
        (
            {"shifted": "apart"},
            "sync.flat.64x1.lmem.load.32.offset",
            "vector.lmem.load.offset 1/16",
        ),
        (
            {"shifted": "apart"},
            "sync.loop.32x2.lmem.load.32.shifted.near",
            "vector.lmem.load.shifted 1/16",
        ),
        # accesses under conditions; an item's branch in a loop of its own
        (_MASKED, "free.flat.20x4.guarded.gmem.store.64.next", "vector.guarded.gmem.store 4/20"),
        (_FLAT, "free.flat.20x4.guarded.gmem.store.64.next", ""),
        (_MASKED, "free.flat.16x4.guarded.gmem.load.32.l1_reuse", "scalar.guarded.gmem.load 1"),
        (_MASKED, "free.loop.16x4.guarded.gmem.load.32.next", ""),
        # private arrays: in registers if written out, in memory where they are large
        *(
            ({"width": 8, "arrays": arrays}, f"sync.{place}.16x1.pmem.load.16", issued)
            for place in ("flat", "loop")
            for arrays, issued in (
                (0, {"vector.pmem.load": "1/8"}),
                (8, {"vector.pmem.gather": 1}),
                (16, {"vector.pmem.load": "1/8"}),
            )
        ),
        ({"width": 8, "arrays": 8}, "sync.short.16x1.pmem.store.16", "vector.pmem.scatter 1"),
        ({"width": 8}, "sync.short.16x1.pmem.store.16", ""),
        (_FLAT | {"arrays": 8}, "sync.loop.16x1.pmem.store.16", "scalar.pmem.store 1"),
        # calls that not all items make
        *(
            ({"width": 1}, f"free.flat.20x2.flop.conditional.f32.{name}", {f"scalar.{alone}": 1})
            for name, alone in (
                ("exp", "special.f32.exp"),
                ("pow", "pow.f32"),
                ("fabs", "minor.f32.fabs"),
            )
        ),
        (
            _EIGHT,
            "free.flat.20x2.flop.conditional.f32.exp",
            "vector.conditional.f32.exp 2/20, scalar.special.f32.exp 4/20",
        ),
        ({}, "free.flat.16x1.flop.conditional.f32.fabs", "vector.minor.f32.fabs 1/16"),
        # chains, loops and regions
        (_EIGHT, "free.loop.16x1.chain.fma.f32", "vector.chain.f32.arithmetic 1/8"),
        (_EIGHT, "free.flat.20x2.chain.fma.f32", ""),
        *(
            (_FLAT, f"sync.short.16x1.{what}", {})
            for what in ("entries", "iterations", "chain.fma.f32")
        ),
        (_FLAT, "sync.short.16x1.flop.fma.f32", "vector.arithmetic.f32.fma 1/8"),
        ({}, "sync.loop.16x2.entries", "vector.entries 1/16"),
        ({"vectorized": "flat"}, "sync.loop.16x2.entries", "scalar.entries 1"),
        (_EIGHT, "free.flat.16x1.carried", ""),
        (_EIGHT, "sync.flat.16x1.carried", "vector.carried 1/8"),
        (_EIGHT, "sync.short.16x1.carried", "vector.carried 1/8"),
        (_EIGHT, "sync.loop.16x1.carried", ""),
        ({"width": 1}, "free.flat.20x2.passes", "scalar.passes.free 1, scalar.rows.free 2"),
        ({}, "sync.flat.32x16.live_across_barrier.8.64", "vector.live_across_barrier 2/16"),
    ],
    ids=str,
)
def test_a_site_is_issued_as(policy: Any, site: str, issued: str | dict[str, Any]) -> None:
    if isinstance(issued, str):
        issued = dict(part.split(" ") for part in issued.split(", ") if part)
    made: Any = ExecutionPolicy(**policy)
    result = dict(issue(f"site.{site}", made))
    assert result == {f"issue.{name}": Fraction(share) for name, share in issued.items()}
    for name in result:
        validate_name(name)


def test_what_is_issued_and_launched_stays_and_parts_add_up() -> None:
    policy = ExecutionPolicy(**_EIGHT)
    same = {"bytes.group.load.dense": 5.0, "groups": 7, "issue.vector.idle": 3}
    assert apply_policy(policy, same) == same
    counts = {"site.free.flat.8x1.flop.fma.f32": 16, "site.free.loop.8x2.flop.fma.f32": 8, "iop": 1}
    assert apply_policy(policy, counts) == {"issue.vector.arithmetic.f32.fma": 3}
