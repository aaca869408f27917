"""Names of executions and of issued work: what is printed is parsed back, and nothing else is."""

from __future__ import annotations

from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from countperf.counting.keys import Operation
from countperf.errors import PropertyNameError
from countperf.execution import issue, keys
from countperf.execution.keys import (
    AccessKey,
    ByData,
    ChainKey,
    EventKey,
    OperationKey,
    Site,
    ToOtherLines,
    WorkItemStep,
)
from countperf.properties.issue_names import issue_name, parse_issue
from countperf.properties.site_names import execution_name, parse_execution
from countperf.properties.taxonomy import describe, key_of, validate_name


def _one_of(literal: Any) -> st.SearchStrategy[Any]:
    return st.sampled_from(get_args(literal))


_NUMBERS = st.integers(1, 10**6)
_BITS = st.sampled_from((8, 16, 32, 64, 96, 128))
_WORDS = st.from_regex(r"[a-z][a-z0-9_]{0,9}", fullmatch=True)
_TYPES = st.sampled_from(("f16", "f32", "f64", "i32", "i64", "u8"))
_SITES = st.builds(
    Site, _one_of(keys.Context), _one_of(keys.Placement), st.tuples(_NUMBERS, _NUMBERS)
)
_STEPS = (
    _one_of(keys.Beside)
    | st.builds(ToOtherLines, _one_of(keys.Level), _one_of(keys.Grade))
    | st.builds(ByData, _one_of(keys.Level))
)
_BETWEEN = st.builds(WorkItemStep, _STEPS, st.none() | _STEPS)
_OPERATIONS = st.builds(Operation, kind=_WORDS, type_name=_TYPES, function=st.just("") | _WORDS)
_ACCESS = (_SITES, _one_of(keys.Space), _one_of(keys.Direction), _BITS, _BETWEEN)
_FOOTPRINTS = (
    st.builds(keys.GroupBytesKey, _one_of(keys.Direction), _one_of(keys.Density))
    | st.builds(keys.GroupSegmentsKey, _one_of(keys.Direction))
    | st.builds(keys.KernelBytesKey, _one_of(keys.Direction))
)
_EXECUTIONS = (
    st.builds(OperationKey, _SITES, _OPERATIONS)
    | st.builds(AccessKey, *_ACCESS, st.none() | _STEPS)
    | st.builds(keys.GuardedAccessKey, *_ACCESS)
    | st.builds(keys.PrivateAccessKey, _SITES, _one_of(keys.Direction), st.integers(0, 4096))
    | st.builds(ChainKey, _SITES, _WORDS, _TYPES)
    | st.builds(keys.LiveValuesKey, _SITES, _NUMBERS, _BITS)
    | st.builds(EventKey, _SITES, _one_of(keys.Event))
    | _FOOTPRINTS
)
_UNITS = _one_of(issue.Unit)
_ISSUED_OPERATIONS = st.builds(
    issue.IssuedOperation,
    _UNITS,
    st.sampled_from(("minor", "divide", "div", "pow", "special", "conditional")),
    _TYPES,
    st.just("") | _WORDS,
) | st.builds(
    issue.IssuedOperation,
    _UNITS,
    st.just("arithmetic"),
    st.sampled_from(("f16", "f32", "f64")),
    st.sampled_from(("", "add", "mul", "fma")),
)
_ISSUED = (
    _ISSUED_OPERATIONS
    | st.builds(issue.IssuedChain, _UNITS, _TYPES, st.just("") | _WORDS)
    | st.builds(
        issue.IssuedAccess,
        _UNITS,
        _one_of(keys.Space),
        _one_of(keys.Direction),
        st.none() | _one_of(issue.Serving),
    )
    | st.builds(
        issue.IssuedPrivateAccess,
        _UNITS,
        st.sampled_from(("load", "store", "gather", "scatter")),
    )
    | st.builds(issue.IssuedGuard, _UNITS, _one_of(keys.Space), _one_of(keys.Direction))
    | st.builds(
        issue.IssuedEvent,
        _UNITS,
        st.sampled_from(("idle", "iterations", "entries", "carried", "live_across_barrier")),
    )
    | st.builds(issue.IssuedPasses, _UNITS, _one_of(keys.Context))
    | st.builds(issue.IssuedRows, _UNITS, _one_of(keys.Context))
    | _FOOTPRINTS
)


@given(_EXECUTIONS)
def test_executions_are_parsed_back(key: keys.ExecutionKey) -> None:
    name = execution_name(key)
    assert parse_execution(name) == key
    assert key_of(name) == key
    assert describe(name).unit


@given(_ISSUED)
def test_issued_work_is_parsed_back(key: issue.IssueKey) -> None:
    name = issue_name(key)
    assert parse_issue(name) == key
    assert key_of(name) == key
    assert describe(name).unit


SITE = Site("sync", "loop", (16, 16))


@pytest.mark.parametrize(
    ("name", "key"),
    [
        (
            "site.sync.loop.16x16.gmem.load.32.l1_reuse_conflict1-next.l2_reuse",
            AccessKey(
                SITE,
                "global",
                "load",
                32,
                WorkItemStep(ToOtherLines("l1", 1), "next"),
                ToOtherLines("l2"),
            ),
        ),
        ("site.sync.loop.16x16.chain.fma.f32", ChainKey(SITE, "fma", "f32")),
        ("site.sync.loop.16x16.entries", EventKey(SITE, "entries")),
        (
            "site.sync.loop.16x16.flop.special.f32.rsqrt",
            OperationKey(SITE, Operation(kind="special", type_name="f32", function="rsqrt")),
        ),
    ],
)
def test_names_in_documents(name: str, key: keys.ExecutionKey) -> None:
    assert execution_name(key) == name
    assert parse_execution(name) == key


@pytest.mark.parametrize(
    "name",
    [
        "site.free.flat.16x1",
        "site.free.flat.16.passes",
        "site.free.flat.016x1.passes",
        "site.free.flat8.16x1.passes",
        "site.free.loop3.16x1.passes",
        "site.free.loop_slp8.16x1.passes",
        "site.free.slp.16x1.passes",
        "site.sync.flat.16x1.addresses.40",
        "site.busy.flat.16x1.passes",
        "site.free.flat.16x1.flop.add.i32",
        "site.free.flat.16x1.iop.add.f32",
        "site.free.flat.16x1.gmem.load.33.next",
        "site.free.flat.16x1.gmem.load.32.next-",
        "site.free.flat.16x1.gmem.load.32.far4",
        "site.free.flat.16x1.gmem.load.32.next.l1_reuse.l1_reuse",
        "site.free.flat.16x1.guarded.gmem.load.32.odd",
        "issue.vector",
        "issue.both.idle",
        "issue.vector.gmem.load.near",
        "issue.vector.arithmetic.i32",
        "issue.vector.rows.flat",
        "issue.vector.special.f32.exp.fast",
        "bytes.group.load",
        "segments.kernel.load",
    ],
)
def test_what_is_no_name_is_refused(name: str) -> None:
    with pytest.raises(PropertyNameError, match="is no property name"):
        validate_name(name)
