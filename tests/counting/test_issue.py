"""Issued work of policies for a unit of a count: by hand, from the rules of a row of items."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Any

import pytest

from countperf.counting.structure.issue import ExecutionPolicy, apply_policy, issue
from countperf.counting.taxonomy import validate_name

EIGHT: dict[str, Any] = {"width": 8, "remainder": "scalar"}
POLICIES = {
    "eight": EIGHT,
    "flat": EIGHT | {"vectorized": "flat"},
    "masked": EIGHT | {"vectorized": "flat", "guards": "masked"},
    "behind": {"rows": "multiples behind barriers", "remainder": "scalar"},
}

# policy, site, and what it is issued as, with its share where that is not 1
ROWS = """
# rows of 20 items: two vectors of 8, and four items
eight free.flat.20x2.flop.fma.f64 vector.arithmetic.f64.fma=2/20 scalar.arithmetic.f64.fma=4/20
width=8 free.flat.20x2.flop.fma.f64 vector.arithmetic.f64.fma=3/20
width=8,along=group free.flat.20x2.flop.fma.f64 vector.arithmetic.f64.fma=5/40
width=32,along=group free.flat.16x3.flop.add.f32 vector.arithmetic.f32.add=2/48
# which rows run in vectors
behind sync.flat.24x1.flop.fma.f32 scalar.arithmetic.f32.fma
behind free.flat.24x1.flop.fma.f32 vector.arithmetic.f32.fma=1/24 scalar.arithmetic.f32.fma=8/24
# accesses within lines; wide elements take more of them
eight free.flat.20x2.gmem.load.64.next vector.gmem.load.next=4/20 scalar.gmem.load.walk=4/20
- free.flat.4x32.gmem.load.32.next-l1_reuse vector.gmem.load.next=1/4
width=8 sync.loop.16x2.lmem.load.32.same.near vector.lmem.load.same=1/8
width=8 sync.loop.16x2.lmem.load.32.next.near vector.lmem.load.next=1/8
width=8 sync.loop.16x2.lmem.load.32.shifted.near vector.lmem.load.shifted=1/8
# accesses to other lines, item by item, pass the nearer caches
width=1 free.flat.20x2.gmem.load.32.l1_reuse scalar.gmem.load.l1_reuse
width=1 free.flat.20x2.gmem.load.32.l2_reuse scalar.gmem.load.{l1_reuse,l2_reuse}
width=1 free.flat.20x2.gmem.load.32.beyond_l2 scalar.gmem.load.{l1_reuse,l2_reuse,beyond_l2}
width=1 free.flat.20x2.gmem.load.32.data_l2_reuse scalar.gmem.load.{data,l2_reuse}
width=1 free.flat.20x2.gmem.load.32.data_beyond_l2 scalar.gmem.load.{data,l2_reuse,beyond_l2}
eight free.flat.20x2.gmem.load.32.l1_reuse scalar.gmem.load.l1_reuse
eight free.flat.20x2.gmem.load.32.l2_reuse scalar.gmem.load.{l1_reuse,l2_reuse}
eight free.flat.20x2.gmem.load.32.beyond_l2 scalar.gmem.load.{l1_reuse,l2_reuse,beyond_l2}
eight free.flat.20x2.gmem.load.32.data_l2_reuse scalar.gmem.load.{data,l2_reuse}
eight free.flat.20x2.gmem.load.32.data_beyond_l2 scalar.gmem.load.{data,l2_reuse,beyond_l2}
flat free.loop.16x2.gmem.store.32.data.data scalar.gmem.store.data
- sync.loop.32x1.gmem.load.32.l1_reuse.next scalar.gmem.load.l1_reuse
width=1 free.flat.20x2.gmem.load.32.l1_reuse_conflict1
  scalar.gmem.load.l1_reuse scalar.gmem.load.set_conflict=1/4
width=1 free.flat.20x2.gmem.load.32.l1_reuse_conflict2
  scalar.gmem.load.l1_reuse scalar.gmem.load.set_conflict=5/8
width=1 free.flat.20x2.gmem.load.32.l1_reuse_conflict3 scalar.gmem.load.{l1_reuse,set_conflict}
- free.flat.16x1.gmem.load.32.beyond_l2_conflict3
  scalar.gmem.load.{l1_reuse,l2_reuse,beyond_l2,set_conflict}
# vectors of neighbors that go on to other lines
eight free.flat.20x2.gmem.load.32.next.l2_reuse
  vector.gmem.load.{strided,l2_reuse}=2/20 scalar.gmem.load.{l1_reuse,l2_reuse}=4/20
# rows that access memory one by one
odd_rows=apart free.flat.48x1.gmem.load.32.next scalar.gmem.load.walk
odd_rows=apart free.flat.64x1.gmem.load.32.next vector.gmem.load.next=1/16
odd_rows=apart free.flat.48x2.gmem.load.32.next vector.gmem.load.next=1/16
odd_rows=apart free.short.48x1.gmem.load.32.next.near vector.gmem.load.next=1/16
odd_rows=apart free.loop.48x1.gmem.load.32.next.l1_reuse vector.gmem.load.strided=1/16
shifted=apart sync.flat.32x2.lmem.load.32.shifted scalar.lmem.load.walk
shifted=apart sync.flat.32x2.lmem.load.32.next vector.lmem.load.next=1/16
shifted=apart sync.flat.32x2.lmem.store.32.shifted vector.lmem.store.shifted=1/16
shifted=apart sync.flat.64x1.lmem.load.32.offset vector.lmem.load.offset=1/16
shifted=apart sync.loop.32x2.lmem.load.32.shifted.near vector.lmem.load.shifted=1/16
# accesses under conditions
masked free.flat.20x4.guarded.gmem.store.64.next vector.guarded.gmem.store=4/20
flat free.flat.20x4.guarded.gmem.store.64.next
masked free.flat.16x4.guarded.gmem.load.32.l1_reuse scalar.guarded.gmem.load
masked free.loop.16x4.guarded.gmem.load.32.next
# private arrays: in registers if written out, in memory where they are large
width=8,arrays=0 sync.flat.16x1.pmem.load.16 vector.pmem.load=1/8
width=8,arrays=8 sync.flat.16x1.pmem.load.16 vector.pmem.gather
width=8,arrays=16 sync.flat.16x1.pmem.load.16 vector.pmem.load=1/8
width=8,arrays=0 sync.loop.16x1.pmem.load.16 vector.pmem.load=1/8
width=8,arrays=8 sync.loop.16x1.pmem.load.16 vector.pmem.gather
width=8,arrays=16 sync.loop.16x1.pmem.load.16 vector.pmem.load=1/8
width=8,arrays=8 sync.short.16x1.pmem.store.16 vector.pmem.scatter
width=8 sync.short.16x1.pmem.store.16
flat,arrays=8 sync.loop.16x1.pmem.store.16 scalar.pmem.store
# calls that not all items make
width=1 free.flat.20x2.flop.conditional.f32.exp scalar.special.f32.exp
width=1 free.flat.20x2.flop.conditional.f32.pow scalar.pow.f32
width=1 free.flat.20x2.flop.conditional.f32.fabs scalar.minor.f32.fabs
eight free.flat.20x2.flop.conditional.f32.exp
  vector.conditional.f32.exp=2/20 scalar.special.f32.exp=4/20
- free.flat.16x1.flop.conditional.f32.fabs vector.minor.f32.fabs=1/16
# chains, loops and regions
eight free.loop.16x1.chain.fma.f32 vector.chain.f32.arithmetic=1/8
eight free.flat.20x2.chain.fma.f32
flat sync.short.16x1.entries
flat sync.short.16x1.iterations
flat sync.short.16x1.chain.fma.f32
flat sync.short.16x1.flop.fma.f32 vector.arithmetic.f32.fma=1/8
- sync.loop.16x2.entries vector.entries=1/16
vectorized=flat sync.loop.16x2.entries scalar.entries
eight free.flat.16x1.carried
eight sync.flat.16x1.carried vector.carried=1/8
eight sync.short.16x1.carried vector.carried=1/8
eight sync.loop.16x1.carried
width=1 free.flat.20x2.passes scalar.passes.free scalar.rows.free=2
- sync.flat.32x16.live_across_barrier.8.64 vector.live_across_barrier=2/16
"""


def _policy(text: str) -> Any:
    options: dict[str, Any] = {}
    for part in text.replace("-", "").split(","):
        name, _, value = part.partition("=")
        options |= (
            {name: int(value) if value.isdigit() else value} if value else POLICIES.get(name, {})
        )
    return ExecutionPolicy(**options)


@pytest.mark.parametrize("row", re.findall(r"^[^#\s].*(?:\n  .*)?", ROWS, re.MULTILINE))
def test_a_site_is_issued_as(row: str) -> None:
    policy, site, *issued = row.split()
    expected: dict[str, Fraction] = {}
    for part in issued:
        name, _, share = part.partition("=")
        beginning, _, last = name.partition("{")
        names = [beginning + each for each in last.rstrip("}").split(",")]
        expected |= {f"issue.{each}": Fraction(share or 1) for each in names}
    result = dict(issue(f"site.{site}", _policy(policy)))
    assert result == expected
    for name in result:
        validate_name(name)


def test_what_is_issued_and_launched_stays_and_parts_add_up() -> None:
    policy = ExecutionPolicy(**EIGHT)
    same = {"bytes.group.load.dense": 5.0, "groups": 7, "issue.vector.idle": 3}
    assert apply_policy(policy, same) == same
    counts = {"site.free.flat.8x1.flop.fma.f32": 16, "site.free.loop.8x2.flop.fma.f32": 8, "iop": 1}
    assert apply_policy(policy, counts) == {"issue.vector.arithmetic.f32.fma": 3}
