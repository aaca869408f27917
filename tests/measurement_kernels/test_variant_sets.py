from __future__ import annotations

import hashlib
import math
from collections import Counter

import pytest

from countperf.counting.frontend.schedule import schedule_unit
from countperf.errors import KernelSpecificationError
from measurement_kernels.catalog import entries, families
from measurement_kernels.variants.sets import (
    MAX_GROUP_SIZE,
    MAX_LOCAL_BYTES,
    variant_entries,
    variant_sets,
)

FAMILIES = families(purpose="variant")
DIGEST = "daeb29d8be176b2f632347128165042f7e404f4224c5522a0937eadba6377ea8"


def test_names_stay_under_which_measurements_are_kept() -> None:
    names = "\n".join(entry.name for entry in entries(purpose="variant"))
    assert hashlib.sha256(names.encode()).hexdigest() == DIGEST
    with pytest.raises(KernelSpecificationError, match="variants-matmul"):
        variant_entries("variants-matmuls")


@pytest.mark.parametrize("family", FAMILIES)
def test_every_value_of_every_parameter_gets_its_share(family: str) -> None:
    chosen = variant_sets()[family]
    choices = chosen.choices()
    for name, values in chosen.space.parameters.items():
        seen = Counter(choice[name] for choice in choices)
        assert min(seen[value] for value in values) >= len(choices) / len(values) / 2
        assert len({choice[name] for choice in choices[:8]}) == len(values)


@pytest.mark.parametrize("family", FAMILIES)
def test_groups_are_as_they_say_and_run_on_every_device(family: str) -> None:
    chosen = variant_sets()[family]
    by_memory = sorted(
        zip(chosen.choices(), variant_entries(family), strict=True),
        key=lambda pair: chosen.local_elements(pair[0]),
    )
    for choice, each in (by_memory[0], by_memory[len(by_memory) // 2], by_memory[-1]):
        _, resources = schedule_unit(each.build())
        shape = (*resources.group_shape, 1, 1)[:2]
        assert shape == each.group_shape
        assert resources.local_memory_bytes == 4 * chosen.local_elements(choice) <= MAX_LOCAL_BYTES
        assert math.prod(each.group_shape) <= MAX_GROUP_SIZE


@pytest.mark.parametrize("family", FAMILIES)
def test_all_variants_take_all_sizes_of_their_set(family: str) -> None:
    variants = variant_entries(family)
    for exponent in {p + s for p in variants[0].exponents for s in variants[0].exponent_steps}:
        assert len({tuple(v.case(exponent).parameters.items()) for v in variants}) == 1
