"""Measurements of before version 0.2.0 are read with the names of now."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from countperf.measurements import Measurement, MeasurementSet
from countperf.models.library import fits_folders
from countperf.models.weights import WeightSet
from countperf.properties.taxonomy import validate_name
from countperf.properties.vector import PropertyVector

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "documents"


def test_measurements_have_the_names_of_now() -> None:
    path = GOLDEN / "measurements-before-0.2.jsonl"
    old = json.loads(path.read_text().split("\n")[1])

    (found,) = MeasurementSet.read_file(path).measurements
    assert isinstance(found, Measurement)
    vector = found.property_vector()

    assert vector is not None
    assert found.code is not None
    assert found.code["miss.conflict.store"] == old["code"]["late.crowded.store"]
    assert not any(name.startswith("late.") for name in found.code)
    load = vector["site.free.flat.4x4.gmem.load.32.l1_reuse-next"]
    (term,) = old["properties"]["counts"]["exec.free.flat.4x4.gmem.load.32.far_next"]["terms"]
    assert str(load.quantity.terms[0].value) == term["value"]
    assert len(vector) == len(old["properties"]["counts"])
    document = vector.to_document()
    assert document["version"] == 2
    assert PropertyVector.from_document(document).to_document() == document


@pytest.mark.parametrize("name", ["weights.json", "compiled.json", "linear.json"])
def test_every_feature_of_shipped_weights_has_a_name_of_now(name: str) -> None:
    for path in (p for folder in fits_folders() for p in folder.glob(f"*/{name}")):
        weights = WeightSet.read_file(path)
        for weight in weights.weights:
            if weight.feature not in weights.definition.derived:
                validate_name(weight.feature)


@pytest.mark.parametrize(
    ("version", "root", "packed", "loop"),
    [(1, "exec", "packed", "loop8"), (2, "site", "slp", "loop_slp8")],
)
def test_sites_that_are_no_longer_told_apart_add_up(
    version: int, root: str, packed: str, loop: str
) -> None:
    now = {"site.free.flat.16x2.flop.add.f32": "[n] -> { n }"}
    document = PropertyVector.from_mapping(now, view="structure").to_document()
    (count,) = document["counts"].values()
    places = ("flat", packed, "long", "loop", loop)
    old = {f"{root}.free.{place}.16x2.flop.add.f32": count for place in places}
    old[f"{root}.sync.flat.16x2.addresses.40"] = count
    old |= {f"{root}.free.{loop}.16x2.chain.fma.f32{end}": count for end in ("", ".8", ".40")}

    vector = PropertyVector.from_document(document | {"version": version, "counts": old})

    assert vector.evaluate(n=5) == {
        "site.free.flat.16x2.flop.add.f32": 15,
        "site.free.loop.16x2.flop.add.f32": 10,
        "site.free.loop.16x2.chain.fma.f32": 15,
    }
