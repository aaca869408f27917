"""Unused local memory: what a group takes, counts that stay, results that stay."""

from __future__ import annotations

from typing import Any

import loopy as lp
import numpy as np
import pytest

from countperf.counting.resources import scheduled
from countperf.counting.unused_local import with_unused_local
from countperf.errors import CountingError, ParameterError
from countperf.hardware.library import load_device
from countperf.mechanistic.from_kernel import profile_kernel
from countperf.mechanistic.occupancy import limiting_local_bytes, resident_groups
from countperf.properties.count_properties import count_kernel
from measurement_kernels import catalog
from tests.counting import profiled

MATMUL = catalog.entry("matmul-tiled/square/16x16")
GTX_970 = load_device("nvidia-gtx-970")


def _counts(unit: Any, sizes: dict[str, int]) -> dict[str, Any]:
    return dict(count_kernel(unit, cache=False).evaluate(sizes))


def test_a_local_array_grows_and_the_counts_stay() -> None:
    unit = MATMUL.build()
    sizes = dict(MATMUL.check_parameters)

    padded = with_unused_local(unit, 20_000)

    # 2 tiles of 16*16 floats, and rows of 64 byte until there are 20000
    assert scheduled(unit)[1].local_memory_bytes == 2048
    assert scheduled(padded)[1].local_memory_bytes == 2048 + 281 * 64
    assert _counts(padded, sizes) == _counts(unit, sizes)


def test_what_takes_as_much_already_stays_as_it_is() -> None:
    unit = MATMUL.build()

    assert with_unused_local(unit, 2048) is unit


def test_a_kernel_without_local_arrays_gets_one_whose_accesses_are_counted() -> None:
    unit = profiled.saxpy()

    padded = with_unused_local(unit, 4096)

    before, after = (_counts(each, {"n": 640}) for each in (unit, padded))
    assert scheduled(padded)[1].local_memory_bytes == 4096
    more = {name: value for name, value in after.items() if before.get(name) != value}
    # a store and a barrier of each of 640 work items; the read is never executed
    assert more == {"lmem.store.32": 640, "barrier.local": 640}


def test_the_code_keeps_the_array() -> None:
    code = lp.generate_code_v2(with_unused_local(profiled.saxpy(), 4096)).device_code()

    assert "__local int unused_local[1024]" in code
    assert "if (n < 0)" in code


@pytest.mark.device
def test_results_stay() -> None:
    cl = pytest.importorskip("pyopencl")
    try:
        context = cl.create_some_context(interactive=False)
        queue = cl.CommandQueue(context)
    except cl.Error:
        pytest.skip("no OpenCL device")
    x = np.arange(640, dtype=np.float32)
    unit = with_unused_local(profiled.saxpy(), 4096)

    run = unit.executor(context)
    _, (z,) = run(queue, x=x, y=2 * x, a=np.float32(3), out_host=True)

    np.testing.assert_array_equal(z, 5 * x)


def test_what_has_nowhere_to_put_it_is_refused() -> None:
    unit = lp.make_kernel("{ [i]: 0 <= i < 64 }", "y[i] = 2*x[i]", lang_version=(2018, 2))

    with pytest.raises(CountingError, match="no local array that could grow"):
        with_unused_local(lp.add_dtypes(unit, {"x": np.float32}), 4096)


@pytest.mark.parametrize("groups", range(2, 9))
@pytest.mark.parametrize("slug", ["nvidia-gtx-970", "nvidia-k620", "nvidia-h200", "amd-r9-380"])
def test_so_much_local_memory_leaves_so_many_groups(slug: str, groups: int) -> None:
    device = load_device(slug)
    found = limiting_local_bytes(device, groups, work_items_per_group=64)

    def resident(local_bytes: int) -> int:
        return resident_groups(
            device, work_items_per_group=64, local_bytes_per_group=local_bytes
        ).active_groups

    assert resident(found) <= groups < resident(found - 1)


def test_one_group_is_not_to_be_had_where_a_group_may_not_take_half_of_the_memory() -> None:
    # Lemeire et al., Table 9: the GeForce GTX 1060 cannot be limited to one group
    with pytest.raises(ParameterError, match="leaves 2 groups resident"):
        limiting_local_bytes(load_device("nvidia-gtx-1060"), 1, work_items_per_group=64)
    one = limiting_local_bytes(load_device("nvidia-k620"), 1, work_items_per_group=64)
    assert one == 32 * 1024 + 1


def test_models_see_fewer_groups() -> None:
    sizes = {"n": 512, "m": 512, "l": 512}
    least = limiting_local_bytes(GTX_970, 3, work_items_per_group=256, registers_per_work_item=32)
    unit = with_unused_local(MATMUL.build(), least)

    found = profile_kernel(unit, GTX_970, registers_per_work_item=32).at(sizes)

    local = found.profile.local_bytes_per_group
    assert local is not None
    assert local >= least
    assert (
        resident_groups(
            GTX_970,
            work_items_per_group=256,
            registers_per_work_item=32,
            local_bytes_per_group=local,
        ).active_groups
        == 3
    )
