"""Where a time goes for people: rows, shares, and what bounds it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from countperf.predictions import Prediction
from countperf.report.breakdown import (
    bound_text,
    breakdown_rows,
    correction_factor,
)
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
    found = made({"issue.scalar.minor": 4e-3, "launches": 1e-3, "groups": 0.0, "correction": -1e-3})

    assert correction_factor(found) == pytest.approx(0.8)
    assert [(row.group, row.share) for row in breakdown_rows(found)] == [
        ("compute", "80 %"),
        ("launch", "20 %"),
    ]
    assert [row.time_s for row in breakdown_rows(found)] == pytest.approx([3.2e-3, 0.8e-3])


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
    found = made({name: 1e-3 / (1 + place) for place, name in enumerate(names[:number])})

    rows = breakdown_rows(found)

    assert 1 <= len(rows) <= 8
    assert sum(row.fraction or 0 for row in rows) == pytest.approx(1)
    assert sum(row.time_s for row in rows) == pytest.approx(found.time_s)


def test_what_negative_weights_take_off_has_a_row_of_its_own_and_no_share() -> None:
    # 3 ms + 1 ms cost time, the fit takes 1.9 ms off: no share is above 100 %
    found = made({"launches": 3e-3, "groups": 1e-3, "flop.add.f32": -1.5e-3, "items": -0.4e-3})

    assert [row.share for row in breakdown_rows(found)] == ["75 %", "25 %", ""]
    assert breakdown_rows(found)[-1].time_s == pytest.approx(-1.9e-3)
    assert sum(row.time_s for row in breakdown_rows(found)) == pytest.approx(found.time_s)
    assert "taken off by negative weights" in text_of(found).splitlines()[-1]
    assert bound_text(found) == "bound by launch: launching (75 %)"


def test_nothing_takes_no_rows_and_is_bound_by_nothing() -> None:
    assert breakdown_rows(made({"launches": 0.0})) == ()
    assert bound_text(made({"launches": 0.0})) == ""


@pytest.mark.parametrize(
    ("breakdown", "said"),
    [
        pytest.param(
            {
                "issue.scalar.gmem.store.l2_reuse": 6.0,
                "issue.scalar.gmem.load.l2_reuse": 2.0,
                "groups": 2.0,
            },
            "bound by memory: scalar global stores that miss L1 (60 %), scalar global loads that"
            " miss L1 (20 %)",
            id="one kind of parts",
        ),
        pytest.param(
            {"issue.vector.arithmetic.f32": 4.5, "issue.vector.chain.f32.add": 4.0, "groups": 1.5},
            "bound by compute and latency chains: vector add, multiply, fma f32 (45 %), vector"
            " dependent f32 additions (40 %)",
            id="two kinds of parts, neither half of the time",
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
