"""Documents of before version 0.2.0: they are read with the names of now, and cost the same."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from countperf.errors import DocumentError
from countperf.execution.policy import ExecutionPolicy
from countperf.measurements import Measurement, MeasurementSet
from countperf.models.definition import ModelDefinition
from countperf.models.library import fits_folders
from countperf.models.weights import WeightSet
from countperf.properties.taxonomy import validate_name
from countperf.properties.vector import PropertyVector

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "documents"
COUNTS = {
    "launches": 1,
    "site.free.flat.16x1.gmem.load.32.l2_reuse_conflict1": 1000,
    "bytes.kernel.load": 4194304,
    "bytes.group.load.dense": 8000000,
    "miss.conflict.load": 500,
}


def test_a_model_has_the_names_of_now() -> None:
    model = ModelDefinition.read_toml(GOLDEN / "model-before-0.2.toml")

    assert model.version == 2
    assert model.policy == ExecutionPolicy(width=8, vectorized="flat")
    assert model.terms["misses"].charged == (
        "issue.*.gmem.load.l2_reuse",
        "issue.scalar.gmem.load.set_conflict",
        "issue.scalar.live_across_barrier",
        "load_beyond_l2",
    )
    assert model.derived["load_beyond_l2"] == "bytes_group_load_dense*beyond_l2"
    assert {"miss.*", "spill.*"} <= set(model.ignored)
    assert ModelDefinition.read_text(model.write_text()) == model


def test_weights_cost_the_same() -> None:
    weights = WeightSet.read_file(GOLDEN / "weights-before-0.2.json")
    whole = 1e-5  # the launch
    whole += 1000 * 1e-9 + 250 * 2e-9  # accesses that miss a cache, a quarter by conflicts
    whole += 0.75 * 8000000 * 1e-11  # three of four bytes are beyond one MiB
    whole += 500 * 4e-9 + 1000 * 0.75 * 5e-10

    prediction = weights.predict_counts(COUNTS, {}, force=True)

    assert prediction.time_s == pytest.approx(whole, rel=1e-12)
    assert weights.exercising_kernels == {"issue.scalar.gmem.load.beyond_l2": ("walks/far",)}
    (group,) = weights.indistinguishable
    assert group.relations == ({"issue.scalar.live_across_barrier": 1.0, "load_beyond_l2": -2.0},)
    assert set(weights.ranges) == {
        "miss_conflict_load",
        "issue_scalar_gmem_load_l1_reuse",
        "beyond_l2",
    }
    assert WeightSet.read_text(weights.write_text()) == weights


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


@pytest.mark.parametrize(
    ("option", "stays", "gone"),
    [
        ("gathers", "alike", "apart"),
        ("chains", "whole", "overlapped"),
        ("interchanged", False, True),
    ],
)
def test_weights_with_an_option_that_is_gone_are_refused_with_what_to_do(
    tmp_path: Path, option: str, stays: object, gone: object
) -> None:
    text = (GOLDEN / "weights-before-0.2.json").read_text()
    path = tmp_path / "weights.json"
    path.write_text(
        text.replace(f'"{option}": {json.dumps(stays)}', f'"{option}": {json.dumps(gone)}')
    )

    with pytest.raises(DocumentError, match=f"{option} = {gone!r}.*countperf fit FILE") as caught:
        WeightSet.read_file(path)
    assert str(path) in str(caught.value)
    assert "definition.policy" in str(caught.value)
