"""The published convolution: its space, values and padding."""

from __future__ import annotations

import pytest

from countperf.harness.devices import discover
from countperf.harness.runner import KernelRunner
from measurement_kernels.published.convolution import CONVOLUTION, padding_columns


def test_the_space_is_the_published_one() -> None:
    assert sum(1 for _ in CONVOLUTION.choices()) == 2442


@pytest.mark.parametrize(
    ("block", "tile", "padded"),
    [((16, 2), (2, 3), 1), ((48, 1), (1, 2), 0)],
)
def test_variants_convolve(block: tuple[int, int], tile: tuple[int, int], padded: int) -> None:
    pocl = [each for each in discover().devices if each.label.startswith("pocl")]
    if not pocl:
        pytest.skip("no PoCL")
    choice = {
        **dict(zip(("block_size_x", "block_size_y"), block, strict=True)),
        **dict(zip(("tile_size_x", "tile_size_y"), tile, strict=True)),
        "read_only": 0,
        "use_padding": padded,
    }
    assert choice in CONVOLUTION

    KernelRunner.open(pocl[0]).check(CONVOLUTION.case(choice))


def test_padding_is_the_published_one() -> None:
    # rows of 16 + 14 pixels become 48 apart, so that two rows of 16 lanes lie in different banks
    assert padding_columns(16, 1) == 18
    assert padding_columns(48, 1) == 18
    assert padding_columns(64, 4) == 0
