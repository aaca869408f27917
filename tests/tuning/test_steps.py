"""Points are predicted as kernels are; steps of builders are done once."""

from __future__ import annotations

import random
import subprocess
import sys
import textwrap
from itertools import islice
from typing import Any

import loopy as lp
import numpy as np
import pytest

from countperf.counting.resources import scheduled, written_instructions
from countperf.models.library import load_weights
from countperf.properties.count_properties import count_kernel
from countperf.tuning import steps
from countperf.tuning.points import Predicted, PredictionTask, predict_points
from countperf.workflow.tuning import load_space

FAMILIES = ("matmul", "stencil", "dg-differentiation", "transpose", "convolution")


@pytest.mark.parametrize(
    "family", ["matmul", *(pytest.param(each, marks=pytest.mark.nightly) for each in FAMILIES[1:])]
)
def test_points_are_predicted_as_their_kernels_are(family: str) -> None:
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
