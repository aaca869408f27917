"""The published convolution and Coulomb summation: values, and counters that others published."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from compare_ktt_counters import MEANINGS, convolution, coulomb
from convolution_features import Choice, count_group
from countperf.harness.devices import discover
from countperf.harness.runner import KernelRunner
from measurement_kernels.published.convolution import CONVOLUTION, padding_columns


def test_the_space_is_the_published_one() -> None:
    assert sum(1 for _ in CONVOLUTION.choices()) == 2442


@pytest.mark.parametrize(
    ("block", "tile", "padded"),
    [((16, 2), (2, 3), 1), ((48, 1), (1, 2), 0), ((32, 4), (3, 1), 0), ((16, 16), (1, 1), 1)],
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


@pytest.mark.parametrize(
    ("choice", "published"),
    [  # LocalMemorySize in KTT's file, byte
        ((2, 32, 1, 1, 0), 2944),
        ((32, 8, 1, 4, 0), 8464),
        ((64, 4, 1, 1, 1), 5616),
        ((16, 16, 8, 1, 0), 17040),
        ((8, 32, 1, 8, 0), 23760),
    ],
)
def test_local_memory_is_what_the_compiler_takes(choice: Choice, published: int) -> None:
    assert count_group(choice).local_bytes == published


def test_padding_is_the_published_one() -> None:
    # rows of 16 + 14 pixels become 48 apart, so that two rows of 16 lanes lie in different banks
    assert padding_columns(16, 1) == 18
    assert padding_columns(48, 1) == 18
    assert padding_columns(64, 4) == 0
    loads = {p: count_group((16, 4, 1, 1, p)).local_load_passes for p in (0, 1)}
    assert loads == {0: 2 * 225 * 2, 1: 2 * 225}


def _by_meaning(found: Mapping[str, int]) -> dict[str, int]:
    return {MEANINGS[name]: number for name, number in found.items()}


def test_a_convolution_counts_as_an_rtx_2080_ti_did() -> None:
    found = _by_meaning(convolution((2, 32, 1, 1, 0)))

    assert found["f32 instructions of work items"] == 3_774_873_600
    assert found["loads and stores of work items"] == 4_177_526_784
    assert found["global loads of sub-groups"] == 6_291_456
    # counters that the GPU samples
    assert found["passes of local loads over the banks"] == pytest.approx(944_008_438, rel=1e-3)
    assert found["passes of local stores over the banks"] == pytest.approx(48_520_173, rel=1e-2)
    assert found["sectors of 32 B stored to the second-level cache"] == pytest.approx(
        8_388_514, rel=1e-4
    )


@pytest.mark.parametrize(
    ("group", "iterations", "unrolled", "operations", "accesses", "loads"),
    [  # operations and accesses of a work item, and loads of a sub-group, in KTT's file
        ((16, 4), 1, True, 513, 258, 257),
        ((32, 8), 4, True, 1284, 264, 260),
        ((16, 4), 4, False, 1348, 264, 260),
        ((32, 4), 8, False, 2376, 272, 264),
    ],
)
def test_a_coulomb_sum_counts_as_an_rtx_2080_ti_did(
    group: tuple[int, int],
    iterations: int,
    unrolled: bool,
    operations: int,
    accesses: int,
    loads: int,
) -> None:
    items = 256**3 // iterations

    found = _by_meaning(coulomb(group, iterations, unrolled))

    assert found["f32 instructions of work items"] == operations * items
    assert found["loads and stores of work items"] == accesses * items
    assert found["global loads of sub-groups"] == loads * items // 32
    assert found["sectors of 32 B stored to the second-level cache"] == 256**3 // 8
