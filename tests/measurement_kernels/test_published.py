"""Published kernels do what is published."""

from __future__ import annotations

import re
from fractions import Fraction

import pytest

from countperf.counting.access_analysis import bank_conflicts
from countperf.counting.analysis import analyze_kernel
from countperf.counting.count_properties import count_kernel
from countperf.devices.discovery import find_device
from countperf.errors import DeviceError
from countperf.measuring import KernelCase
from countperf.measuring.runner import KernelRunner
from measurement_kernels.catalog import entry
from measurement_kernels.published.convolution import CONVOLUTION, padding_columns


def _counts(case: KernelCase) -> dict[str, int]:
    counts = count_kernel(case.build(), view="structure", statistics=case.statistics)
    found = counts.evaluate(case.parameters)
    return {name: int(number) for name, number in found.items() if number}


@pytest.mark.parametrize("variant", ["tiled", "tiled-swapped"])
def test_a_tiled_product_has_two_barriers_a_tile(variant: str) -> None:
    # 3 x 3 groups of 12 x 12 items, three tiles each
    counts = _counts(entry(f"published-matmul/{variant}/12x12/f32").case_at(n=36))
    assert counts["barrier.local"] == 9 * 144 * 6
    assert counts["lmem.load.32"] == 2 * 36**3
    assert counts["lmem.store.32"] == 2 * 36**3 // 12


def test_a_scalar_product_adds_up_each_group_in_a_tree() -> None:
    case = entry("published-dot-product/64x1/f32").case_at(rows=3, groups=5)
    counts = _counts(case)
    # 64 items: levels of 32, 16, 8, 4, 2, 1 lanes, 63 together
    assert counts["flop.mul.f32"] == 5 * 64 * 3
    assert counts["flop.add.f32"] == 5 * (64 * 3 + 63)
    assert counts["lmem.load.32"] == 5 * (2 * 63 + 1)
    assert counts["lmem.store.32"] == 5 * (64 + 63)
    assert counts["barrier.local"] == 5 * 64 * 7
    stores = [each for each in analyze_kernel(case.build()).accesses if each.access.array == "r"]
    assert [each.executions.evaluate(case.parameters) for each in stores] == [5]


_ACCESS = r"gmem\.(load|store)\."


def _per_item(name: str, prefix: str, items: int, **sizes: int) -> Fraction:
    counts = _counts(entry(name).case_at(**sizes))
    return Fraction(sum(n for key, n in counts.items() if re.match(prefix, key)), items)


@pytest.mark.parametrize(
    ("name", "items", "sizes", "printed"),
    [
        ("published-merge/sepia/16x4/f32", 48, {"n": 6, "m": 8}, 6),
        ("published-merge/linear/16x4/f32", 48, {"n": 6, "m": 8}, 30),
        ("published-matmul/global/16x16/f32", 2000**2, {"n": 2000}, 4001),
        ("published-matmul/tiled/20x20/f32", 2000**2, {"n": 2000}, 201),
        ("published-matmul/tiled/4x4/f32", 2000**2, {"n": 2000}, 1001),
    ],
)
def test_memory_instructions_are_those_that_hong_and_kim_print(
    name: str, items: int, sizes: dict[str, int], printed: int
) -> None:
    assert _per_item(name, _ACCESS, items, **sizes) == printed  # Table 5


@pytest.mark.parametrize(
    ("variant", "items", "barriers"),
    [
        # 16 items; one barrier after loading, one after each of 31 diagonals
        ("nw-kernel1/16x1", 7 * 16, 32),
        ("lud-perimeter/32x1", 7 * 32, 2),
        ("lud-internal/16x16", 7 * 7 * 256, 1),
        # units, weights, products, four levels of a tree, stores
        ("bpnn-layerforward/16x16", 7 * 256, 8),
        ("bpnn-adjust-weights/16x16", 7 * 256, 1),
    ],
)
def test_rodinia_kernels_have_these_barriers(variant: str, items: int, barriers: int) -> None:
    assert _per_item(f"published-rodinia/{variant}/f32", "barrier.local", items, n=7) == barriers


@pytest.mark.parametrize(
    ("variant", "sizes", "counted"),
    [
        # a row of 1 to 15 products for each of 16 columns, on both sides of the diagonal; then
        # one division for each element of a column
        ("lud-perimeter/32x1", {"n": 1}, {"mul": 2 * 16 * 120, "div": 256}),
        # (n - 1 - t) rows of n - t columns, and one more for the right side
        ("fan2/8x8", {"n": 20, "t": 1}, {"mul": 18 * 19 + 18}),
        # five factors, and 34 squares for each of five centers
        ("kmeans-kernel-c/256x1", {"n": 10}, {"add": 10 * 5 * 68}),
        ("time-step/192x1", {"n": 10}, {"mul": 50, "add": 50, "div": 10}),
        # per pixel: dn*dn and alike, own*own, g2, laplacian**2 and its factor, den, den*den
        ("opt-srad1/256x1", {"n": 4, "m": 3}, {"mul": 12 * 10}),
    ],
)
def test_rodinia_kernels_compute_as_much(
    variant: str, sizes: dict[str, int], counted: dict[str, int]
) -> None:
    counts = _counts(entry(f"published-rodinia/{variant}/f32").case_at(**sizes))
    assert {kind: counts.get(f"flop.{kind}.f32") for kind in counted} == counted


def test_sixteen_diagonals_of_an_alignment_have_these_bank_conflicts() -> None:
    """Step m stores the cells (m - t + 1, t + 1) of lanes t <= m, whose words differ by 16."""
    case = entry("published-rodinia/nw-kernel1/16x1/f32").case_at(n=3)
    stores = [e for e in analyze_kernel(case.build()).accesses if e.access.direction == "store"]
    (store,) = [e for e in stores if e.instruction == "cell1"]
    found = bank_conflicts(store, case.parameters, banks=32, bank_width_bytes=4, sub_group_size=32)
    assert (found.instructions, max(dict(found.distribution))) == (3 * 16, 8)
    assert found.mean == Fraction(9, 2)  # (m + 2) // 2 for m from 0 to 15


def test_the_space_of_the_convolution_and_its_padding_are_the_published_ones() -> None:
    assert sum(1 for _ in CONVOLUTION.choices()) == 2442
    # rows of 16 + 14 pixels become 48 apart, so that two rows of 16 lanes lie in different banks
    assert [padding_columns(*block) for block in ((16, 1), (48, 1), (64, 4))] == [18, 18, 0]


@pytest.mark.device
@pytest.mark.parametrize(("block", "tile", "padded"), [((16, 2), (2, 3), 1), ((48, 1), (1, 2), 0)])
def test_variants_of_the_convolution_convolve(
    block: tuple[int, int], tile: tuple[int, int], padded: int
) -> None:
    names = ("block_size_x", "block_size_y", "tile_size_x", "tile_size_y")
    sizes = dict(zip(names, (*block, *tile), strict=True))
    choice = {**sizes, "read_only": 0, "use_padding": padded}
    assert choice in CONVOLUTION
    try:
        device = find_device("pocl:0")
    except DeviceError as error:
        pytest.skip(str(error))
    KernelRunner.open(device).check(CONVOLUTION.case(choice))
