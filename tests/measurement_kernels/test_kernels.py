"""Kernels build, ask for the accesses that they are meant to, and compute the right numbers."""

from __future__ import annotations

import re
import zlib
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import loopy as lp
import numpy as np
import pytest

from countperf import analyze_kernel, count_kernel
from countperf.devices.discovery import find_device
from countperf.errors import DeviceError
from countperf.measuring.runner import KernelRunner
from measurement_kernels.catalog import entries, entry
from measurement_kernels.entry import CatalogEntry, Collection
from measurement_kernels.extended import through_data
from tests.nightly import one_of
from tests.oracles import oclgrind

PUBLISHED = entries(collection="published")
DOWNSTREAM = entries(collection="downstream", element_type=None, purpose=None)
EVERYTHING = (*entries(element_type=None, purpose=None), *PUBLISHED, *DOWNSTREAM)


_SHARES: tuple[tuple[Collection, int], ...] = (("random", 8), ("extended", 3))
_THROUGH_DATA = ("random", "rows-near", "columns-small", "uneven-12", "uneven-24-product")


def _sample() -> list[CatalogEntry]:
    """Choose one in 16 random kernels and one in 6 extended ones, of each family, by name."""
    families: defaultdict[str, list[CatalogEntry]] = defaultdict(list)
    for collection, share in _SHARES:
        for each in entries(element_type=None, collection=collection):
            if zlib.crc32(each.name.encode()) % share == 0:
                families[each.family].append(each)
    return [each for some in families.values() for each in some[::2]]


SAMPLE = _sample()
THROUGH_DATA = [each for each in through_data.entries() if each.variant in _THROUGH_DATA]


_MOST_EXECUTED = 10**6
"""Counted work that Oclgrind executes in about a second; kernels with more run at smaller sizes."""


def _counts(each: CatalogEntry, sizes: Mapping[str, int]) -> Mapping[str, Any]:
    statistics = each.statistics_at(each.check_parameters)
    return count_kernel(each.build(), statistics=statistics).evaluate(sizes)


def _integers(each: CatalogEntry) -> dict[str, list[int]]:
    """Return the contents of arrays of integers."""
    arguments = each.make_arguments(np.random.default_rng(0), each.check_parameters)
    arrays = {n: a for n, a in arguments.items() if isinstance(a, np.ndarray)}
    return {n: a.ravel().tolist() for n, a in arrays.items() if a.dtype.kind == "i"}


@pytest.fixture(scope="module")
def runner() -> KernelRunner:
    try:
        return KernelRunner.open(find_device())
    except DeviceError as error:
        pytest.skip(str(error))


def _runs_on_device() -> list[CatalogEntry]:
    """Choose one shape for each variant, and all where the shape decides how tiles are fetched."""
    chosen: dict[object, CatalogEntry] = {}
    for each in EVERYTHING:
        kind = each.variant.removesuffix("-k512").removesuffix("-k768").removesuffix("-k256")
        shape = {(16, 12): (16, 12), (192, 1): (192, 1)}.get(each.group_shape)
        tiled = each.variant in ("square", "tiled") and each.element_type == "f32"
        if tiled or each.purpose != "measurement" or each in PUBLISHED:
            chosen[each.name] = each
        elif shape:
            chosen.setdefault((each.family, kind, each.element_type), each)
    # the four shapes of the tiled product share one kernel
    return [each for each in chosen.values() if not each.variant.startswith("half-")]


@pytest.mark.parametrize("each", EVERYTHING, ids=lambda each: each.name)
def test_builds_once_with_the_sizes_as_parameters(each: CatalogEntry) -> None:
    unit = each.build()
    assert unit is each.build()
    kernel = unit.default_entrypoint
    by_data = frozenset(kernel.temporary_variables)  # trip counts that the kernel computes
    assert kernel.all_params() - by_data == frozenset(size.name for size in each.sizes)
    called_with = {a.name for a in each.arguments} | {size.name for size in each.sizes}
    assert set(kernel.arg_dict) == called_with


def test_variants_that_differ_in_sizes_only_share_a_kernel() -> None:
    names = ["matmul-tiled/square", "matmul-tiled/half-n", "matmul-tiled/half-m"]
    assert len({id(entry(f"{name}/16x12").build()) for name in names}) == 1
    names = ["arithmetic/add-k256", "arithmetic/add-k512", "arithmetic/add-k768"]
    assert len({id(entry(f"{name}/16x12").build()) for name in names}) == 1


_OTHER_SIZES: Mapping[str, dict[str, int]] = {
    "finite-differences": {"n": 16},
    "matmul-skinny": {"n": 64, "m": 512, "l": 64},
    "convolution": {"n": 48, "images": 4},
    "n-body": {"n": 1024},
}


@pytest.mark.device
@pytest.mark.parametrize("each", [*one_of(9, _runs_on_device()), *one_of(12, SAMPLE)])
def test_numbers_are_right(each: CatalogEntry, runner: KernelRunner) -> None:
    runner.check(each.case(each.exponents[0] + each.exponent_steps[0]))


@pytest.mark.device
@pytest.mark.parametrize(("name", "sizes"), _OTHER_SIZES.items())
def test_test_kernels_are_right_at_other_sizes(
    name: str, sizes: dict[str, int], runner: KernelRunner
) -> None:
    runner.check(replace(entry(name).case_at(**sizes), check_parameters=sizes))


@pytest.mark.oclgrind
@pytest.mark.skipif(oclgrind.PROGRAM is None, reason="oclgrind-kernel is not installed")
@pytest.mark.parametrize("each", one_of(10, [*SAMPLE[::2], *THROUGH_DATA]))
def test_counts_equal_executed_instructions(each: CatalogEntry, tmp_path: Path) -> None:
    sizes = each.check_parameters
    if sum(_counts(each, sizes).values()) > _MOST_EXECUTED and each in SAMPLE:
        halves = {size: max(1, sizes[size.name] // size.multiple // 2) for size in each.sizes}
        sizes = {size.name: size.multiple * half for size, half in halves.items()}
    executed = oclgrind.run(each.build(), sizes, tmp_path, contents=_integers(each))
    assert oclgrind.disagreements(_counts(each, sizes), executed) == {}


def test_sample_is_counted_and_analyzed() -> None:
    for each in SAMPLE[1::24]:
        assert _counts(each, each.check_parameters)["launches"] == 1
        statistics = each.statistics_at(each.check_parameters)
        assert analyze_kernel(each.build(), statistics=statistics)


def _code(name: str) -> str:
    return lp.generate_code_v2(entry(name).build()).device_code()


@pytest.mark.parametrize("kind", ["add", "mul", "div", "pow", "rsqrt"])
def test_single_precision_arithmetic_stays_single(kind: str) -> None:
    code = _code(f"arithmetic/{kind}-k256/16x16/f32")
    assert "double" not in code
    assert not re.search(r"\d\.\d+(?!\d*f)\b", code)
