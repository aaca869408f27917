"""Where a time goes for people: rows, shares, and what bounds it."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest

from countperf.models import predictions
from countperf.models.labels import plain_name
from countperf.models.library import list_fits, load_weights
from countperf.models.predictions import breakdown_rows, describe_bound, write_uncharged
from countperf.models.weights import WeightSet
from tests.models.builders import make_weight, make_weights, sum_model
from tests.printing import text_of


@cache
def _resources() -> dict[str, str]:
    """Return the resources of all parts of the shipped models."""
    found: dict[str, str] = {}
    for name in ("nvidia-gtx-680", "pocl-epyc-zen3"):
        for model in list_fits()[name].models:
            found |= load_weights(name, model=model).resources
    return found


def made(breakdown: dict[str, float], **more: object) -> predictions.Prediction:
    return replace(
        predictions.Prediction(
            kernel="k",
            device="d",
            model="structural-w8",
            parameters={"n": 512},
            time_s=sum(breakdown.values()),
            interval_s=None,
            breakdown=dict(breakdown),
            resources=_resources(),
        ),
        **more,
    )


def test_parts_and_shares_include_the_correction_as_a_factor() -> None:
    # the model says 4 ms + 1 ms, the correction takes a fifth of it away
    prediction = made(
        {"issue.scalar.minor": 4e-3, "launches": 1e-3, "groups": 0.0, "correction": -1e-3}
    )
    assert [(row.group, row.share) for row in breakdown_rows(prediction)] == [
        ("compute", "80 %"),
        ("launch", "20 %"),
    ]
    assert [row.time_s for row in breakdown_rows(prediction)] == pytest.approx([3.2e-3, 0.8e-3])


@pytest.mark.parametrize("number", [1, 7, 8, 9, 40])
def test_there_are_at_most_eight_rows_and_they_sum_to_the_time(number: int) -> None:
    names = [
        *(f"issue.vector.special.f32.f{i}" for i in range(15)),
        *(f"issue.scalar.chain.f32.c{i}" for i in range(15)),
        *("groups", "launches", "barrier.local"),
        *(
            f"issue.scalar.gmem.load.{step}"
            for step in ("l2_reuse", "beyond_l2", "set_conflict", "l1_reuse", "walk")
        ),
        *("load_beyond_l2", "scalar_load_l1_reuse_out_of_reach"),
    ]
    prediction = made({name: 1e-3 / (1 + place) for place, name in enumerate(names[:number])})
    rows = breakdown_rows(prediction)
    assert 1 <= len(rows) <= 8
    assert sum(row.fraction or 0 for row in rows) == pytest.approx(1)
    assert sum(row.time_s for row in rows) == pytest.approx(prediction.time_s)


def test_what_negative_weights_take_off_has_a_row_of_its_own_and_no_share() -> None:
    # 3 ms + 1 ms cost time, the fit takes 1.9 ms off: no share is above 100 %
    prediction = made({"launches": 3e-3, "groups": 1e-3, "flop.add.f32": -1.5e-3, "items": -0.4e-3})
    assert [row.share for row in breakdown_rows(prediction)] == ["75 %", "25 %", ""]
    assert breakdown_rows(prediction)[-1].time_s == pytest.approx(-1.9e-3)
    assert sum(row.time_s for row in breakdown_rows(prediction)) == pytest.approx(prediction.time_s)
    assert "taken off by negative weights" in text_of(prediction).splitlines()[-1]
    assert describe_bound(prediction) == "bound by launch: kernel launches (75 %)"


def test_nothing_takes_no_rows_and_is_bound_by_nothing() -> None:
    assert breakdown_rows(made({"launches": 0.0})) == ()
    assert describe_bound(made({"launches": 0.0})) == ""


@pytest.mark.parametrize(
    ("breakdown", "said"),
    [
        (  # one kind of parts
            {
                "issue.scalar.gmem.store.l2_reuse": 6.0,
                "issue.scalar.gmem.load.l2_reuse": 2.0,
                "groups": 2.0,
            },
            "bound by memory: scalar stores to global memory that miss L1 (60 %), scalar loads from"
            " global memory that miss L1 (20 %)",
        ),
        (  # two kinds of parts, neither half of the time
            {"issue.vector.arithmetic.f32": 4.5, "issue.vector.chain.f32.add": 4.0, "groups": 1.5},
            "bound by compute and latency chains: vector f32 arithmetic (add, mul, fma) (45 %),"
            " dependent vector f32 additions (40 %)",
        ),
    ],
)
def test_what_bounds_a_time_is_its_largest_parts(breakdown: dict[str, float], said: str) -> None:
    assert describe_bound(made(breakdown)) == said


@cache
def _weights() -> list[WeightSet]:
    """Return the weights of all shipped models."""
    return [load_weights(fit.name, model=m) for fit in list_fits().values() for m in fit.models]


def test_every_feature_of_the_shipped_models_has_a_plain_name_of_its_own() -> None:
    names = {f: plain_name(f) for weights in _weights() for f in weights.by_feature}
    assert len(names) > 200
    assert [feature for feature, name in names.items() if name == feature] == []
    assert len({*names.values()}) == len(names)
    words = {word for name in names.values() for word in name.split()}
    assert words & {"gmem", "lmem", "pmem", "walk", "issue", "reuse", "4ofn"} == set()
    assert not any("_" in word or "." in word for word in words)


def test_every_shipped_model_states_the_resource_of_each_feature() -> None:
    assert [w.name for w in _weights() if {*w.by_feature} - {*w.resources}] == []


@pytest.mark.parametrize(
    ("part", "text", "resource"),
    [
        ("launches", "kernel launches", "launch"),
        ("issue.scalar.gmem.store.l2_reuse", "scalar stores to global memory that miss L1",
         "memory: L2"),
        ("issue.vector.lmem.load.next", "vector loads from local memory at consecutive addresses",
         "memory: local"),
        ("issue.vector.chain.f32.add", "dependent vector f32 additions",
         "latency chains"),
        ("load_beyond_llc", "bytes loaded beyond the last-level cache", "memory: beyond L2"),
    ],
)  # fmt: skip
def test_shipped_models_state_resources_of_parts(part: str, text: str, resource: str) -> None:
    assert plain_name(part) == text
    assert _resources()[part] == resource


def test_models_state_resources_of_features_whatever_their_names() -> None:
    model = sum_model(
        {
            "first": {"charged": ["dram_bytes", "launches"], "resource": {"launches": "launch"}},
            "second": {"charged": ["my_compute"], "resource": "memory"},
        },
        derived={"dram_bytes": "4*gmem_load_32_stride1", "my_compute": "2*flop_add_f32"},
    )
    weights = make_weights(
        {},
        model=model.name,
        definition=model,
        weights=tuple(
            make_weight("launches", 1e-9, term=term).model_copy(update={"feature": feature})
            for term, stated in model.terms.items()
            for feature in stated.charged
        ),
    )
    counts = {"launches": 100, "gmem.load.32.stride1": 300, "flop.add.f32": 400}
    rows = breakdown_rows(weights.predict(counts))
    assert [(row.text, row.group) for row in rows] == [
        ("dram_bytes", "other"),
        ("my_compute", "memory"),
        ("kernel launches", "launch"),
    ]


def test_of_many_properties_without_a_charge_the_number_is_said_and_explanations_list_all() -> None:
    names = ["iop.add.i32", "groups", "code.gather", *(f"items{k}" for k in range(20))]
    lines = write_uncharged(names, every=True)
    assert write_uncharged(names[:3]) == [
        "not charged by this model: i32 additions, work groups started, gather instructions"
    ]
    assert "23 properties" in write_uncharged(names)[0]
    assert {*lines[0].partition(": ")[2].split(", ")} == {*map(plain_name, names)}


def test_verdicts_name_what_formulas_of_models_make_in_plain_words() -> None:
    message = "far above the largest value measured: waiting_cycles, flop.add.f32"
    (line,) = predictions.verdict_lines(
        [predictions.Verdict(name="extrapolation", passed=False, message=message)]
    )
    assert line.endswith(": stall cycles of dependent instructions, f32 additions")
