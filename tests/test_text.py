"""Exact text and documents of small results; numbers with prefixes, rounding, tables."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from countperf.counting.vector import PropertyVector
from countperf.models.explanation import rate_of
from countperf.models.fitting.fit_model import fit
from countperf.models.function import FitQuality
from countperf.models.metrics import (
    EvaluatedCase,
    Evaluation,
    RankedSet,
    RankedVariant,
    RankingEvaluation,
)
from countperf.models.weights import WeightSet
from countperf.text import Table, format_percent, format_quantity, plain
from tests.models.builders import make_weight, make_weights
from tests.models.fitting.builders import measure
from tests.printing import object_of, text_of

VECTOR = PropertyVector.from_mapping(
    {
        **{"launches": 1, "flop.add.f32": "[n] -> { n : n > 0 }", "iop.add.i32": 1},
        "gmem.load.32.stride1": "[n] -> { 2 * n : n > 0 }",
    },
    kernel="axpy",
)
WEIGHTS = make_weights({"flop.add.f32": 1e-12, "gmem.load.32.stride1": 4e-12, "launches": 1e-6})


def test_a_prediction_gives_the_time_first_then_where_it_goes() -> None:
    first, bound, what, *rows, last = text_of(WEIGHTS.predict(VECTOR, n=10**6)).splitlines()
    assert first == "10.0 µs (95 % interval: 8.22 µs to 12.2 µs)"
    assert bound.startswith("bound by memory: ")
    assert what.startswith("axpy on pocl-testchip, n = 1000000")
    assert [re.findall(r"(\d+) %", row) for row in rows] == [["80"], ["10"], ["10"]]
    assert last.endswith("i32 additions")


def test_incomplete_times_are_marked_and_end_with_their_caveats_and_mends() -> None:
    lacking = WEIGHTS.predict({"launches": 1, "flop.div.f32": 1}, incomplete_ok=True)
    first, *_, verdict, mend = text_of(lacking).splitlines()
    assert first.startswith("at least 1.00 µs (incomplete: ")
    assert "f32 divisions" in verdict
    assert "mend: measure kernels" in mend
    compared = text_of(WEIGHTS.predict(VECTOR, n=1).against(lacking)).splitlines()[0]
    assert compared.endswith("times the time of axpy (incomplete, a lower bound: by hand)")
    counts: dict[str, str | int] = {"launches": 1, "flop.div.f32": "[n] -> { n }"}
    several = WEIGHTS.predict(counts, n=np.array([1, 2]), incomplete_ok=True)
    assert text_of(several).splitlines()[0] == (
        "by hand on pocl-testchip; linear model, warm caches; at least these times"
        " (incomplete: without the cost of f32 divisions)"
    )


def test_intervals_are_widened_and_stand_in_tables_where_there_are_any() -> None:
    counts = {"launches": 1, "flop.add.f32": 10**8}
    said = text_of(WEIGHTS.predict(counts))
    without = text_of(WEIGHTS.predict({**counts, "flop.div.f32": 1}, incomplete_ok=True))
    assert "far above the largest value measured: f32 additions; the interval is widened" in said
    assert "far above the largest value measured: f32 additions\n" in without
    several = text_of(WEIGHTS.predict(VECTOR, n=np.array([1, 2])))
    assert "n     time    from  to (95 %)" in several


def test_counts_with_and_without_values() -> None:
    assert text_of(VECTOR).splitlines()[0] == "kernel axpy, per launch"
    symbolic = str(VECTOR["flop.add.f32"])
    assert f"flop.add.f32          {symbolic}" in text_of(VECTOR)
    assert f"flop.add.f32              7  {symbolic}" in text_of(VECTOR, VECTOR.evaluate(n=7))
    several = VECTOR.evaluate(n=np.arange(1, 7))
    assert "1, 2, 3, 4, ..." in text_of(VECTOR, several)


@pytest.mark.parametrize(
    ("feature", "value_s", "error_s", "rate"),
    [
        ("flop.special.f64", 1e-9, 1e-11, "1.00 Gflop/s"),
        ("gmem.store.128.4ofn", 1e-9, 1e-11, "16.0 Gbyte/s"),
        ("lmem.load.16", 1e-9, 1e-11, "2.00 Gbyte/s"),
        ("groups", 1e-6, 1e-8, "1.00 Mwork group/s"),
        ("barrier.local", 1e-9, 1e-11, "1.00 Gbarrier x work item/s"),
        ("launches", 1e-6, 1e-8, ""),
        ("gmem.min.32.stride1", 1e-9, 1e-11, ""),
        ("flop.add.f32", -1e-9, 1e-11, ""),
        ("flop.add.f32", 1e-9, 6e-10, ""),
        ("flop.add.f32", 1e-9, None, "1.00 Gflop/s"),  # as a paper prints it
    ],
)
def test_only_weights_that_are_rates_are_shown_as_rates(
    feature: str, value_s: float, error_s: float | None, rate: str
) -> None:
    implied = rate_of(make_weight(feature, value_s, standard_error_s=error_s))
    assert ("" if implied is None else format_quantity(*implied)) == rate


def test_a_fit_gives_its_errors_first_and_its_verdicts_last() -> None:
    lines = text_of(fit(measure(noise=np.random.default_rng(5)))).splitlines()
    assert lines[0].startswith("error: in-sample ")
    assert "on classes left out" in lines[0]
    assert lines[1] == "linear model on pocl-testchip, 17 cases, rank 6 of 6"
    assert lines[3].split() == ["feature", "weight", "unit", "implied", "rate", "remark"]
    assert any(line.startswith("ok  rank: full") for line in lines)


def test_a_fit_without_held_out_families_says_only_what_it_knows() -> None:
    result = fit(measure())
    unknown = dict.fromkeys(("held_out_error", "in_sample_scatter", "held_out_scatter"))
    quality = FitQuality(in_sample_error=0.1, **unknown)
    weights = result.weights.model_copy(update={"quality": quality})
    assert text_of(replace(result, weights=weights)).splitlines()[0] == (
        "error: in-sample 10 % (geometric means of relative errors)"
    )


CASES = tuple(
    EvaluatedCase(
        kernel=kernel,
        parameters={"n": 8},
        measured_s=measured_s,
        predicted_s=factor * measured_s,
        complete=kernel == "fast",
    )
    for kernel, measured_s, factor in (("fast", 1e-3, 1.1), ("slow", 1.0, 0.6))
)


def _evaluated(*cases: EvaluatedCase) -> str:
    return text_of(Evaluation(device="pocl-testchip", model="linear", cases=cases))


def test_an_evaluation_gives_the_mean_first() -> None:
    _, mean, *lines = _evaluated(*CASES).splitlines()
    assert mean.startswith("test kernels: predicted 20 % off ")
    assert [line.split()[4:] for line in lines[1:3]] == [
        ["1.00", "ms", "1.10", "ms", "10", "%"],
        ["1.00", "s", "600", "ms", "40", "%", "incomplete"],
    ]
    assert [line.split() for line in lines[-2:]] == [
        ["fast", "10", "%", "1.1"],
        ["slow", "40", "%", "1.667"],
    ]


def test_an_evaluation_has_a_table_for_each_purpose() -> None:
    changes = {"purpose": "application", "predicted_s": -1.0}
    applications = [case.model_copy(update=changes) for case in CASES]
    first, second = _evaluated(*CASES, *applications).split("applications: predicted ")
    assert "test kernels: predicted 20 % off (geometric mean over 2 kernels, 2 cases)" in first
    assert second.count("inf") == 2


def test_an_evaluation_shows_noise_and_what_lies_within_it_and_what_intervals_hold() -> None:
    fast, slow = CASES
    cases = (
        fast.model_copy(update={"noise": 0.06, "interval_s": (0.9e-3, 1.2e-3)}),
        slow.model_copy(update={"noise": 0.01, "interval_s": (0.5, 0.7)}),
    )
    _, held, _, first, second, *_ = _evaluated(*cases).splitlines()
    assert "1 of 2 within 90 % intervals" in held
    assert first.endswith("within noise")
    assert second.endswith("incomplete, outside its interval")


def test_two_predictions_are_compared_part_by_part_largest_difference_first() -> None:
    other = PropertyVector.from_mapping({"launches": 1, "flop.add.f32": 6 * 10**6}, kernel="adds")
    text = text_of(WEIGHTS.predict(VECTOR, n=10**6).against(WEIGHTS.predict(other)))
    lines = text.splitlines()
    assert lines[0] == "adds: 0.7 times the time of axpy"
    assert [line.split()[-2] for line in lines[4:8]] == ["-3.00", "-8.00", "5.00", "0"]
    assert lines[-1].startswith("cause: axpy takes 3.00 µs longer than adds")
    assert "(8.00 µs)" in lines[-1]


SYMBOLS = ("q", "r", "y", "z", "a", "f", "p", "n", "µ", "m", "", *"kMGTPEZYRQ")
PREFIXES = {symbol: float(f"1e{3 * power}") for power, symbol in enumerate(SYMBOLS, start=-10)}


@pytest.mark.parametrize(("prefix", "factor"), PREFIXES.items())
def test_every_prefix_stands_for_its_power_of_ten(prefix: str, factor: float) -> None:
    assert format_quantity(2.5 * factor, "s") == f"2.50 {prefix}s"
    assert format_quantity(-250 * factor, "s") == f"-250 {prefix}s"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0 s"),
        (999.4, "999 s"),
        (999.6, "1.00 ks"),  # rounding reaches the next prefix
        (0.9996, "1.00 s"),
        (12345.0, "12.3 ks"),
        (float("inf"), "inf s"),
        (5e35, "500000 Qs"),
        (1e-33, "0.00100 qs"),
    ],
)
def test_rounding_to_three_digits(value: float, text: str) -> None:
    assert format_quantity(value, "s") == text


@given(st.floats(1e-29, 1e29))
def test_what_is_written_is_within_half_a_digit(value: float) -> None:
    number, unit = format_quantity(value, "s").split(" ")
    assert float(number) * PREFIXES[unit.removesuffix("s")] == pytest.approx(value, rel=0.0051)
    assert 1 <= float(number) < 1000
    assert len(number.replace(".", "")) == 3


@pytest.mark.parametrize(
    ("fraction", "text"),
    [
        *((0.0, "0 %"), (0.000123, "0.012 %"), (0.0937, "9.4 %"), (0.3049, "30 %")),
        *((0.996, "100 %"), (2.5713, "257 %"), (-0.125, "-12 %"), (float("inf"), "inf %")),
    ],
)
def test_percentages(fraction: float, text: str) -> None:
    assert format_percent(fraction) == text


def test_tables_align_and_have_no_blanks_at_line_ends() -> None:
    table = Table(header=("name", "n"), rows=(("a", "1"), ("bcd", "1000")), right=(1,))
    assert table.lines(indent="") == ["name     n", "a        1", "bcd   1000"]
    assert Table(header=(), rows=(("a", ""), ("b", ""))).lines(indent="") == ["a", "b"]


_USERS_NAMES = ("share", "noise", "error", "count", "n_s", "low_s", "time_s", "time", "part")


@pytest.mark.parametrize("name", _USERS_NAMES)
def test_sizes_are_printed_as_sizes_whatever_they_are_called(name: str) -> None:
    """Frames and tables keep sizes apart from results of the same name."""
    counts: dict[str, str | int] = {"launches": 1, "flop.add.f32": f"[{name}] -> {{ {name} }}"}
    made = WEIGHTS.predict(counts, {name: np.array([100000, 200000])})
    size, other = name, f"parameters.{name}"
    shown = other if name in ("low_s", "time_s", "time") else size
    in_frame = other if name in ("low_s", "time_s") else size
    _, header, first, _ = text_of(made).splitlines()
    assert header.split()[:3] == [shown, "time", "from"]
    assert first.split()[:3] == ["100000", "1.10", "µs"]
    frame = made.to_frame()
    assert [*frame.columns] == [in_frame, "time_s", "low_s", "high_s"]
    assert [*frame[in_frame]] == [100000, 200000]
    assert frame["time_s"].tolist()[1] == pytest.approx(1.2e-6)
    assert '<td data-head="' + shown + '" class="number">200000</td>' in made._repr_html_()  # pyright: ignore[reportPrivateUsage]
    one = text_of(WEIGHTS.predict(counts, {name: 100000}))
    assert f"{name} = 100000" in one


def test_kernels_of_one_name_are_compared_as_first_and_second() -> None:
    other = PropertyVector.from_mapping(dict.fromkeys(VECTOR, 5), kernel="axpy")
    first, second = WEIGHTS.predict(VECTOR, n=130), WEIGHTS.predict(other, {})
    named = replace(second, given_as="axpy_b")
    assert first.against(second).names == ("axpy (first)", "axpy (second)")
    assert replace(first, given_as="axpy_a").against(named).names == ("axpy_a", "axpy_b")
    assert first.against(WEIGHTS.predict(VECTOR, n=131)).names == ("n = 130", "n = 131")
    again = replace(first, given_as="axpy_a", parameters={"n": 131})
    assert replace(first, given_as="axpy_a").against(again).names == ("n = 130", "n = 131")


# --- documents


def _object(*result: Any) -> dict[str, Any]:
    content = object_of(*result)
    assert json.loads(json.dumps(content)) == content
    return content


def test_documents_of_counts_and_predictions() -> None:
    content = _object(VECTOR)
    assert set(content) == {"kernel", "properties"}
    assert content["kernel"] == "axpy"
    assert set(content["properties"]) == {*VECTOR}
    assert content["properties"]["launches"] == {"symbolic": "{ 1 }", "exact": True}
    at_size = _object(VECTOR, VECTOR.evaluate(n=10**24))
    assert at_size["properties"]["flop.add.f32"]["value"] == 10**24

    content = _object(WEIGHTS.predict(VECTOR, n=10**6))
    assert set(content) == {
        *("kernel", "device", "weights", "model", "parameters"),
        *("time_s", "interval_s", "interval_level"),
        *("breakdown_s", "complete", "caches", "caveats"),
    }
    assert content["parameters"] == {"n": 10**6}
    assert content["time_s"] == pytest.approx(1e-5)
    assert list(content["breakdown_s"]) == ["gmem.load.32.stride1", "flop.add.f32", "launches"]
    assert content["complete"] is True
    low, high = content["interval_s"]
    assert low < content["time_s"] < high

    without = WEIGHTS.model_copy(update={"quality": None})
    content = _object(without.predict(VECTOR, n=np.array([10**5, 10**6])))
    assert content["parameters"] == {"n": [10**5, 10**6]}
    assert content["time_s"] == pytest.approx([1.9e-6, 1e-5])
    assert content["interval_s"] is None


def test_evaluation() -> None:
    common: Any = {"kernel": "k", "parameters": {"n": 1}, "measured_s": 1.0, "predicted_s": 1.25}
    case = EvaluatedCase(**common, noise=0.2, interval_s=(0.5, 0.75))
    means = {
        "overall": pytest.approx(0.25),
        "by_kernel": {"k": pytest.approx(0.25)},
        "worst_factor": {"k": 1.25},
        "cases": 1,
        "zero_errors": 0,
    }
    printed = {"purpose": "test", "relative_error": 0.25, "noise": 0.2, "within_noise": True}
    assert _object(Evaluation(device="d", model="linear", cases=(case,))) == {
        "device": "d",
        "model": "linear",
        "remarks": [],
        "cases": [{**common, **printed, "interval_s": [0.5, 0.75], "complete": True}],
        "geometric_mean": means,
        "by_purpose": {"test": means},
        "coverage": {
            "level": 0.9,
            "covered": 0,
            "cases": 1,
            "median_factor": pytest.approx(1.5**0.5),
        },
    }


def _rank_variant(n: int, *predicted: float | None) -> RankedSet:
    variants = tuple(
        RankedVariant(variant=str(k), measured_s=k * 1e-3, predicted_s=p, complete=p != 0.5)
        for k, p in enumerate(predicted, start=1)
    )
    return RankedSet(family="variants-matmul", parameters={"n": n}, variants=variants)


def test_ranking_has_a_row_for_each_set_and_one_for_all() -> None:
    sets = (_rank_variant(64, 1.0, 2.0, None), _rank_variant(128, 0.5, 0.25))
    evaluation = RankingEvaluation(device="pocl-testchip", model="linear", sets=sets)
    lines = text_of(evaluation).splitlines()
    assert [line.split()[-3:] for line in lines[2:5]] == [
        ["1.00", "1.00", "1.00"],
        ["2.00", "1.00", "1.00"],
        ["1.41", "1.00", "1.00"],
    ]
    content = _object(evaluation)
    assert content["sets"][1] == {
        "family": "variants-matmul",
        "parameters": {"n": 128},
        **{"variants": 2, "refused": 0, "incomplete": 1, "fastest_s": 1e-3, "slowest_s": 2e-3},
        "kendall_tau": -1.0,
        "regret": {"1": 2.0, "3": 1.0, "5": 1.0},
    }
    assert content["mean"]["kendall_tau"] == 0.0


def test_fit_holds_the_weights_document() -> None:
    result = fit(measure())
    content = json.loads(json.dumps(object_of(result)))
    assert WeightSet.from_object(content["weights"]) == result.weights
    assert (content["device"], content["cases"], content["rank"]) == ("pocl-testchip", 17, 6)
    assert {verdict["name"] for verdict in content["verdicts"]} >= {"rank", "errors"}


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (Fraction(1, 4), 0.25),
        (np.int64(7), 7),
        (np.array([[1, 2]]), [[1, 2]]),
        (np.array(3.0), 3.0),
        (np.array([Fraction(1, 2)], dtype=object), [0.5]),
        (2**80, 2**80),
    ],
)
def test_plain_values(value: object, expected: object) -> None:
    assert plain(value) == expected
    assert type(plain(value)) is type(expected)
