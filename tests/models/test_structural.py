"""Models of what a device issues: which of their terms overlap."""

from __future__ import annotations

from typing import get_args

import numpy as np
import pytest

from countperf.errors import ParameterError
from countperf.execution.issue import IssuedAccess, IssuedEvent, IssuedEvents, Serving, Unit
from countperf.execution.keys import Space
from countperf.execution.policy import ExecutionPolicy
from countperf.models.function import ModelFunction, model_inputs
from countperf.models.structural import (
    OVERLAP_TEXTS,
    OVERLAPS,
    candidates,
    refinements,
    structural,
)
from countperf.properties.issue_names import apply_policy, issue_name

COUNTS = {
    "launches": 1,
    "groups": 2,
    "site.free.loop.16x1.flop.add.f32": 160,
    "site.free.loop.16x1.gmem.load.32.next": 320,
    "site.free.loop.16x1.gmem.load.32.next.l2_reuse": 80,
    "bytes.group.load.dense": 40,
}


@pytest.mark.parametrize(
    ("overlap", "overlapped"),
    [  # 20 accesses of vectors and 5 that lead to other lines, of which 5 come back too late
        ("", 2 + 10 + 25 + 5 + 40),
        ("overlap3", 2 + np.hypot(10 + 25 + 5, 40)),
        ("overlap4", np.sqrt(12**2 + 30**2 + 40**2)),
        ("memory3", 2 + np.hypot(10 + 25, 5 + 40)),
        ("memory4", np.sqrt(12**2 + 25**2 + 45**2)),
    ],
)
def test_terms_overlap(overlap: str, overlapped: float) -> None:
    model = structural(ExecutionPolicy(units=2), overlap=overlap)
    inputs = model_inputs(model, COUNTS)
    function = ModelFunction(model=model, columns=tuple(inputs.values))
    values = np.array(list(inputs.values.values()))
    unknowns = [1.0] * len(function.columns) + [2.0] * len(function.parameters)
    assert function.times(values, inputs.variables, unknowns) == pytest.approx(1 + overlapped)


def test_models_with_other_overlaps_are_refinements_and_refinements_overlap_alike() -> None:
    model = structural(ExecutionPolicy(units=2), overlap="overlap3")
    refined = refinements(model, units=2)
    other = {each.expression for each in refined if each.policy == model.policy}
    assert len(other) == len(OVERLAPS) - 1
    assert model.expression not in other
    changed = [each for each in refined if each.policy != model.policy]
    assert changed
    assert all(OVERLAPS["overlap3"] in each.expression for each in changed)
    assert all("issue, chains and traffic overlap" in each.description for each in changed)


@pytest.mark.parametrize("event", get_args(IssuedEvents))
@pytest.mark.parametrize("unit", get_args(Unit))
def test_every_issued_event_is_charged(event: IssuedEvents, unit: Unit) -> None:
    name = issue_name(IssuedEvent(unit, event))
    assert structural(ExecutionPolicy()).features.feature_of(name) == name


@pytest.mark.parametrize("serving", get_args(Serving))
@pytest.mark.parametrize("unit", get_args(Unit))
def test_every_issued_access_is_charged(serving: Serving, unit: Unit) -> None:
    spaces: tuple[Space, ...] = get_args(Space)
    names = [issue_name(IssuedAccess(unit, space, "load", serving)) for space in spaces]
    features = structural(ExecutionPolicy()).features
    assert [features.feature_of(name) for name in names] == names


def test_known_policies_are_tried_once() -> None:
    known = ExecutionPolicy(width=8, arrays=8)
    policies = [each.policy for each in candidates((8,), known=[known, known])]

    assert policies.count(known) == 1
    assert len(policies) == len(set(policies))


def test_an_unknown_overlap_is_refused() -> None:
    with pytest.raises(ParameterError, match="overlap3") as caught:
        structural(ExecutionPolicy(), overlap="all")
    assert caught.value.parameter == "overlap"


@pytest.mark.parametrize(
    "step",
    [
        "beyond_l2-beyond_l2",
        "l2_reuse-l2_reuse_conflict1",
        "same-data_l2_reuse",
        "l1_reuse-l1_reuse",
        "next",
    ],
)
def test_what_is_issued_stays_as_it_is(step: str) -> None:
    policy = ExecutionPolicy(width=8, vectorized="always")
    issued = apply_policy(policy, {f"site.free.flat.16x4.gmem.load.32.{step}": 64})
    assert issued
    assert apply_policy(policy, issued) == issued


@pytest.mark.parametrize("overlap", OVERLAPS)
def test_names_are_short_and_descriptions_say_policy_and_overlap(overlap: str) -> None:
    policy = ExecutionPolicy(width=8, units=2)

    model = structural(policy, overlap=overlap)

    assert model.name == "structural"
    assert policy.text in model.description
    assert OVERLAP_TEXTS[overlap] in model.description
    assert len({*OVERLAP_TEXTS.values()}) == len(OVERLAPS)


def test_values_that_wait_at_barriers_have_a_weight() -> None:
    model = structural(ExecutionPolicy(width=8))

    for unit in ("scalar", "vector"):
        name = f"issue.{unit}.live_across_barrier"
        assert model.term_features["overhead"].feature_of(name) == name
