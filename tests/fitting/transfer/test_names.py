"""The names of the shipped prior are those that models have now."""

from __future__ import annotations

import pytest

from countperf.fitting.transfer.prior import KnownModel, shipped_devices
from countperf.hardware.memory import memory_hierarchy_of


@pytest.mark.parametrize("known", shipped_devices().models, ids=lambda known: known.kind)
def test_each_column_is_a_feature_of_its_model(known: KnownModel) -> None:
    device = known.devices[0]
    memory = memory_hierarchy_of(device.device)
    model = known.definition(device.policy, memory, units=2)

    strange = [
        (term, feature)
        for term, feature in known.columns
        if term not in model.terms
        or not (
            feature in model.terms[term].charged
            if feature in model.derived
            else model.term_features[term].feature_of(feature) is not None
        )
    ]

    assert strange == []
    assert len(set(known.columns)) == len(known.columns)
