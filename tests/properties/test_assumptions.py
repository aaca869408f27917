"""Counts that rest on assumptions about compilers and caches are never called exact."""

from __future__ import annotations

from itertools import product
from typing import get_args

import loopy as lp
import numpy as np
import pytest

from countperf.execution.keys import (
    AccessKey,
    Beside,
    ByData,
    Grade,
    Level,
    Site,
    Step,
    ToOtherLines,
    WorkItemStep,
)
from countperf.properties.assumptions import assumption_of
from countperf.properties.count_properties import count_kernel
from countperf.properties.site_names import execution_name
from countperf.report.objects import count_object
from countperf.report.text import count_text

_LEVELS = get_args(Level)
_FACTS: tuple[Step, ...] = (*get_args(Beside), ToOtherLines("l1"), ByData("l1"))
"""Steps that follow from addresses and the size of a line alone."""
_GUESSES: tuple[Step, ...] = (
    *(ToOtherLines(*each) for each in product(_LEVELS, get_args(Grade)) if each != ("l1", 0)),
    ByData("l2"),
    ByData("beyond_l2"),
)


@pytest.mark.parametrize("step", [*_FACTS, *_GUESSES], ids=str)
def test_every_step_is_a_fact_or_assumes_caches(step: Step) -> None:
    site = Site("free", "flat", (8, 1))
    keys = [
        AccessKey(site, "global", "load", 32, WorkItemStep("next"), step),
        AccessKey(site, "global", "load", 32, WorkItemStep(step)),
        AccessKey(site, "global", "load", 32, WorkItemStep("same", step)),
    ]
    for key in keys:
        said = assumption_of(execution_name(key))
        assert ("caches" in said) is (step in _GUESSES)


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("site.free.short.8x1.flop.add.f32", "unrolls"),
        ("site.sync.flat.8x1.live_across_barrier.4.32", "barriers"),
        ("site.sync.loop.8x1.lmem.load.32.l1_reuse_conflict1-next", "caches"),
        ("miss.conflict.load", "cache"),
    ],
)
def test_guesses_say_what_they_assume(name: str, part: str) -> None:
    assert part in assumption_of(name)


@pytest.mark.parametrize(
    "name",
    ["site.free.flat.8x1.flop.add.f32", "site.sync.loop.8x1.chain.add.f32", "groups", "launches"],
)
def test_facts_assume_nothing(name: str) -> None:
    assert not assumption_of(name)


def test_reports_call_guesses_not_exact() -> None:
    knl = lp.make_kernel(
        "{ [i, j] : 0 <= i < n and 0 <= j < 4096 }",
        "y[i] = sum(j, x[j, i])",
        [
            lp.GlobalArg("x", np.float32, shape="4096, n"),
            lp.GlobalArg("y", np.float32, shape="n"),
            lp.ValueArg("n", np.int32),
        ],
        assumptions="n >= 8",
        lang_version=(2018, 2),
    )
    knl = lp.split_iname(knl, "i", 8, outer_tag="g.0", inner_tag="l.0")

    vector = count_kernel(knl, view="structure")

    properties = count_object(vector)["properties"]
    # 4096 lines of the array lie between two uses of one: more than the first cache has
    (late,) = [name for name in properties if name.endswith(".l2_reuse")]
    assert not properties[late]["exact"]
    assert properties["groups"]["exact"]
    assert "not exact: assumes caches of 48 KiB of 12 ways" in count_text(vector)
