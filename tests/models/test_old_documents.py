"""Documents with names of before version 0.2.0 are refused; shipped weights have those of now."""

from __future__ import annotations

import pytest

from countperf.errors import DocumentError
from countperf.measurements import KernelCase, Measurement
from countperf.measurements.lines import format_line, parse_line
from countperf.models.library import fits_folders
from countperf.models.weights import WeightSet
from countperf.properties.taxonomy import validate_name
from countperf.properties.vector import PropertyVector


def test_what_was_counted_before_version_0_2_is_refused_with_what_to_do() -> None:
    advice = r"measure again \(countperf measure\) and fit what that writes \(countperf fit FILE\)"
    vector = PropertyVector.from_mapping({"flop.add.f32": 1}).to_document() | {"version": 1}
    case = KernelCase(name="a/n=16", kernel="a", build=lambda: None, parameters={"n": 16})
    line = format_line(Measurement.from_samples(case, [[1e-3]], dropped=0, code={"code.all": 1}))

    with pytest.raises(DocumentError, match=advice):
        PropertyVector.from_document(vector)
    with pytest.raises(DocumentError, match=f"'late.crowded.store' is no property.*{advice}"):
        parse_line(line.replace("code.all", "late.crowded.store"), 2)


@pytest.mark.parametrize("name", ["weights.json", "compiled.json", "linear.json"])
def test_every_feature_of_shipped_weights_has_a_name_of_now(name: str) -> None:
    for path in (p for folder in fits_folders() for p in folder.glob(f"*/{name}")):
        weights = WeightSet.read_file(path)
        for weight in weights.weights:
            if weight.feature not in weights.definition.derived:
                validate_name(weight.feature)
