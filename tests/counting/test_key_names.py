"""Names of executions and of issued work: what is printed is parsed back, and nothing else is."""

from __future__ import annotations

from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from countperf.counting.keys import Operation
from countperf.counting.structure import site_keys as keys
from countperf.counting.structure.site_keys import (
    AccessKey,
    EventKey,
    OperationKey,
    Site,
    WorkItemStep,
    name_of,
    site_key,
)
from countperf.counting.taxonomy import assumption_of, property_unit, validate_name
from countperf.errors import PropertyNameError


def _one_of(literal: Any) -> st.SearchStrategy[Any]:
    return st.sampled_from(get_args(literal))


_NUMBERS = st.integers(1, 10**6)
_BITS = st.sampled_from((8, 16, 32, 64, 96, 128))
_WORDS = st.from_regex(r"[a-z][a-z0-9_]{0,9}", fullmatch=True)
_TYPES = st.sampled_from(("f16", "f32", "f64", "i32", "i64", "u8"))
_SITES = st.builds(
    Site, _one_of(keys.Context), _one_of(keys.Placement), st.tuples(_NUMBERS, _NUMBERS)
)
_STEPS = st.sampled_from((*keys.BESIDE, *keys.TO_OTHER_LINES, *keys.BY_DATA))
_BETWEEN = st.builds(WorkItemStep, _STEPS, st.none() | _STEPS)
_ACCESS = (_SITES, _one_of(keys.Space), _one_of(keys.Direction), _BITS, _BETWEEN)
_EVENTS = (
    *("idle", "carried", "iterations", "entries", "passes", "pmem.load.0", "pmem.store.64"),
    *("chain.fma.f32", "chain.add.i64", "live_across_barrier.12.32"),
)
_EXECUTIONS = (
    st.builds(
        OperationKey,
        _SITES,
        st.builds(Operation, kind=_WORDS, type_name=_TYPES, function=st.just("") | _WORDS),
    )
    | st.builds(AccessKey, *_ACCESS, st.none() | _STEPS)
    | st.builds(AccessKey, *_ACCESS, is_guarded=st.just(True))
    | st.builds(EventKey, _SITES, st.sampled_from(_EVENTS))
)


@given(_EXECUTIONS)
@settings(max_examples=50)
def test_executions_are_parsed_back(key: keys.SiteKey) -> None:
    assert site_key(name_of(key)) == key
    assert property_unit(name_of(key))


SITE = Site("sync", "loop", (16, 16))


@pytest.mark.parametrize(
    ("name", "key"),
    [
        (
            "site.sync.loop.16x16.gmem.load.32.l1_reuse_conflict1-next.l2_reuse",
            AccessKey(
                SITE, "global", "load", 32, WorkItemStep("l1_reuse_conflict1", "next"), "l2_reuse"
            ),
        ),
        ("site.sync.loop.16x16.chain.fma.f32", EventKey(SITE, "chain.fma.f32")),
        ("site.sync.loop.16x16.entries", EventKey(SITE, "entries")),
        (
            "site.sync.loop.16x16.flop.special.f32.rsqrt",
            OperationKey(SITE, Operation(kind="special", type_name="f32", function="rsqrt")),
        ),
    ],
)
def test_names_in_documents(name: str, key: keys.SiteKey) -> None:
    assert name_of(key) == name
    assert site_key(name) == key


NAMES = """
flop.add.f32 flop.special.f64.exp flop.neg.f32 iop.add.i32 gmem.load.8.uniform gmem.store.128.4ofn
gmem.min.32.2of3 gmem.load.64.indirect lmem.store.64 barrier.local groups launches
bytes.group.load.dense bytes.kernel.store segments.group.load
issue.vector.arithmetic.f32.fma issue.scalar.special.f32.exp issue.scalar.divide
issue.vector.chain.f32.arithmetic issue.vector.lmem.store issue.scalar.gmem.load.set_conflict
issue.vector.pmem.gather issue.scalar.guarded.gmem.load issue.vector.live_across_barrier
issue.scalar.passes.free issue.scalar.rows.sync
"""
NO_NAMES = """
flop.add flop.add.F32 gmem.load.32.3of2 gmem.min.32 group lmem.load
site.free.flat.16x1 site.free.flat.16.passes site.free.flat.016x1.passes
site.free.flat8.16x1.passes site.free.slp.16x1.passes site.sync.flat.16x1.addresses.40
site.busy.flat.16x1.passes site.free.flat.16x1.flop.add.i32 site.free.flat.16x1.iop.add.f32
site.free.flat.16x1.gmem.load.33.next site.free.flat.16x1.gmem.load.32.next-
site.free.flat.16x1.gmem.load.32.far4 site.free.flat.16x1.gmem.load.32.next.l1_reuse.l1_reuse
site.free.flat.16x1.guarded.gmem.load.32.odd
issue.vector issue.both.idle issue.vector.gmem.load.near issue.vector.arithmetic.i32
issue.vector.rows.flat issue.vector.special.f32.exp.fast bytes.group.load segments.kernel.load
"""


@pytest.mark.parametrize("name", NAMES.split())
def test_names_have_a_unit(name: str) -> None:
    assert property_unit(name)


@pytest.mark.parametrize("name", NO_NAMES.split())
def test_what_is_no_name_is_refused(name: str) -> None:
    with pytest.raises(PropertyNameError, match="is no property name"):
        validate_name(name)


# --- counts that rest on assumptions about compilers and caches are never called exact


@pytest.mark.parametrize("step", [*keys.BESIDE, *keys.TO_OTHER_LINES, *keys.BY_DATA])
def test_every_step_is_a_fact_or_assumes_caches(step: str) -> None:
    facts = ("same", "next", "offset", "shifted", "masked", "near", "l1_reuse", "data")
    for steps in (f"next.{step}", step, f"same-{step}"):
        said = assumption_of(f"site.free.flat.8x1.gmem.load.32.{steps}")
        assert ("caches" in said) is (step not in facts)


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("site.free.short.8x1.flop.add.f32", "unrolls"),
        ("site.sync.flat.8x1.live_across_barrier.4.32", "barriers"),
        ("site.sync.loop.8x1.lmem.load.32.l1_reuse_conflict1-next", "caches"),
        ("miss.conflict.load", "cache"),
        ("site.free.flat.8x1.flop.add.f32", ""),
        ("site.sync.loop.8x1.chain.add.f32", ""),
        ("groups", ""),
    ],
)
def test_guesses_say_what_they_assume(name: str, part: str) -> None:
    said = assumption_of(name)
    assert part in said
    assert bool(said) is bool(part)
