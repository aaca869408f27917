"""Kernels of other projects judge only, and are mapped as described."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from countperf.api.catalogue import PROFILES, profile_entries
from countperf.counting.count_properties import count_kernel
from countperf.measuring import MeasurementSet
from measurement_kernels.catalog import entries, entry
from measurement_kernels.entry import CatalogEntry

FITS = Path(__file__).parents[2] / "fits"
JUDGES = entries(collection="downstream", element_type=None, purpose=None)
CLASSES = ("one-group", "element-einsums", "register-blocks", "around-caches")
MEASURED = [
    each for each in entries(collection="extended", element_type=None) if each.family in CLASSES
]
ONE_GROUP = [each for each in (*MEASURED, *JUDGES) if each.family.endswith("one-group")]


def test_campaigns_measure_them_only_if_asked() -> None:
    profile = PROFILES["broad"]
    judging = profile_entries(
        profile, "medium", collections=["downstream"], purposes=["application"]
    )
    assert set(judging) == set(JUDGES)
    assert {each.purpose for each in JUDGES} == {"application"}
    usual = profile_entries(profile, "medium", purposes=["measurement", "application"])
    assert not {*usual} & {*JUDGES}
    assert {each.family for each in usual} >= {*CLASSES}


def test_no_measured_kernel_is_one_that_judges() -> None:
    def computed(each: CatalogEntry) -> tuple[object, ...]:
        kernel = each.build().default_entrypoint
        arguments = [(a.name, str(a.dtype), str(getattr(a, "shape", ""))) for a in kernel.args]
        instructions = [(str(i), sorted(i.within_inames)) for i in kernel.instructions]
        return str(kernel.domains), str(arguments), str(instructions)

    assert not {computed(each) for each in MEASURED} & {computed(each) for each in JUDGES}


@pytest.mark.parametrize("each", ONE_GROUP, ids=lambda each: each.name)
def test_one_group_computes_everything(each: CatalogEntry) -> None:
    counts = count_kernel(each.build(), view="structure")
    sizes = {name: 7 * size for name, size in each.check_parameters.items()}
    assert counts.evaluate(sizes)["groups"] == 1


@pytest.mark.nightly
@pytest.mark.parametrize("runtime", ["pocl", "intel"])
def test_what_judges_was_measured_apart_from_what_is_fitted(runtime: str) -> None:
    folder = FITS / f"{runtime}-xeon-model167"
    full = MeasurementSet.read_file(folder / "measurements.jsonl.gz")
    fitted = full.select(lambda each: each.family in CLASSES)
    judging = MeasurementSet.read_file(folder / "others-judges.jsonl.gz")
    assert {each.family for each in fitted} == {*CLASSES}
    assert {each.purpose for each in fitted} == {"measurement"}
    judges = Counter(each.family.partition("-")[0] for each in judging)
    assert set(judges) == {"downstream", "published"}
    assert judges["downstream"] >= 40
    assert not {each.kernel for each in full} & {each.kernel for each in judging}


def test_nests_run_as_they_say() -> None:
    # 5 elements in groups of 32: one group; each item has 10 results of 10 terms
    counts = count_kernel(entry("downstream-groups/operator-10").build()).evaluate({"n": 5})
    assert counts["groups"] == 1
    assert counts["flop.mul.f64"] == counts["flop.add.f64"] == 5 * 10 * 10
    assert entry("register-blocks/4x6/8x8/f64").group_shape == (8, 8)
    # 2 x 3 groups of 8 x 8 items with 4 x 6 results of 7 terms; operands are loaded once an item
    block = count_kernel(entry("register-blocks/4x6/8x8/f64").build()).evaluate(
        {"n": 16, "m": 24, "l": 7}
    )
    assert block["groups"] == 6
    assert block["flop.mul.f64"] == 6 * 64 * 24 * 7
