"""Kernels build, ask for the accesses that they are meant to, and compute the right numbers."""

from __future__ import annotations

import re
import warnings
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from measurement_kernels.arguments import TOLERANCES
from measurement_kernels.catalog import entries, entry
from measurement_kernels.entry import CatalogEntry
from tests.nightly import one_of

if TYPE_CHECKING:
    import pyopencl as cl

PUBLISHED = entries(collection="published")
DOWNSTREAM = entries(collection="downstream", element_type=None, purpose=None)
EVERYTHING = (*entries(element_type=None, purpose=None), *PUBLISHED, *DOWNSTREAM)


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


@pytest.fixture(scope="session")
def queue() -> cl.CommandQueue:
    cl = pytest.importorskip("pyopencl")
    try:
        devices = [device for platform in cl.get_platforms() for device in platform.get_devices()]
    except cl.Error as error:
        pytest.skip(f"no OpenCL platform: {error}")
    if not devices:
        pytest.skip("no OpenCL device")
    return cl.CommandQueue(_context(devices[0]))  # Intel's runtime keeps no contexts of queues


@cache
def _context(device: cl.Device) -> cl.Context:
    cl = pytest.importorskip("pyopencl")
    return cl.Context([device])


def _run(each: CatalogEntry, queue: cl.CommandQueue, sizes: dict[str, int]) -> None:
    from loopy.diagnostic import ParameterFinderWarning

    if each.element_type == "f64" and "cl_khr_fp64" not in queue.device.extensions:
        pytest.skip("the device has no double precision")
    if each.group_shape[0] * each.group_shape[1] > queue.device.max_work_group_size:
        pytest.skip("the device has no groups of that size")
    case = each.case_at(**sizes)
    given = each.make_arguments(np.random.default_rng(5), sizes)
    wanted = each.reference(given, sizes)
    with warnings.catch_warnings():
        # Loopy's executor looks for n in products of extents too; it is passed
        warnings.simplefilter("ignore", ParameterFinderWarning)
        _, results = case.build().executor(queue.context)(queue, **given, **sizes, out_host=True)
    computed: dict[str, Any] = dict(zip(wanted, results, strict=True))
    for name, want in wanted.items():
        assert computed[name].dtype == want.dtype
        error = np.max(np.abs(computed[name].astype("f8") - want.astype("f8")))
        assert error <= TOLERANCES[each.element_type] * max(1.0, float(np.max(np.abs(want))))


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


@pytest.mark.device
@pytest.mark.parametrize("each", one_of(9, _runs_on_device()))
def test_numbers_are_right(each: CatalogEntry, queue: cl.CommandQueue) -> None:
    _run(each, queue, dict(each.check_parameters))


@pytest.mark.device
@pytest.mark.parametrize(
    ("name", "sizes"),
    [
        ("finite-differences", {"n": 16}),
        ("matmul-skinny", {"n": 64, "m": 512, "l": 64}),
        ("convolution", {"n": 48, "images": 4}),
        ("n-body", {"n": 1024}),
    ],
)
def test_test_kernels_are_right_at_other_sizes(
    name: str, sizes: dict[str, int], queue: cl.CommandQueue
) -> None:
    _run(entry(name), queue, sizes)


def _code(name: str) -> str:
    import loopy as lp

    return lp.generate_code_v2(entry(name).build()).device_code()


@pytest.mark.parametrize("kind", ["add", "mul", "div", "pow", "rsqrt"])
def test_single_precision_arithmetic_stays_single(kind: str) -> None:
    code = _code(f"arithmetic/{kind}-k256/16x16/f32")
    assert "double" not in code
    assert not re.search(r"\d\.\d+(?!\d*f)\b", code)
