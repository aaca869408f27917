"""Where a time goes for people: rows, shares, and what bounds it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from countperf.models.breakdown import (
    OTHER,
    PlainName,
    bound_text,
    breakdown_rows,
    correction_factor,
    plain_name,
    uncharged_lines,
)
from countperf.models.library import load_weights, named_fits
from countperf.models.predictions import Prediction, Verdict, verdict_lines
from tests.printing import text_of


def made(breakdown: dict[str, float], **more: object) -> Prediction:
    return replace(
        Prediction(
            kernel="k",
            device="d",
            model="structural-w8",
            parameters={"n": 512},
            time_s=sum(breakdown.values()),
            interval_s=None,
            breakdown=dict(breakdown),
        ),
        **more,
    )


def test_parts_and_shares_include_the_correction_as_a_factor() -> None:
    # the model says 4 ms + 1 ms, the correction takes a fifth of it away
    prediction = made(
        {"issue.scalar.minor": 4e-3, "launches": 1e-3, "groups": 0.0, "correction": -1e-3}
    )

    assert correction_factor(prediction) == pytest.approx(0.8)
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
    assert bound_text(prediction) == "bound by launch: launching (75 %)"


def test_nothing_takes_no_rows_and_is_bound_by_nothing() -> None:
    assert breakdown_rows(made({"launches": 0.0})) == ()
    assert bound_text(made({"launches": 0.0})) == ""


@pytest.mark.parametrize(
    ("breakdown", "said"),
    [
        (  # one kind of parts
            {
                "issue.scalar.gmem.store.l2_reuse": 6.0,
                "issue.scalar.gmem.load.l2_reuse": 2.0,
                "groups": 2.0,
            },
            "bound by memory: scalar global stores that miss L1 (60 %), scalar global loads that"
            " miss L1 (20 %)",
        ),
        (  # two kinds of parts, neither half of the time
            {"issue.vector.arithmetic.f32": 4.5, "issue.vector.chain.f32.add": 4.0, "groups": 1.5},
            "bound by compute and latency chains: vector add, multiply, fma f32 (45 %), vector"
            " dependent f32 additions (40 %)",
        ),
    ],
)
def test_what_bounds_a_time_is_told_from_its_largest_parts(
    breakdown: dict[str, float], said: str
) -> None:
    assert bound_text(made(breakdown)) == said


def test_a_corrected_prediction_is_read_in_this_order() -> None:
    lines = text_of(made({"launches": 3e-3, "groups": 1e-3})).splitlines()

    assert lines == [
        "4.00 ms",
        "bound by launch: launching (75 %)",
        "k on d, n = 512; structural model, warm caches",
        "  launch    3.00 ms  75 %  launching",
        "  overhead  1.00 ms  25 %  starting work groups",
    ]


def _features() -> set[str]:
    """Return all features of the shipped models."""
    shipped = [
        load_weights(fit.name, model=model) for fit in named_fits().values() for model in fit.models
    ]
    return {name for weights in shipped for name in weights.by_feature}


def test_every_feature_of_the_shipped_models_has_a_plain_name_of_its_own() -> None:
    names = {feature: plain_name(feature) for feature in _features()}

    assert len(names) > 200
    assert [feature for feature, name in names.items() if name == PlainName(feature, OTHER)] == []
    assert len({*names.values()}) == len(names)
    words = {word for name in names.values() for word in name.text.split()}
    assert words & {"gmem", "lmem", "pmem", "walk", "issue", "reuse"} == set()
    assert not any("_" in word or "." in word for word in words)


@pytest.mark.parametrize(
    ("part", "text", "group"),
    [
        ("launches", "launching", "launch"),
        ("issue.scalar.gmem.store.l2_reuse", "scalar global stores that miss L1", "memory: L2"),
        ("issue.vector.lmem.load.next", "vector local loads of consecutive addresses",
         "memory: local"),
        ("issue.vector.chain.f32.add", "vector dependent f32 additions",
         "latency chains"),
        ("gmem.load.64.2of3", "global loads 64 2of3", "memory: global"),
        ("load_beyond_llc", "loads beyond the last-level cache", "memory: beyond L2"),
        ("my_own_part", "my_own_part", "other"),
    ],
)  # fmt: skip
def test_plain_names_and_groups(part: str, text: str, group: str) -> None:
    assert plain_name(part) == PlainName(text, group)


def test_of_many_properties_without_a_charge_the_number_is_said_and_explanations_list_all() -> None:
    names = ["iop.add.i32", "groups", "code.gather", *(f"items{k}" for k in range(20))]
    lines = uncharged_lines(names, every=True)

    assert uncharged_lines(names[:3]) == [
        "not charged by this model: integer additions i32, starting work groups,"
        " machine code: gather"
    ]
    assert "23 properties" in uncharged_lines(names)[0]
    assert set(" ".join(lines).replace(",", "").split()) > set(names)


def test_verdicts_name_what_formulas_of_models_make_in_plain_words() -> None:
    message = "far above the largest value measured: waiting_cycles, flop.add.f32"
    (line,) = verdict_lines([Verdict(name="extrapolation", passed=False, message=message)])
    assert line.endswith(": stall cycles of dependent instructions, flop.add.f32")
