"""What variants share changes no count."""

from __future__ import annotations

import random
import subprocess
import sys
import textwrap
from collections import Counter
from collections.abc import Callable
from itertools import islice
from typing import Any

import loopy as lp
import numpy as np
import pytest

from countperf.counting.equivalence import with_loops_as_loops
from countperf.counting.resources import scheduled, written_instructions
from countperf.execution.policy import ExecutionPolicy
from countperf.models.definition import ModelDefinition
from countperf.models.library import load_weights
from countperf.models.terms import Term
from countperf.properties import count_properties
from countperf.properties.cache import content_key
from countperf.properties.count_properties import count_executed, count_kernel
from countperf.properties.taxonomy import is_emitted
from countperf.tuning import shared_counts, steps
from countperf.tuning.points import Predicted, PredictionTask, predict_points
from countperf.workflow.tuning import load_space
from tests.models.builders import make_weights

FAMILIES = ("matmul", "stencil", "dg-differentiation", "transpose", "convolution")


@pytest.mark.parametrize(
    "family", ["matmul", *(pytest.param(each, marks=pytest.mark.nightly) for each in FAMILIES[1:])]
)
def test_shared_counts_predict_what_direct_ones_do(family: str) -> None:
    space = load_space(family)
    weights = load_weights("pocl-epyc-zen5", model="linear")
    question = PredictionTask(
        space=space,
        weights=weights,
        sizes={},
        incomplete_ok=True,
    )
    start = random.Random(family).randrange(space.cardinality)
    near = [space.at(index % space.cardinality) for index in range(start, start + 600)]
    choices = list(islice(filter(space.satisfies, near), 24))

    found = predict_points(question, choices)

    for choice, point in random.Random(0).sample(list(zip(choices, found, strict=True)), 8):
        steps.forget()
        unit, resources = scheduled(space.build(**choice))
        direct = weights.predict(count_kernel(unit, cache=False), space.sizes, incomplete_ok=True)
        assert isinstance(point, Predicted)
        assert point.time_s == float(direct.time_s)
        assert point.group_shape == resources.group_shape
        assert point.missing == direct.missing


@pytest.mark.parametrize("family", ["stencil", "convolution"])
def test_shared_schedules_and_footprints_give_the_counts_of_the_structure_view(
    family: str,
) -> None:
    space = load_space(family)
    start = space.cardinality // 3
    near = [space.at(index) for index in range(start, start + 60)]
    units = [space.build(**c) for c in filter(space.satisfies, near)][:8]
    shared_counts.forget()

    shared = [shared_counts.scheduled_variant(unit, "structure") for unit in units]
    found = [shared_counts.counted_variant(v, "structure", policy=True) for v in shared]

    assert len({id(variant.footprints) for variant in shared}) < len(shared)
    for unit, vector in random.Random(0).sample(list(zip(units, found, strict=True)), 4):
        direct = count_kernel(unit, view="structure", cache=False)
        executed = {n for n in direct if not is_emitted(n)} | {"groups", "launches"}
        assert executed <= set(vector)
        assert {name: vector[name] for name in vector} == {name: direct[name] for name in vector}
        assert (vector.parameters, vector.assumption_guards, vector.view) == (
            direct.parameters,
            direct.assumption_guards,
            direct.view,
        )


def test_a_model_with_a_policy_predicts_the_same_from_what_is_executed() -> None:
    unit = load_space("transpose").build(
        items_i=4, items_j=16, rows=2, columns=1, tile=True, lanes="j", block="unr"
    )
    charged = [
        *("launches", "groups", "barrier.local", "bytes.group.load.dense"),
        *(f"issue.vector.gmem.{direction}.next" for direction in ("load", "store")),
    ]
    definition = ModelDefinition(
        name="toy",
        policy=ExecutionPolicy(width=8),
        terms={"cost": Term(charged=tuple(charged))},
    )
    weights = make_weights(
        {name: 1e-9 * number for number, name in enumerate(charged, 1)},
        definition=definition,
        view="structure",
    )

    executed = count_executed(unit)
    whole = count_kernel(unit, view="structure", cache=False)

    sizes = {"n": 256, "m": 256}
    few, all_of_it = (
        weights.predict(vector, sizes, incomplete_ok=True) for vector in (executed, whole)
    )
    assert few.breakdown == all_of_it.breakdown
    assert few.time_s == all_of_it.time_s > 0


def test_instructions_that_are_written_out_count_with_their_copies() -> None:
    plain = _unit("out[i, k] = 2*a[i, k]")
    copied = _unit("out[i, k] = 2*a[i, k]", k="unr")

    assert [written_instructions(unit) for unit in (plain, copied)] == [1, 4]


def _unit(instruction: str, **tags: str) -> Any:
    unit = lp.make_kernel(
        "{[i, k]: 0<=i<n and 0<=k<4}",
        instruction,
        [
            lp.GlobalArg("a,out", np.float32, shape="n, 4"),
            lp.GlobalArg("where", np.int32, shape="n"),
            lp.ValueArg("n", np.int32),
        ],
        lang_version=(2018, 2),
    )
    return lp.tag_inames(unit, tags)


def _key(unit: Any) -> str | None:
    return content_key(with_loops_as_loops(unit), {})


@pytest.mark.parametrize(
    ("instruction", "tag", "other", "same"),
    [
        pytest.param("out[i, k] = 2*a[i, k]", "unr", "for", True, id="subscripts"),
        pytest.param("out[i, k] = 2*a[i, 3 - k]", "ilp", "ilp.seq", True, id="affine subscripts"),
        pytest.param("out[i, 0] = sum(k, a[i, k])", "unr", "for", True, id="reduction"),
        pytest.param("out[i, k] = 2*a[i, k]", "ilp", "for", False, id="ilp is no loop"),
        pytest.param("out[i, k] = k*a[i, k]", "unr", "for", False, id="a value"),
        pytest.param("out[i, 0] = sum(k, k*a[i, k])", "unr", "for", False, id="value summed"),
        pytest.param("out[i, k] = a[i, k]**k", "unr", "for", False, id="exponent"),
        pytest.param("out[i, k] = a[where[k], 0]", "unr", "for", False, id="index of an index"),
        pytest.param("out[i, k] = a[where[i], k]", "unr", "for", False, id="beside an index"),
        pytest.param("out[i, k] = a[i, k] {if=k>1}", "unr", "for", False, id="predicate"),
        pytest.param("out[i, 0] = sum(k, a[i, k])", "ilp", "ilp.seq", False, id="ilp summed"),
    ],
)
def test_only_loops_that_are_counted_alike_are_taken_as_one(
    instruction: str, tag: str, other: str, same: bool
) -> None:
    second = _unit(instruction, k=other) if other != "for" else _unit(instruction)

    assert (_key(_unit(instruction, k=tag)) == _key(second)) is same


def test_a_step_is_done_once_for_a_unit_and_its_arguments() -> None:
    calls: list[int] = []

    @steps.step
    def divided(unit: object, by: list[int]) -> tuple[object, int]:
        calls.append(by[0])
        return unit, by[0]

    one, two = object(), object()
    first = divided(one, [2])

    assert divided(one, [2]) is first
    assert divided(two, [2]) is not first
    assert divided(one, [4]) == (one, 4)
    assert calls == [2, 2, 4]


def test_steps_forget_what_was_not_asked_for_lately() -> None:
    calls: list[int] = []

    @steps.step
    def doubled(number: int) -> int:
        calls.append(number)
        return 2 * number

    for number in (*range(steps.REMEMBERED + 1), 0):
        doubled(number)

    assert calls[-1] == 0
    assert len(calls) == steps.REMEMBERED + 2


def test_neighbors_of_a_product_have_few_structures() -> None:
    space = load_space("matmul")
    near = (space.at(index) for index in range(2000, 3000))
    choices = list(islice(filter(space.satisfies, near), 100))

    keys = {_key(space.build(**choice)) for choice in choices}

    assert len(choices) == 100
    assert len(keys) <= 0.4 * len(choices)


def test_each_structure_is_scheduled_and_counted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of neighbors that differ in how loops are written; in the view of the linear model."""
    calls: Counter[str] = Counter()

    def counting(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def called(*args: Any, **kwargs: Any) -> Any:
            calls[name] += 1
            return function(*args, **kwargs)

        return called

    monkeypatch.setattr(shared_counts, "scheduled", counting("scheduled", scheduled))
    monkeypatch.setattr(
        shared_counts, "count_kernel", counting("counted", count_properties.count_kernel)
    )
    space = load_space("matmul")
    near = [space.at(index) for index in range(2000, 2100)]
    choices = [choice for choice in near if space.satisfies(choice)][:12]
    structures = {_key(space.build(**choice)) for choice in choices}
    question = PredictionTask(
        space=space,
        weights=load_weights("pocl-epyc-zen5", model="linear"),
        sizes={},
        incomplete_ok=True,
    )
    shared_counts.forget()

    points = predict_points(question, choices)

    assert all(isinstance(point, Predicted) for point in points)
    assert 1 < len(structures) <= len(choices) // 2
    assert calls == {"scheduled": len(structures), "counted": len(structures)}


_MILLION = """
import resource
from concurrent.futures import Executor, Future
from countperf.tuning.points import Predicted, PredictionTask
from countperf.tuning import ranker
from tests.tuning.spaces import make_space
from tests.tuning.test_ranking import WEIGHTS

class Cheap(Executor):
    _max_workers = 2
    def submit(self, fn, /, question, choices):
        future = Future()
        future.set_result([
            Predicted(choice=c, time_s=1.0 + (c["x"] * 7919 + c["y"] * 104729) % 1000003)
            for c in choices
        ])
        return future

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

space = make_space(parameters={"x": range(1000), "y": range(1000)}, sizes={})
question = PredictionTask(space=space, weights=WEIGHTS, sizes={})
ranker.rank_points(question, executor=Cheap(), keep=100, points=20_000)
before = peak()
found = ranker.rank_points(question, executor=Cheap(), keep=100)
print(found.predicted, len(found.best), found.complete, peak() - before)
print([point.time_s for point in found.best] == sorted(
    1.0 + (x * 7919 + y * 104729) % 1000003 for x in range(1000) for y in range(1000))[:100])
"""


@pytest.mark.nightly
def test_a_million_points_are_ranked_in_bounded_memory() -> None:
    """The peak after a million points exceeds that after 20000 by less than 8 MiB."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", textwrap.dedent(_MILLION)],
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    counted, order = done.stdout.splitlines()
    predicted, kept, complete, grown_kib = counted.split()
    assert (predicted, kept, complete) == ("1000000", "100", "True")
    assert int(grown_kib) < 8 * 1024
    assert order == "True"
