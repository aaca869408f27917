from __future__ import annotations

import pytest

from countperf.errors import ParameterError
from measurement_kernels.groups import (
    group_shapes,
    round_up,
)


@pytest.mark.parametrize(
    ("size_class", "shapes"),
    [
        ("small", {(192, 1), (224, 1), (256, 1), (16, 12), (16, 14), (16, 16)}),
        ("medium", {(128, 1), (256, 1), (384, 1), (16, 12), (16, 16), (32, 16)}),
        ("large", {(256, 1), (384, 1), (512, 1), (16, 16), (24, 16), (32, 16)}),
    ],
)
def test_sets_of_the_paper(size_class: str, shapes: set[tuple[int, int]]) -> None:
    assert set(group_shapes(size_class)) == shapes


def test_unknown_set_is_an_error() -> None:
    with pytest.raises(ParameterError, match="'tiny'; there are small, medium, large") as error:
        group_shapes("tiny")
    assert error.value.parameter == "size_class"


@pytest.mark.parametrize(
    ("size", "multiple", "rounded"),
    [(64, 16, 64), (64, 12, 72), (1, 24, 24), (1024, 14, 1036), (1024, 224, 1120)],
)
def test_rounding_up(size: int, multiple: int, rounded: int) -> None:
    assert round_up(size, multiple) == rounded
