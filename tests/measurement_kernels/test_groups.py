from __future__ import annotations

import pytest

from measurement_kernels.groups import round_up


@pytest.mark.parametrize(
    ("size", "multiple", "rounded"),
    [(64, 16, 64), (64, 12, 72), (1, 24, 24), (1024, 14, 1036), (1024, 224, 1120)],
)
def test_rounding_up(size: int, multiple: int, rounded: int) -> None:
    assert round_up(size, multiple) == rounded
