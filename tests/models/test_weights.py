"""Weight sets: times, parts, intervals, refusals, and the document."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import countperf
from countperf.counting.count_properties import content_key, count_kernel
from countperf.counting.structure.memory_hierarchy import DEFAULT_CACHES, load_hierarchy
from countperf.counting.taxonomy import COUNTING_RULES_VERSION
from countperf.counting.vector import PropertyVector
from countperf.errors import (
    DeviceMismatchError,
    DocumentError,
    FitError,
    MismatchError,
    ModelNotApplicableError,
    ParameterError,
    PredictionError,
    UnmeasuredPropertyError,
)
from countperf.measuring import KernelCase, Measurement, Timing
from countperf.measuring.cases import format_line, parse_line
from countperf.measuring.measurement_sets import counts_digest
from countperf.models.fitting.design import common_caches
from countperf.models.function import Range
from countperf.models.weights import WeightSet
from measurement_kernels.catalog import entry
from tests.kernels import made
from tests.models import builders
from tests.models.builders import TWO_TO_ONE, calibrated, make_device, make_weights, sum_model
from tests.shipped import FITS

LOAD, ADD = "gmem.load.32.stride1", "flop.add.f32"
WEIGHTS = make_weights({ADD: 2e-9, LOAD: 5e-9, "launches": 1e-6})
N = "[n] -> { n : n > 0 }"
KERNEL = PropertyVector.from_mapping(
    {ADD: "[n] -> { 3 * n : n > 0 }", LOAD: N, "launches": 1}, kernel="axpy"
)
SCALED_KERNEL = PropertyVector.from_mapping(
    {
        **{ADD: "[n] -> { 30 * n : n > 0 }", LOAD: N, "flop.special.f32.exp": N, "groups": N},
        **{"launches": 1, "iop.add.i32": N},
    },
    kernel="axpy",
)
SCALED = sum_model(
    {"launch": ["launches"], "work": {"charged": ["bytes", "flop.*.*"], "scale": "rounds"}},
    derived={"bytes": "4*gmem_load_32_stride1", "rounds": "4*ceil(groups/4)/groups"},
    ignored=["iop.*"],
)
VALUES = {"launches": 1e-6, "bytes": 2e-9, ADD: 2e-10, "flop.special.f32": 1e-9}


def _failed(prediction: Any) -> set[str]:
    return {verdict.name for verdict in prediction.caveats}


def _scaled(model: Any = SCALED, *, without: str = "", **changes: Any) -> WeightSet:
    """Weights of a model with a derived feature and a scale."""
    fields: dict[str, Any] = {
        "model": model.name,
        "definition": model,
        "weights": tuple(
            builders.make_weight("launches", value, term=term).model_copy(
                update={"feature": feature}
            )
            for term, spec in model.term_features.items()
            for feature, value in VALUES.items()
            if feature != without
            and (feature in model.terms[term].charged or spec.feature_of(feature) == feature)
        ),
        "ranges": {name: Range(largest=2.0) for name in model.scales},
        "quality": calibrated(between=0.4, within=0.1),
    }
    return make_weights({}, **(fields | changes))


def test_time_is_the_weighted_sum_and_the_breakdown_its_terms_largest_first() -> None:
    prediction = WEIGHTS.predict(KERNEL, n=1000)
    assert prediction.time_s == pytest.approx(6e-6 + 5e-6 + 1e-6, rel=1e-15)
    assert list(prediction.breakdown) == [ADD, LOAD, "launches"]
    assert prediction.breakdown == pytest.approx({ADD: 6e-6, LOAD: 5e-6, "launches": 1e-6})
    assert prediction.complete
    assert prediction.caveats == ()
    assert (prediction.kernel, prediction.device) == ("axpy", "pocl-testchip")
    assert prediction.parameters == {"n": 1000}
    assert prediction.time_s == WEIGHTS.predict(KERNEL, {"n": 1000}).time_s


def test_parts_are_weights_times_features_times_scales_and_sum_to_the_time() -> None:
    prediction = _scaled().predict(SCALED_KERNEL, n=1001)
    rounds = 1004 / 1001
    parts = {
        **{"launches": 1e-6, "bytes": 2e-9 * 4004 * rounds, ADD: 2e-10 * 30030 * rounds},
        "flop.special.f32": 1e-9 * 1001 * rounds,
    }
    assert prediction.breakdown == pytest.approx(parts, rel=1e-12)
    assert prediction.time_s == pytest.approx(sum(parts.values()), rel=1e-12)
    assert prediction.ignored == ("iop.add.i32",)
    assert SCALED.expression == "launch + rounds*(work)"


@pytest.mark.parametrize("slug", ["pocl-epyc-zen5", "intel-epyc-zen5"])
def test_weights_in_the_repository_predict_what_their_numbers_say(slug: str) -> None:
    path = FITS / slug / "linear.json"
    raw = {w["feature"]: w["value_s"] for w in json.loads(path.read_text())["weights"]}
    counts = {ADD: 1000, LOAD: 500, "groups": 4, "launches": 1, "gmem.min.32.stride1": 7}
    prediction = WeightSet.read_file(path).predict(counts)
    assert prediction.time_s == pytest.approx(sum(raw[n] * c for n, c in counts.items()), rel=1e-14)


def test_a_time_below_zero_is_told_and_refused() -> None:
    weights = make_weights({ADD: -1e-9, "launches": 1e-12})
    vector = PropertyVector.from_mapping({ADD: 1000})
    assert "sign" in _failed(weights.predict_counts(vector, {}))
    with pytest.raises(ModelNotApplicableError, match="negative weights outweigh"):
        weights.predict(vector)


def _with_a_correction() -> WeightSet:
    return WeightSet.read_file(FITS / "pocl-epyc-zen5" / "weights.json")


@pytest.mark.parametrize("made", [lambda: WEIGHTS, _with_a_correction])
def test_a_size_is_predicted_the_same_whatever_others_are(made: Callable[[], WeightSet]) -> None:
    weights = made()
    name = "axpy" if weights is WEIGHTS else "matmul-tiled/square/16x16/f32"
    kernel = KERNEL if weights is WEIGHTS else entry(name).build()
    sizes = [[64], [64, 128], [64, 128, 10**6], [10**6, 128, 64]]  # of which one extrapolates
    vector = weights.count(kernel)
    predictions: list[Any] = [
        weights.predict_counts(vector, dict.fromkeys(vector.parameters, np.array(n)))
        for n in (*sizes, 64)
    ]
    assert {v.name for v in predictions[-2].caveats} == {"extrapolation"}
    bits = [
        [tuple(map(float.hex, at)) for at in np.transpose([p.time_s, *p.interval_s]).reshape(-1, 3)]
        for p in predictions
    ]
    of_size = dict(zip(sizes[-1], bits[-2], strict=True))
    for some, found in zip((*sizes, [64]), bits, strict=True):
        assert found == [of_size[n] for n in some]


def test_sizes_without_a_cost_have_no_interval_and_others_do() -> None:
    vector = PropertyVector.from_mapping(
        {"launches": 1, ADD: "[n] -> { n }", "flop.div.f32": "[n] -> { n-8 }"}
    )
    said: Any = WEIGHTS.predict(vector, n=np.array([8, 9]), incomplete_ok=True)
    assert np.isnan(said.interval_s).tolist() == [[False, True]] * 2
    assert said.to_frame()["low_s"].isna().tolist() == [False, True]


def test_the_interval_follows_the_scatter_of_the_model() -> None:
    reach = np.exp(1.9602 * 0.1)  # the factor scatters by 0.1, known from 9997 degrees of freedom
    interval_s = WEIGHTS.predict({"launches": 2}).interval_s
    assert interval_s == pytest.approx((2e-6 / reach, 2e-6 * reach), rel=1e-5)


def test_the_linear_model_gives_no_interval_and_says_why() -> None:
    """Families left out of it are predicted with negative times or off by hundreds."""
    weights = WeightSet.read_file(FITS / "pocl-epyc-zen5" / "linear.json")
    made: Any = weights.predict({"launches": 1, ADD: 1000})
    assert made.interval_s is None
    (said,) = [v.message for v in made.caveats if v.name == "interval"]
    assert "it would reach a factor of 10 or more" in said
    assert "times below zero" in said
    near: Any = made.anchor(({}, made.time_s))
    assert 1.0 < near.interval_s[1] / near.time_s < 2.0


def test_an_interval_that_grows_beyond_a_factor_of_ten_is_left_out_with_the_reason() -> None:
    """A factor of 6.5 far outside of what was measured, 1.5 times as wide: 16."""
    known = calibrated(0.5, 0.1)
    assert known.calibration is not None
    wide = known.calibration.model_copy(update={"log_errors_95": float(np.log(6.5))})
    quality = known.model_copy(update={"calibration": wide})
    weights = make_weights({ADD: 1e-9, "launches": 1e-6}, quality=quality)
    largest = weights.by_feature[ADD].largest
    inside, outside = (weights.predict({"launches": 1, ADD: k * int(largest)}) for k in (1, 4))
    assert inside.interval_s is not None
    assert outside.interval_s is None
    assert "interval" not in {v.name for v in inside.caveats}
    assert {"interval", "extrapolation"} <= {v.name for v in outside.caveats}


def test_intervals_are_of_the_calibrated_quantile_at_the_level_asked_for() -> None:
    weights = _scaled(ranges={"rounds": Range(largest=1e3)})
    for level, quantile in ((0.9, 0.5), (0.95, 0.7)):
        prediction = weights.predict(SCALED_KERNEL, n=1000, level=level)
        reach = np.exp(quantile)
        assert prediction.interval_level == level
        assert prediction.interval_s == pytest.approx(
            (prediction.time_s / reach, prediction.time_s * reach)
        )
    with pytest.raises(ParameterError, match="intervals are of"):
        weights.predict(SCALED_KERNEL, n=1000, level=0.5)


@pytest.mark.parametrize(
    ("quality", "kernel"),
    [({"quality": None}, {"launches": 1}), ({}, {"launches": 1, "flop.div.f32": 2})],
    ids=["no quality", "incomplete"],
)
def test_no_interval_where_it_is_not_known(quality: Any, kernel: dict[str, int]) -> None:
    weights = make_weights({"launches": 1e-6}, **quality)
    assert weights.predict(kernel, incomplete_ok=True).interval_s is None


@pytest.mark.parametrize("count", [N, "[n] -> { n - 3 : n > 0 }"])
def test_no_prediction_is_negative(count: str) -> None:
    weights = make_weights({"launches": 1e-6, "groups": -1e-6})
    vector = PropertyVector.from_mapping({"launches": 1, "groups": count}, kernel="few")
    cost = weights.compile(vector)
    assert cost(n=1) == weights.predict(vector, n=1).time_s >= 0.0
    for size in (5, np.array([1, 5])):
        for give in (lambda n: cost(n=n), lambda n: weights.predict(vector, n=n)):
            with pytest.raises(ModelNotApplicableError, match="negative weights outweigh"):
                give(size)


def test_a_division_by_zero_is_said_and_no_time() -> None:
    model = sum_model(
        {"launch": {"charged": ["launches"], "scale": "pole"}, "rest": ["flop.*.*"]},
        derived={"pole": "1/(groups - 5)"},
        ignored=["iop.*", "gmem.*"],
    )
    weights = _scaled(model)
    for call in (weights.compile(SCALED_KERNEL), lambda n: weights.predict(SCALED_KERNEL, n=n)):
        for n in (5, np.array([5, 6])):
            with pytest.raises(ModelNotApplicableError, match="no finite time"):
                call(n=n)


@pytest.mark.parametrize(
    ("weights", "missing"),
    [
        (_scaled(without="bytes"), {"bytes"}),
        (_scaled(ranges={}), {"rounds"}),
        (
            _scaled(sum_model({"launch": ["launches"], "work": ["groups"]})),
            {ADD, LOAD, "flop.special.f32.exp", "groups", "iop.add.i32"},
        ),
    ],
    ids=["a derived feature", "a scale that no case had", "properties without a rule"],
)
def test_what_has_no_weight_is_never_dropped(weights: WeightSet, missing: set[str]) -> None:
    with pytest.raises(UnmeasuredPropertyError) as caught:
        weights.predict(SCALED_KERNEL, n=10)
    assert set(caught.value.properties) == missing
    with pytest.raises(UnmeasuredPropertyError):
        weights.compile(SCALED_KERNEL)(n=10)


def test_a_property_without_a_weight_is_an_error_that_names_it() -> None:
    kernel = PropertyVector.from_mapping(
        {"launches": 1, "flop.special.f32.rsqrt": 9, "flop.div.f64": 3}, kernel="n-body"
    )
    with pytest.raises(UnmeasuredPropertyError) as caught:
        make_weights({"launches": 1e-6}).predict(kernel)
    assert set(caught.value.properties) == {"flop.special.f32", "flop.div.f64"}
    for said in (
        "'n-body' needs",
        "measure kernels that have them (countperf measure --",
        "pocl-testchip",
    ):
        assert said in str(caught.value)


def test_on_request_a_prediction_is_incomplete_and_says_of_what() -> None:
    prediction = WEIGHTS.predict({"launches": 1, "flop.div.f32": 2}, incomplete_ok=True)
    assert prediction.time_s == pytest.approx(1e-6)
    assert not prediction.complete
    assert prediction.missing == ("flop.div.f32",)
    assert _failed(prediction) == {"complete"}


def test_weights_are_of_their_device_unless_forced_and_a_new_driver_is_a_caveat() -> None:
    other = make_device(slug="intel-otherchip", compute_units=64)
    with pytest.raises(DeviceMismatchError, match=r"for pocl-testchip .*not for intel-otherchip"):
        countperf.predict({"launches": 1}, weights=WEIGHTS, device=other)
    forced = countperf.predict({"launches": 1}, weights=WEIGHTS, device=other, force=True)
    assert (forced.device, _failed(forced)) == ("intel-otherchip", {"device"})
    for device, failed in ((make_device(), set()), (make_device(driver_version="4.0"), {"device"})):
        assert _failed(countperf.predict({"launches": 1}, weights=WEIGHTS, device=device)) == failed


def test_weights_of_other_counting_rules_are_refused() -> None:
    old = make_weights({"launches": 1e-6}, counting_rules=COUNTING_RULES_VERSION - 1)
    for use in (old.predict, old.compile):
        with pytest.raises(PredictionError, match="refit from measurements"):
            use({"launches": 1})


def test_a_kernel_that_needs_inseparable_weights_apart_is_refused_or_flagged() -> None:
    weights = make_weights(
        {"gmem.load.32.1of2": 1e-9, "gmem.store.32.1of2": 1e-9}, indistinguishable=(TWO_TO_ONE,)
    )
    together = weights.predict({"gmem.load.32.1of2": 200, "gmem.store.32.1of2": 100})
    counts = {"gmem.load.32.1of2": 200, "gmem.store.32.1of2": 101}
    with pytest.raises(PredictionError, match=r"is a guess; .*\(incomplete_ok=True\)"):
        weights.predict(counts)
    apart = weights.predict(counts, incomplete_ok=True)
    assert (_failed(together), _failed(apart)) == (set(), {"indistinguishable"})
    assert "gmem.load.32.1of2, gmem.store.32.1of2" in apart.caveats[0].message
    assert apart.interval_s is None


@pytest.mark.parametrize(
    ("keys", "value", "field", "said"),
    [
        (("weights", 0, "value_s"), "x", "$.weights[0].value_s", "number"),
        (("weights", 1, "value_s"), -1e-12, "$", r"is -1e-12, below the bound of its model, 0\.0"),
        (("weights",), [], "$.weights", "at least 1 item"),
        (("device", "slug"), "A B", "$.device.slug", "match"),
        (("weights", 1, "feature"), ADD, "$", "two weights"),
        (("weights", 1, "term"), "x", "$", "no term x"),
        (("version",), 3, "$.version", "countperf fit STORE --name NAME"),
    ],
)
def test_damage_is_refused(
    keys: tuple[str | int, ...], value: object, field: str, said: str
) -> None:
    content = json.loads(_scaled().write_text())
    *outer, last = keys
    inner = content
    for key in outer:
        inner = inner[key]
    inner[last] = value
    with pytest.raises(DocumentError, match=said) as caught:
        WeightSet.from_object(content)
    assert caught.value.field == field


def test_what_was_counted_before_version_0_2_is_refused_with_what_to_do() -> None:
    advice = r"measure again \(countperf measure\) and fit what that writes \(countperf fit FILE\)"
    vector = PropertyVector.from_mapping({ADD: 1}).to_document() | {"version": 1}
    case = KernelCase(name="a/n=16", kernel="a", build=lambda: None, parameters={"n": 16})
    line = format_line(Measurement.from_samples(case, [[1e-3]], dropped=0, code={"code.all": 1}))
    with pytest.raises(DocumentError, match=advice):
        PropertyVector.from_document(vector)
    with pytest.raises(DocumentError, match=f"'late.crowded.store' is no property.*{advice}"):
        parse_line(line.replace("code.all", "late.crowded.store"), 2)


OLD = Path(__file__).resolve().parents[1] / "golden" / "documents" / "weights-without-caches.json"
ZEN3, ZEN4 = (load_hierarchy(name).counted for name in ("amd-zen3", "amd-zen4"))


@pytest.fixture(scope="module")
def columns() -> Any:
    """Sums of the columns of an array, which walk down lines."""
    arguments = "a f32 m,n; out f32 n; n,m i32"
    return made("i<n, j<m", "out[i] = sum(j, a[j, i])", arguments, split="i:16")


def counted(columns: Any, caches: Any = None, **options: Any) -> PropertyVector:
    caches = {} if caches is None else {"caches": caches}
    return count_kernel(columns, view="structure", **caches, **options)


def _of_zen4() -> WeightSet:
    """Return weights that were fitted to kernels counted for Zen 4."""
    return WeightSet.read_file(OLD).model_copy(update={"counted_caches": ZEN4})


def test_weights_count_kernels_for_their_caches(columns: Any) -> None:
    old, new = WeightSet.read_file(OLD), _of_zen4()
    at = {"n": 1040, "m": 740}  # 740 lines, where Zen 4 keeps 512 and Zen 5 768
    misses = "issue.scalar.gmem.load.l2_reuse"  # loops are scalar under PoCL
    assert new.count(columns).evaluate(at)[misses] == 1040 * 740
    assert not old.count(columns).evaluate(at)[misses]
    crowded = {"n": 1024, "m": 12}  # 12 lines 4096 bytes apart: four more than Zen 4 has ways
    conflicts = "issue.scalar.gmem.load.set_conflict"
    assert new.count(columns).evaluate(crowded)[conflicts] == 1024 * 12 / 4
    assert not old.count(columns).evaluate(crowded)[conflicts]
    cost_s = new.by_feature[conflicts].value_s
    new_s, old_s = (countperf.predict(columns, crowded, weights=w).time_s for w in (new, old))
    assert new_s - old_s == pytest.approx(cost_s * 1024 * 12 / 4, rel=1e-9)


def test_a_vector_for_other_caches_is_refused(columns: Any) -> None:
    weights, at = _of_zen4(), {"n": 1040, "m": 740}
    vector = counted(columns)
    with pytest.raises(MismatchError, match="48 KiB of 12 ways") as caught:
        weights.predict(vector, at)
    assert "are for 32 KiB of 8 ways and 1024 KiB of 8 ways" in str(caught.value)
    # the advice, followed literally
    assert "caches=weights.counted_caches" in str(caught.value)
    mended = count_kernel(columns, view="structure", caches=weights.counted_caches)
    direct = countperf.predict(columns, at, weights=weights)
    assert weights.predict(mended, at).time_s == direct.time_s
    with pytest.raises(MismatchError):
        countperf.predict(vector, at, weights=weights)
    with pytest.raises(MismatchError):
        weights.compile(vector)


def test_code_read_for_another_cache_is_refused(columns: Any) -> None:
    weights = countperf.load_weights("pocl-epyc-zen4", model="compiled")
    own = weights.counted_caches
    other = own.model_copy(update={"code": load_hierarchy("amd-zen5").counted.first})
    code = {"code.all": 100, "miss.conflict.store": 10, "code.cycles_operations": 50}
    right, wrong = (
        counted(columns, caches).with_counts_at(lambda _: code, "code") for caches in (own, other)
    )
    assert weights.predict_counts(right, {"n": 1024, "m": 16}).time_s > 0
    with pytest.raises(MismatchError, match="caches of 48 KiB of 12 ways, and"):
        weights.predict_counts(wrong, {"n": 1024, "m": 16})
    structural = _of_zen4().model_copy(update={"counted_caches": own})
    assert structural.predict_counts(wrong, {"n": 1024, "m": 16}).time_s > 0  # reads no code


def test_a_vector_says_what_it_was_counted_for(columns: Any) -> None:
    for caches in (DEFAULT_CACHES, ZEN3):
        vector = counted(columns, caches)
        document = vector.to_document()
        assert vector.caches == caches
        assert PropertyVector.from_document(document) == vector
        del document["caches"]  # as documents were before
        assert PropertyVector.from_document(document).caches == DEFAULT_CACHES
        assert vector.take_source_view().caches is None
    assert count_kernel(columns).caches is None
    assert "caches" not in count_kernel(columns).to_document()


def test_counts_for_other_caches_are_not_taken_from_the_cache(columns: Any) -> None:
    caches = (ZEN3, ZEN4, DEFAULT_CACHES, ZEN3)
    vectors = [counted(columns, c) for c in caches]
    assert vectors == [counted(columns, c, cache=False) for c in caches]
    assert len({json.dumps(vector.to_document()) for vector in vectors}) == 3
    assert len({content_key(columns, {"caches": c.model_dump_json()}) for c in (ZEN3, ZEN4)}) == 2


def test_sorting_is_no_fact_of_the_program(columns: Any) -> None:
    vector = counted(columns, ZEN3)
    (name,) = (name for name in vector if name.endswith("gmem.load.32.next.beyond_l2"))
    assert vector.caveat(name) == "assumes caches of 32 KiB of 8 ways and 512 KiB of 8 ways"
    assert not vector.caveat("bytes.kernel.load")


def _measured(vector: PropertyVector, name: str, **more: Any) -> Measurement:
    case = KernelCase(name=name, kernel="a", build=lambda: None, parameters={"n": 16, "m": 16})
    return Measurement.from_samples(
        case, [[1e-3]], dropped=0, properties=vector.to_document(), **more
    )


def test_a_fit_needs_one_hierarchy(columns: Any) -> None:
    one, other = (
        _measured(counted(columns, caches), name)
        for caches, name in ((ZEN3, "a/n=16"), (ZEN4, "b/n=16"))
    )
    assert common_caches([one]) == ZEN3
    assert common_caches([]) == DEFAULT_CACHES
    with pytest.raises(FitError, match=r"'a/n=16' for 32 KiB of 8 ways and 512 KiB.*recount"):
        common_caches([other, one])


def test_a_fit_needs_code_that_was_read_for_one_cache(columns: Any) -> None:
    zen5 = load_hierarchy("amd-zen5").counted
    old, new, unread = (
        _measured(counted(columns, caches), name, code=code)
        for caches, name, code in (
            (DEFAULT_CACHES, "a/n=16", {"code.all": 1}),
            (zen5, "b/n=16", {"code.all": 1}),
            (zen5, "c/n=16", None),
        )
    )
    assert common_caches([unread, old]) == DEFAULT_CACHES
    assert common_caches([unread, new]) == zen5
    with pytest.raises(
        FitError, match=r"compiled code was not read.*'b/n=16' for 48 KiB of 12 ways"
    ):
        common_caches([old, new])


def test_a_timing_knows_its_kernel_whatever_the_caches(columns: Any) -> None:
    usual = counted(columns)
    digests = {"structure": counts_digest(usual), "source": counts_digest(usual.take_source_view())}
    size = SimpleNamespace(counts=digests, measurement="run")
    rules = COUNTING_RULES_VERSION
    timing = Timing.model_construct(kernel="columns", counting_rules=rules, sizes=[size])
    assert timing.runs_of(usual) == ["run"]
    assert timing.runs_of(counted(columns, ZEN3)) == ["run"]
