"""Models that read compiled code: fits, what they predict, and what they refuse."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import countperf
from countperf.api import catalogue, fits
from countperf.api import evaluation as fitting
from countperf.api.prediction import choose_weights
from countperf.counting.structure.issue import ExecutionPolicy
from countperf.counting.structure.memory_hierarchy import load_hierarchy
from countperf.counting.vector import PropertyVector
from countperf.errors import CountingError, FitError, PredictionError
from countperf.measuring import Measurement, MeasurementSet
from countperf.models.definition import OVERLAPPED, FeatureSpec, ModelDefinition, Term
from countperf.models.fitting.fit_model import FitResult, fit
from countperf.models.function import model_inputs
from countperf.models.library import find_fit, load_weights, short_name
from countperf.models.metrics import evaluate, evaluate_ranking
from countperf.models.shipped import (
    ORDERS,
    Order,
    load_fitted_model,
    make_compiled_model,
    make_structural_model,
)
from countperf.models.weights import WeightSet
from tests.models.fitting.builders import MadeUpKernel, measure

ADD = "site.free.flat.256x1.flop.add.f32"
LOAD = "site.free.flat.256x1.gmem.load.32.next"
POLICY = ExecutionPolicy(width=8, vectorized="flat")
FEATURES = FeatureSpec(charged=("groups", "launches"), ignored=("site.*",))
WEIGHTS = {"groups": 1e-8, "launches": 4e-6}
COST_S = {"code.arithmetic_vector": 3e-10, "code.gather_lanes": 2e-9}
FAMILIES, EACH = 6, 5


def code_of(family: int, number: int, n: int) -> dict[str, int]:
    """Instructions that no count tells: how a compiler took it."""
    return {
        "code.all": 100 * n,
        "code.arithmetic_vector": (1 + (7 * family + 3 * number) % 11) * 40 * n,
        "code.gather_lanes": (5 * family + number) % 4 * 30 * n,
    }


def kernel(family: int, number: int) -> MadeUpKernel:
    counts = {ADD: 2 ** (1 + number) + family, LOAD: 1 + (family + number) % 4}
    return MadeUpKernel(
        name=f"k{family}{number}",
        family=f"f{family}",
        counts={name: f"[n] -> {{ {256 * n} * n }}" for name, n in counts.items()}
        | {"groups": "[n] -> { n }"},
        view="structure",
    )


@cache
def measured() -> MeasurementSet:
    """A device whose time is that of counts, and of instructions."""
    made = [kernel(family, number) for family in range(FAMILIES) for number in range(EACH)]

    def with_code(line: Measurement) -> Measurement:
        code = code_of(int(line.kernel[1]), int(line.kernel[2]), line.parameters["n"])
        time_s = line.time_s + sum(COST_S.get(name, 0.0) * count for name, count in code.items())
        changes = {"code": code, "samples_s": ((time_s,),), "time_s": time_s}
        return line.model_copy(update=changes)

    counted = measure(made, weights=WEIGHTS, features=FEATURES)
    return replace(counted, measurements=tuple(map(with_code, counted)))


def changed(concerned: Callable[[Measurement], bool], **changes: Any) -> MeasurementSet:
    """Return what was measured with some lines changed."""
    lines = [m.model_copy(update=changes) if concerned(m) else m for m in measured()]
    return replace(measured(), measurements=tuple(lines))


@cache
def weights() -> WeightSet:
    return fit(measured(), model=make_compiled_model(), correct=False).weights


def fit_model(some: MeasurementSet, name: str = "compiled") -> FitResult:
    model = load_fitted_model(name, some.device)
    return fit(some, model=model, correct=False)


def vector() -> PropertyVector:
    made = kernel(2, 3)
    return PropertyVector.from_mapping(made.counts, kernel=made.name, view="structure")


def with_its_code(**more: int) -> PropertyVector:
    def code(parameters: Mapping[str, int]) -> dict[str, int]:
        return code_of(2, 3, parameters["n"]) | more

    return vector().with_counts_at(code, "code")


def test_groups_that_data_decides_are_told() -> None:
    names = [
        {caveat.name for caveat in weights().predict(with_its_code(**more), n=64).caveats}
        for more in ({}, {"code.groups_unknown": 1})
    ]
    assert names[1] - names[0] == {"groups"}


def test_instructions_tell_what_counts_do_not() -> None:
    plain = fit(measured(), model=make_structural_model(POLICY), correct=False)
    quality, other = weights().quality, plain.weights.quality
    assert quality is not None
    assert other is not None
    assert quality.in_sample_error < 0.02 < other.in_sample_error
    assert weights().by_feature["code.gather_lanes"].value_s > 1e-9
    assert "code.gather_lanes" not in plain.weights.by_feature


def test_predictions_take_the_code_of_a_vector() -> None:
    first = next(m for m in measured() if m.kernel == "k23")
    n = first.parameters["n"]
    prediction = weights().predict(with_its_code(), n=n)
    assert prediction.time_s == pytest.approx(first.time_s, rel=0.05)
    assert any(name.startswith("code.") for name in prediction.breakdown)
    many = weights().predict(with_its_code(), n=np.array([[n, 2 * n]]))
    assert np.shape(many.time_s) == (1, 2)
    assert np.asarray(many.time_s)[0, 0] == pytest.approx(prediction.time_s)
    explained = countperf.explain(with_its_code(), n=n, weights=weights())
    assert explained.prediction.time_s == prediction.time_s


def test_without_code_there_is_no_prediction() -> None:
    with pytest.raises(PredictionError, match="reads compiled code, and there is none"):
        weights().predict(vector(), n=64)
    with pytest.raises(PredictionError, match="cost function has formulas only"):
        weights().compile(with_its_code())


def test_other_models_leave_code_alone() -> None:
    plain = fit(measured(), model=make_structural_model(POLICY), correct=False).weights
    with_it, without = (plain.predict(v, n=64) for v in (with_its_code(), vector()))
    assert with_it.time_s == without.time_s
    assert with_it.complete
    assert plain.compile(with_its_code())(n=64) == pytest.approx(without.time_s)


def test_cases_without_code_are_left_out() -> None:
    some = changed(lambda m: m.family == "f1", code=None)
    fitted = fit(some, model=make_compiled_model(), correct=False)
    assert {case.family for case in fitted.observations} == {"f0", "f2", "f3", "f4", "f5"}
    judged = some.select(lambda m: m.family in ("f1", "f2"))
    cases = evaluate(weights(), judged).cases
    assert {case.kernel[:2] for case in cases} == {"k2"}
    variants = [m.model_copy(update={"purpose": "variant"}) for m in judged]
    sets = evaluate_ranking(weights(), replace(judged, measurements=tuple(variants))).sets
    refused = {s.family: sum(v.predicted_s is None for v in s.variants) for s in sets}
    assert refused["f1"] > 0
    assert refused["f2"] == 0
    with pytest.raises(FitError, match="countperf compiled --store"):
        fit_model(changed(lambda _: True, code=None))


def test_code_read_without_the_cycles_that_are_charged_is_refused() -> None:
    old = {**code_of(2, 3, 64), "code.cycles": 6400}
    some = changed(lambda m: m.kernel == "k23", code=old)
    variant = replace(
        some, measurements=tuple(m.model_copy(update={"purpose": "variant"}) for m in some)
    )
    with pytest.raises(PredictionError, match=r"case .k23.*read it again"):
        fit(some, model=make_compiled_model(), correct=False)
    with pytest.raises(PredictionError, match=r"case .k23.*read it again"):
        evaluate(weights(), variant)
    with pytest.raises(PredictionError, match=r"case .k23.*read it again"):
        evaluate_ranking(weights(), variant)
    with pytest.raises(PredictionError, match=r"the kernel was read.*read it again"):
        weights().predict(with_its_code(**{"code.cycles": 6400}), n=64)
    pattern = ModelDefinition(name="mine", policy=POLICY, terms={"code": Term(charged=("code.*",))})
    with pytest.raises(PredictionError, match=r"case 'k23.*read it again"):
        fit(some, model=pattern, correct=False)
    assert not fit_model(some, "structural").weights.definition.reads_code


def test_documents_keep_it(tmp_path: Path) -> None:
    again = WeightSet.from_object(weights().to_object())
    assert again.definition.reads_code
    assert again == weights()
    measured().write_file(tmp_path / "measured.jsonl")
    stored = MeasurementSet.read_file(tmp_path / "measured.jsonl")
    assert [m.code for m in stored] == [m.code for m in measured()]
    n, kept = stored.measurements[0].parameters["n"], stored.measurements[0].property_vector()
    assert kept is not None
    assert kept.evaluate(n=n)["code.all"] == 100 * n
    with pytest.raises(CountingError, match="known at these sizes only"):
        kept.evaluate(n=n + 1)


def test_which_models_there_are() -> None:
    for order, policy in ORDERS.items():
        model = make_compiled_model(order, units=4)
        assert (model.policy, model.name, model.reads_code) == (policy, "compiled", True)
        assert "rounds" in model.expression
    assert "rounds" not in make_compiled_model().expression
    charged = [feature for term in make_compiled_model().terms.values() for feature in term.charged]
    assert len(charged) == len(set(charged)) == 29


def test_no_policy_guesses_instructions() -> None:
    counts = {
        "site.free.flat.64x1.flop.add.f32": 64000,
        "site.free.flat.64x1.gmem.load.32.next.l2_reuse": 6400,
        **{"site.free.flat.64x1.gmem.store.64.l2_reuse.next": 640, "bytes.group.load.dense": 2**22},
        **{"bytes.group.store.dense": 2**22, "bytes.kernel.load": 2**22},
        **{"bytes.kernel.store": 2**22, "code.cycles_overlapped": 900},
        **{"code.cycles_throughput": 600, "groups": 3, "launches": 1},
    }
    inputs = model_inputs(make_compiled_model(units=2), counts)
    values = {feature: value for (_, feature), value in inputs.values.items()}
    assert values["waiting_cycles"] == 300
    assert values["load_lines_l2"] == 400  # sixteen lanes of 32 bits side by side are one line
    assert values["store_lines_l2"] == 640  # lanes apart
    assert values["load_distinct"] == 2**22
    assert "load_beyond_llc" not in values
    assert inputs.variables["rounds"] == pytest.approx(4 / 3)
    assert inputs.unknown == ()
    assert not any(feature.startswith("issue.") for feature in values)


def test_a_fit_takes_the_order_of_accesses_of_its_runtime() -> None:
    orders: dict[str, Order] = {"Portable Computing Language": "items", "Another": "lanes"}
    for platform, order in orders.items():
        device = measured().device.model_copy(update={"platform": platform})
        header = measured().header.model_copy(update={"device": device})
        weights = fit_model(replace(measured(), header=header)).weights
        assert weights.definition.policy == ORDERS[order]


def test_instructions_that_cycles_stand_for_are_ignored() -> None:
    with_it = weights().predict(with_its_code(**{"miss.conflict.load": 1000}), n=64)
    assert with_it.time_s == weights().predict(with_its_code(), n=64).time_s
    assert "miss.conflict.load" in with_it.ignored


def test_cases_that_no_processor_can_execute_are_left_out() -> None:
    impossible = {**(measured().measurements[0].code or {}), "code.all": 10**17}
    lines = changed(lambda m: m.kernel == "k11", code=impossible)
    fitted = fit(lines, model=make_compiled_model(), correct=False)
    kernels = {case.kernel for case in fitted.observations}
    assert "k11" not in kernels
    assert len(kernels) == FAMILIES * EACH - 1


@pytest.mark.parametrize(("mebibytes", "in_l2", "beyond_llc"), [(48, 1 / 48, 0.5), (24, 1 / 24, 0)])
def test_memory_hides_work_beyond_l2(mebibytes: int, in_l2: float, beyond_llc: float) -> None:
    size = mebibytes << 20
    # 1 MiB of L2, 24 of 32 MiB of L3
    model = make_compiled_model(memory=load_hierarchy("amd-zen4"))
    counts = {"bytes.kernel.load": size, "code.cycles_loop": 4800, "groups": 96, "launches": 1}
    values = {feature: value for (_, feature), value in model_inputs(model, counts).values.items()}
    assert values["cycles_loop_in_l2"] == pytest.approx(4800 * in_l2)
    assert values["load_distinct"] == size
    assert values.get("load_beyond_llc", 0.0) == pytest.approx(size * beyond_llc)


@cache
def judged() -> MeasurementSet:
    """Test kernels of two families, all with their code."""
    some = changed(lambda _: True, purpose="test")
    return some.select(lambda m: m.family in ("f1", "f2"))


@pytest.fixture
def stored(tmp_path: Path) -> str:
    """A folder of fits whose default is the structural model, as of those that ship."""
    plain = fit(measured(), model=make_structural_model(POLICY), correct=False).weights
    plain.write_file(tmp_path / "weights.json")
    weights().write_file(tmp_path / "compiled.json")
    return str(tmp_path)


def _without_code(family: str) -> MeasurementSet:
    lines = [m.model_copy(update={"code": None}) if m.family < family else m for m in judged()]
    return replace(judged(), measurements=tuple(lines))


@pytest.mark.parametrize(
    ("measurements", "model", "judge", "remark"),
    [
        (judged, None, "compiled", "model compiled: the compiled code is known"),
        (judged, "structural", "structural", ""),
        (partial(_without_code, "f2"), None, "compiled", "left out: k10/n=1024, k10/n=16384"),
        (partial(_without_code, "f9"), None, "structural", "is not here to compile for"),
    ],
)
def test_the_model_that_predicts_is_judged(
    measurements: Callable[[], MeasurementSet],
    model: str | None,
    judge: str,
    remark: str,
    stored: str,
) -> None:
    evaluation = fitting.evaluate(measurements(), weights=stored, model=model)
    assert short_name(evaluation.model) == judge
    assert remark in " ".join(evaluation.remarks)
    assert bool(remark) is bool(evaluation.remarks)
    content = evaluation.lay_out()
    assert content.object()["model"] == judge
    assert content.text().startswith(f"{judge} model on")
    assert all(line in content.text() for line in evaluation.remarks)
    variants = [m.model_copy(update={"purpose": "variant"}) for m in measurements()]
    ranked = replace(judged(), measurements=tuple(variants))
    ranking = fitting.evaluate_ranking(ranked, weights=stored, model=model)
    assert ranking.model == evaluation.model


@pytest.mark.parametrize("work", [fitting.evaluate, fitting.evaluate_ranking])
def test_a_model_that_reads_code_is_not_judged_without_any(work: Any, stored: str) -> None:
    lines = [m.model_copy(update={"purpose": "variant"}) for m in _without_code("f9")]
    without = replace(judged(), measurements=tuple(lines))
    message = (
        "no machine code of these kernels is stored; run countperf compiled --store FILE on a"
        " machine with pthread-testchip"
    )
    with pytest.raises(FitError, match=message):
        work(without, weights=stored, model="compiled")


def test_code_is_read_once_for_all_judges(stored: str, monkeypatch: pytest.MonkeyPatch) -> None:
    known = {m.case: m.code or {} for m in judged()}
    asked: list[str] = []

    def read(waiting: MeasurementSet, _: str) -> MeasurementSet:
        asked.extend(m.case for m in waiting)
        return catalogue.with_field(waiting, "code", {m.case: known[m.case] for m in waiting})

    here = SimpleNamespace(label="test:0")
    monkeypatch.setattr(fitting, "matching_devices", lambda _: [here])
    monkeypatch.setattr(fitting, "add_missing_code", read)
    monkeypatch.setattr(fitting, "_READ", {})
    lines = [m.model_copy(update={"purpose": "variant", "code": None}) for m in judged()]
    without = replace(judged(), measurements=tuple(lines))
    first = fitting.evaluate(without, weights=stored, model="compiled")
    ranking = fitting.evaluate_ranking(without, weights=stored, model="compiled")
    assert asked == [m.case for m in without]
    assert (len(first.cases), bool(ranking.sets)) == (len(without), True)
    slower = lines[0].model_copy(update={"samples_s": ((1.0,),), "time_s": 1.0})
    again = replace(without, measurements=(slower, *lines[1:]))
    fitting.evaluate(again, weights=stored, model="compiled")
    assert asked[len(without) :] == [slower.case]


def test_without_a_compiler_the_reason_is_said(
    stored: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fits, "matching_devices", lambda identity: [identity])
    monkeypatch.setattr(fits, "why_no_code", lambda _: "no objdump found")
    assert choose_weights(stored).why == "model structural: no objdump found"


@pytest.mark.parametrize(("here", "model"), [(False, "structural"), (True, "compiled")])
def test_fits_are_listed_with_the_error_of_the_model_that_predicts(
    here: bool, model: str, stored: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = find_fit(stored)
    monkeypatch.setattr(fits, "list_fits", lambda: {"one": found})
    monkeypatch.setattr(fits, "matching_devices", lambda identity: [identity] if here else [])
    monkeypatch.setattr(fits, "why_no_code", lambda _: "")
    (row,) = fits.available_weights()
    quality = load_weights(stored, model=model).quality
    assert quality is not None
    assert (row.model, row.held_out_error) == (model, quality.held_out_error)


@pytest.mark.parametrize("newer", [False, True])
def test_code_is_fitted_by_the_cycles_that_it_says(newer: bool) -> None:
    def with_cycles(line: Measurement) -> Measurement:
        cycles = dict.fromkeys(("code.cycles", "code.cycles_throughput"), line.parameters["n"])
        more = {OVERLAPPED: line.parameters["n"]} if newer else {}
        return line.model_copy(update={"code": {**(line.code or {}), **cycles, **more}})

    some = replace(measured(), measurements=tuple(map(with_cycles, measured())))
    waiting = countperf.fit(some, model="compiled").weights.definition.derived["waiting_cycles"]
    assert (OVERLAPPED.replace(".", "_") in waiting) == newer
