from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from countperf import errors
from countperf.api import catalogue as measuring
from countperf.api import evaluation as fitting
from countperf.api import kernels, prediction
from countperf.api.kernels import Kernel
from countperf.counting.count_properties import count_kernel
from countperf.counting.structure.memory_hierarchy import load_hierarchy
from countperf.counting.taxonomy import COUNTING_RULES_VERSION, is_emitted
from countperf.counting.vector import PropertyVector, caches_of
from countperf.devices.device import Device
from countperf.machine_code.tools import find_analyzer, find_objdump
from countperf.measuring import MeasurementSet
from countperf.models import library
from countperf.models.definition import OVERLAPPED
from countperf.models.metrics import Evaluation
from countperf.models.shipped import LINEAR
from measurement_kernels.catalog import entry, families
from measurement_kernels.groups import SizeClass
from rental import publishing
from tests.models.builders import calibrated, make_weights
from tests.shipped import FITS, shipped_measurements

RULES = f'"counting_rules": {COUNTING_RULES_VERSION}'


def _of_paper(slug: str, *purposes: str) -> MeasurementSet:
    """Return what was measured of the paper's classes: the whole is for models beyond them."""
    classes = families(purpose=None, collection="paper")
    return shipped_measurements(slug).select(
        lambda m: m.purpose in purposes and m.family in classes
    )


@pytest.mark.parametrize(
    "specification",
    [
        "nowhere.py:kernel",
        "no_such_package_at_all:kernel",
        "measurement_kernels.catalog:families",
        "no-such-kernel",
        "nowhere.json",
    ],
)
def test_what_names_no_kernel_is_an_error(specification: str) -> None:
    with pytest.raises(
        errors.KernelSpecificationError, match=re.escape(specification.split(":")[0])
    ):
        kernels.load_kernel(specification)


def test_a_module_path_names_a_kernel() -> None:
    assert kernels.load_kernel("tests.counting.profiled:guarded_saxpy")


def test_a_damaged_property_vector_names_its_field(tmp_path: Path) -> None:
    path = tmp_path / "vector.json"
    document = PropertyVector.from_mapping({"groups": 1}).to_document()
    path.write_text(json.dumps({**document, "counts": 3}))
    with pytest.raises(errors.DocumentError) as caught:
        kernels.load_kernel(str(path))
    assert (caught.value.path, caught.value.field) == (str(path), "$.counts")


QUICK, BROAD = measuring.PROFILES["quick"], measuring.PROFILES["broad"]


@pytest.mark.parametrize("group_class", ["small", "medium", "large"])
def test_profiles_cover_every_family(group_class: SizeClass) -> None:
    quick = measuring.profile_entries(QUICK, group_class)
    paper = measuring.profile_entries(replace(QUICK, shapes_per_kernel=3), group_class)
    assert {(e.family, e.variant) for e in quick} == {(e.family, e.variant) for e in paper}
    assert len(quick) < len(paper)
    assert [e.purpose for e in paper[-4:]] == ["test"] * 4


def test_what_is_asked_for_is_measured() -> None:
    usual = measuring.profile_entries(QUICK, "small")
    chosen = measuring.profile_entries(QUICK, "small", purposes=["application", "test"])
    named = measuring.profile_entries(QUICK, "small", families=["spmv"])
    doubles = measuring.profile_entries(
        QUICK, "small", families=["arithmetic"], element_types=["f64"]
    )
    assert {e.purpose for e in usual} == {"measurement", "test"}
    assert [e.purpose for e in chosen] == ["test"] * 4 + ["application"] * 16
    assert {e.element_type for e in chosen} == {"f32", "f64"}
    assert [e.variant for e in named] == ["random", "banded"]
    assert {e.element_type for e in doubles} == {"f64"}
    with pytest.raises(errors.KernelSpecificationError, match="no test kernel of spmv"):
        measuring.profile_entries(QUICK, "small", families=["spmv"], purposes=["test"])
    with pytest.raises(errors.KernelSpecificationError, match="matmul-tiled"):
        measuring.profile_entries(QUICK, "small", families=["mm"])


def test_a_kernel_of_the_catalogue_brings_its_statistics() -> None:
    known = Kernel.of("spmv/banded", {"n": 100}).count().evaluate(n=100)
    assert known["gmem.load.32.4ofn"] == 2 * (17 * 100 - 72)
    given = Kernel.of("spmv/banded", {}, {"j": 5}).count().evaluate(n=100)
    assert given["gmem.load.32.4ofn"] == 2 * 5 * 100
    with pytest.raises(errors.DataDependentControlFlowError, match="length"):
        Kernel.of("spmv/banded").count()
    assert Kernel.of("spmv/random").statistics


def test_statistics_of_the_catalogue_are_those_of_each_size() -> None:
    """Mean row lengths of a band differ by size; so does the size of an anchoring run."""
    weights = make_weights(
        {"gmem.load.32.4ofn": 1e-9, "launches": 1e-6}, quality=calibrated(0.5, 0.1)
    )
    options: dict[str, Any] = {"weights": weights, "incomplete_ok": True}
    sizes = np.array([64, 4096])
    one, other = (prediction.predict("spmv/banded", n=n, **options) for n in sizes)
    both = prediction.predict("spmv/banded", n=sizes, **options)
    anchors = [({"n": 4096}, float(other.time_s))]
    anchored = prediction.predict("spmv/banded", n=64, anchors=anchors, **options)
    assert np.asarray(both.time_s).tolist() == [one.time_s, other.time_s]
    assert anchored.time_s == pytest.approx(one.time_s, rel=1e-12)
    assert np.all(
        prediction.predict("spmv/banded", n=sizes, statistics={"j": 5}, **options).time_s
        < both.time_s
    )


def test_the_broad_profile_adds_what_the_device_can_run() -> None:
    everything = measuring.profile_entries(BROAD, "large")
    assert {e.collection for e in everything} == {"paper", "extended", "random"}
    assert [e.purpose for e in everything[-4:]] == ["test"] * 4
    random = measuring.profile_entries(BROAD, "large", collections=["random"])
    assert {e.collection for e in random} == {"random"}
    small = measuring.profile_entries(BROAD, "small", max_group_size=256)
    shapes = [e.group_shape for e in small if e.collection != "paper"]
    assert max(shape[0] * shape[1] for shape in shapes) == 256
    named = measuring.profile_entries(QUICK, "small", families=["random-matmul", "precision"])
    assert {e.element_type for e in named} == {"f32", "f64"}


def test_the_broad_profile_measures_a_share_of_each_large_family() -> None:
    every = Counter(e.family for e in measuring.profile_entries(replace(BROAD, share=1.0), "large"))
    kept = Counter(e.family for e in measuring.profile_entries(BROAD, "large"))
    assert kept == {
        family: min(number, max(12, round(0.4 * number))) for family, number in every.items()
    }
    named = measuring.profile_entries(BROAD, "large", families=["random-matmul"])
    assert len(named) == every["random-matmul"]


def test_evenly_spaced_kernels_reach_over_the_whole_family() -> None:
    kernels = [str(i) for i in range(40)]
    assert measuring.evenly_spaced(kernels, 0.5) == [str(i) for i in range(0, 40, 2)]
    assert measuring.evenly_spaced(kernels, 0.01) == [str(i * 40 // 12) for i in range(12)]
    assert measuring.evenly_spaced(kernels[:12], 0.5) == kernels[:12]


@pytest.mark.parametrize("slug", ["pocl-epyc-zen5", "intel-epyc-zen5"])
def test_shipped_weights_are_those_that_the_shipped_measurements_give(slug: str) -> None:
    shipped = library.load_weights(slug, model="linear")
    found = fitting.fit(shipped_measurements(slug), collections=["paper"])
    assert {w.feature: w.value_s for w in found.weights.weights} == pytest.approx(
        {w.feature: w.value_s for w in shipped.weights}, rel=1e-6, abs=1e-18
    )
    assert [o.name for o in found.observations] == [
        m.case for m in _of_paper(slug, "measurement") if m.properties is not None
    ]


PAPER_OBJECTIVE = (
    "sum of squares of 1 - predicted/measured, all cases alike; weights of any sign, as in the"
    " paper"
)


def test_the_linear_model_is_fitted_as_the_paper_fits_it() -> None:
    """The design matrix over measured times, solved for ones without this project's solver."""
    slug = "pocl-epyc-zen4"
    measured = shipped_measurements(slug)
    found = fitting.fit(measured, collections=["paper"])
    relative = found.estimate.design.relative
    alpha = np.linalg.lstsq(relative, np.ones(len(relative)), rcond=1e-12)[0]
    least = float(np.sum((1 - relative @ alpha) ** 2))
    objective = float(np.sum((1 - relative @ found.estimate.solution.coefficients) ** 2))
    assert objective == pytest.approx(least, rel=1e-9)
    assert least == pytest.approx(24.00, abs=0.005)
    assert min(w.value_s for w in found.weights.weights) < 0
    quality = found.weights.quality
    assert quality is not None
    assert quality.objective == PAPER_OBJECTIVE
    judged = fitting.evaluate(measured, weights=found.weights, collections=["paper"])
    assert {case.purpose for case in judged.cases} == {"test"}
    shipped = Evaluation.read_file(FITS / slug / "linear-evaluation.json").by_purpose()["test"]
    assert judged.overall().value == pytest.approx(shipped.overall().value, rel=1e-3)
    assert judged.overall().value == pytest.approx(0.16, abs=0.005)
    broad = fitting.fit(measured).weights
    other = fitting.evaluate(measured, weights=broad, collections=["paper"])
    assert other.overall().value == pytest.approx(0.31, abs=0.005)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"collections": ["papers"]}, "no collection 'papers'; pass one of 'paper', "),
        ({"objective": "least"}, "no objective 'least'; pass one of 'paper', 'noise'"),
    ],
)
def test_what_to_fit_and_how_is_checked_before_files_are_read(
    options: dict[str, Any], said: str
) -> None:
    with pytest.raises(errors.ParameterError, match=said):
        fitting.fit("nowhere.jsonl", **options)


def test_a_campaign_without_kernels_of_a_collection_says_what_to_measure() -> None:
    variants = shipped_measurements("pocl-epyc-zen5").select(lambda m: m.purpose == "variant")
    with pytest.raises(errors.FitError, match="countperf measure --collection paper --store FILE"):
        fitting.fit(variants, collections=["paper"])


def test_a_published_model_is_the_default_and_predicts_from_its_slug(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slug = "pocl-epyc-zen5"
    counts = {"flop.add.f32": 10**9, "gmem.load.32.stride1": 10**8, "groups": 4096, "launches": 1}
    paper = _of_paper(slug, "measurement", "test")
    judged = sum(m.purpose == "test" for m in paper)
    logs = LINEAR.model_copy(update={"name": "logs", "residual": "log"})
    folder = publishing.publish(paper, tmp_path, model=logs)
    monkeypatch.setattr(library, "fits_folders", lambda: (tmp_path,))
    chosen = prediction.predict(counts, weights=slug, level=0.9)
    linear = prediction.predict(counts, weights=slug, model="linear", level=0.9)
    evaluation = Evaluation.read_file(folder / "evaluation.json")
    assert (chosen.model, linear.model, evaluation.model) == ("logs", "linear", "logs")
    for made in (chosen, linear):  # left-out families of the paper get times below zero
        assert made.interval_s is None
        assert "interval" in {verdict.name for verdict in made.caveats}
    assert (folder / "weights.json").stat().st_size < 200_000
    assert len(evaluation.cases) == judged > 8
    assert evaluation.coverage() == (0, 0)
    assert all(case.noise is not None for case in evaluation.cases)


def test_the_fit_never_sees_test_kernels() -> None:
    result = fitting.fit(_of_paper("pocl-epyc-zen5", "measurement", "test"))
    assert {o.family for o in result.observations}.isdisjoint(
        {"finite-differences", "matmul-skinny", "convolution", "n-body"}
    )


def test_measurements_of_another_device_are_refused() -> None:
    with pytest.raises(errors.DeviceMismatchError):
        fitting.evaluate(shipped_measurements("pocl-epyc-zen5"), weights="intel-epyc-zen5")


@pytest.mark.device
def test_a_small_campaign_resumes_and_is_fitted(tmp_path: Path, device: Device) -> None:
    store = tmp_path / "campaign.jsonl"
    options: dict[str, Any] = {"device": device.label, "profile": "quick", "families": ("empty",)}
    first = measuring.measure_catalogue(store=store, **options)
    size = store.stat().st_size
    again = measuring.measure_catalogue(store=store, **options)
    assert [m.case for m in again] == [m.case for m in first]
    assert store.stat().st_size < 1.5 * size
    weights = fitting.fit(again).weights
    assert set(weights.by_feature) == {"groups", "launches"}
    with pytest.raises(errors.FitError, match="no counted measurement"):
        fitting.evaluate(again, weights=weights)


@pytest.mark.device
@pytest.mark.skipif(
    find_objdump() is None or find_analyzer() is None, reason="objdump or llvm-mca is missing"
)
def test_compiled_code_of_measured_kernels_is_noted(tmp_path: Path, pocl: Device) -> None:
    kernels = ("stride1/copy/256x1/f32", "transpose/tiled/16x16/f32", "spmv/banded/128x1/f32")
    shipped = shipped_measurements("pocl-epyc-zen5").select(lambda m: m.kernel in kernels)
    without = replace(
        shipped,
        header=shipped.header.model_copy(update={"device": pocl.identity}),
        measurements=tuple(
            m.model_copy(update={"code": None}) if m.family == "spmv" else m for m in shipped
        ),
    )
    store = tmp_path / "campaign.jsonl"
    without.write_file(store)
    said: list[str] = []
    noted = measuring.read_code(store, device="pocl:0", progress=said.append)
    assert MeasurementSet.read_file(store) == noted
    assert {m.kernel for m in noted} == set(kernels)
    for case in noted:
        assert case.code is not None
        assert case.code["code.cycles"] > 0
        assert OVERLAPPED in case.code  # what ships for copies was read without
        if case.family == "spmv":  # how long rows are is data: the catalogue states the mean
            rows, mean = case.parameters["n"], entry(case.kernel).statistics["j"]
            nonzeros = rows * (mean(case.parameters) if callable(mean) else mean)
            assert case.code["code.arithmetic_scalar"] == pytest.approx(nonzeros, rel=0.01)
    assert said == []
    gone = noted.measurements[0].model_copy(update={"kernel": "gone/256x1/f32", "code": None})
    replace(noted, measurements=(gone,)).write_file(store)
    (left,) = measuring.read_code(store, device="pocl:0", progress=said.append)
    assert left.code is None
    assert f"{gone.case}: no kernel is called 'gone/256x1/f32'" in said[-1]


@pytest.mark.device
def test_a_set_of_variants_is_measured_in_parts_and_ranked(tmp_path: Path, device: Device) -> None:
    store = tmp_path / "campaign.jsonl"
    first, again = (
        measuring.measure_variants(
            store=store,
            device=device.label,
            profile="quick",
            families=("variants-transpose",),
            count=count,
        )
        for count in (1, 2)
    )
    assert first.failures == again.failures == ()
    assert [m.case for m in again][: len(first)] == [m.case for m in first]
    assert {(m.family, m.purpose) for m in again} == {("variants-transpose", "variant")}
    assert [len({m.variant for m in some}) for some in (first, again)] == [1, 2]
    sizes = {tuple(m.parameters.items()) for m in again}
    copy = {"gmem.load.32.stride1": 1e-10, "gmem.store.32.stride1": 1e-10}
    weights = make_weights(copy, device=again.device)
    (ranked,) = fitting.evaluate_ranking(again, weights=weights).sets
    assert sizes == {tuple(ranked.parameters.items())}
    assert len(ranked.variants) == 2


@pytest.mark.parametrize(
    ("slug", "first"),
    [
        ("pocl-epyc-zen5", 3),
        pytest.param("pocl-epyc-zen5", 71, marks=pytest.mark.nightly),
        pytest.param("intel-epyc-zen5", 11, marks=pytest.mark.nightly),
    ],
)
def test_shipped_counts_are_those_of_the_present_rules(slug: str, first: int) -> None:
    by_kernel = {m.kernel: m for m in shipped_measurements(slug)}
    for kernel, measurement in list(by_kernel.items())[first::136]:
        stored = measurement.property_vector()
        assert stored is not None
        known = entry(kernel)
        statistics = known.statistics_at(measurement.parameters)
        counted = count_kernel(known.build(), statistics=statistics, view="structure")
        now = counted.evaluate(measurement.parameters)
        then = {
            name: count
            for name, count in stored.evaluate(measurement.parameters).items()
            if not name.startswith(("code.", "miss.", "spill."))
        }
        # how Loopy nests an item's own loops depends on the process; what is executed, on that
        is_settled = known.collection != "random" and known.purpose != "variant"
        assert {k: v for k, v in now.items() if v and (is_settled or is_emitted(k))} == {
            k: v for k, v in then.items() if v and (is_settled or is_emitted(k))
        }


def test_recounting_makes_old_measurements_fit_again(tmp_path: Path) -> None:
    whole = shipped_measurements("pocl-epyc-zen5")
    store = tmp_path / "measurements.jsonl"
    whole.select(lambda m: m.family == "transpose").write_file(store)
    store.write_text(store.read_text().replace(RULES, '"counting_rules": 1'))
    with pytest.raises(errors.FitError, match="recount"):
        fitting.fit(store)
    renewed = fitting.recount(store)
    assert MeasurementSet.read_file(store) == renewed
    assert store.read_text().count(RULES) == len(renewed)
    assert [m.time_s for m in renewed] == [m.time_s for m in whole if m.family == "transpose"]


def test_measurements_are_recounted_for_the_caches_of_their_device(tmp_path: Path) -> None:
    whole = shipped_measurements("pocl-epyc-zen3")
    one = next(m for m in whole if m.family == "transpose" and m.code is not None)
    other = next(m for m in whole if m.family == "transpose" and m.kernel != one.kernel)
    bare = {name: part for name, part in (one.properties or {}).items() if name != "caches"}
    store = tmp_path / "measurements.jsonl"
    replace(
        whole,
        measurements=(
            one.model_copy(update={"properties": bare}),
            other.model_copy(update={"properties": bare, "code": None}),
        ),
    ).write_file(store)
    zen3 = load_hierarchy("amd-zen3").counted
    first, second = fitting.recount(store).measurements
    assert caches_of(first.properties or {}) == zen3  # whose code was read for 32 KiB, too
    assert caches_of(second.properties or {}) == zen3
    assert (first.code, second.code) == (one.code, None)
    zen5 = load_hierarchy("amd-zen5").counted
    for case in fitting.recount(store, caches=zen5):
        stated = caches_of(case.properties or {})
        assert stated.counts_alike(zen5)
        assert stated.code == zen3.code  # what was read stays as it was
