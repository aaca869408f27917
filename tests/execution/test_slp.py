"""Values that a loop updates alike: by hand, and by what LLVM makes of them under PoCL."""

from __future__ import annotations

from fractions import Fraction
from functools import cache
from typing import Any

import pytest

from countperf.errors import DeviceError
from countperf.execution.count import count_execution
from countperf.execution.keys import OperationKey
from countperf.execution.policy import ExecutionPolicy
from countperf.execution.slp import packs
from countperf.machine_code.objdump import find_objdump
from countperf.properties.count_properties import count_kernel
from countperf.properties.issuing import apply_policy
from measurement_kernels.arguments import ArrayArgument, Extent, SizeParameter
from measurement_kernels.programs import Divided, Program, Recurrence, Shape, build

FUSED = "0.9375 * {s} + a[i]"


@cache
def _updates(*values: str, element_type: str = "f32") -> Any:
    """Make a kernel whose items update several values 64 times, and sum them."""
    program = Program(
        name="updates",
        loops=(("i", "n"), ("k", "m")),
        formulas=(
            Recurrence(
                target="r[i]",
                states=tuple(
                    (f"{0.5 + q / 16} * a[i]", value.format(s=f"s{q}"))
                    for q, value in enumerate(values)
                ),
                loop="k",
                result=" + ".join(f"s{q}" for q in range(len(values))),
            ),
        ),
        sizes=(
            SizeParameter(name="n", multiple=128, base=128),
            SizeParameter(name="m", fixed=64),
        ),
        arguments=(
            ArrayArgument(name="a", shape=(Extent("n"),)),
            ArrayArgument(name="r", shape=(Extent("n"),), role="output"),
        ),
        element_type=element_type,
    )
    return build(program, Shape(divided=(Divided(loop="i", axis=0, items=128),)))


def _sites(unit: Any, operation: str) -> dict[str, int]:
    """Return how often items execute an operation in the loop once, by placement."""
    counts = count_kernel(unit, view="structure").evaluate(n=128, m=64)
    return {
        name.split(".")[2]: int(count) // (128 * 64)
        for name, count in counts.items()
        if name.endswith(operation) and name.startswith("site.free.loop")
    }


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        (1, {"loop": 1}),
        (2, {"loop_slp2": 2}),
        (3, {"loop_slp2": 2, "loop": 1}),
        (4, {"loop_slp4": 4}),
        (7, {"loop_slp4": 4, "loop_slp2": 2, "loop": 1}),
        (8, {"loop_slp8": 8}),
        (17, {"loop_slp8": 16, "loop": 1}),
    ],
)
def test_eight_four_and_two_of_them_are_packed(number: int, expected: dict[str, int]) -> None:
    assert _sites(_updates(*[FUSED] * number), "flop.fma.f32") == expected


def test_constants_may_differ() -> None:
    unit = _updates("0.25 * {s} + a[i]", "0.75 * {s} + a[i]")
    assert _sites(unit, "flop.fma.f32") == {"loop_slp2": 2}


def test_others_beside_them_keep_them_apart() -> None:
    unit = _updates(FUSED, FUSED, "{s} + a[i]", "{s} + a[i]")
    assert _sites(unit, "flop.fma.f32") == {"loop": 2}


def test_functions_that_take_long_are_packed_all_the_same() -> None:
    unit = _updates("rsqrt({s} * {s} + 0.5)", FUSED, "rsqrt({s} * {s} + 0.75)")
    assert _sites(unit, "special.f32.rsqrt") == {"loop_slp2": 2}
    assert _sites(unit, "flop.fma.f32") == {"loop_slp2": 2, "loop": 1}


def test_what_other_loops_update_is_not_alike() -> None:
    unit = _updates(FUSED)
    kernel = unit.default_entrypoint
    update = next(i for i in kernel.instructions if "k" in i.within_inames)
    private = {update.assignee.name}
    assert packs([(update, ("k",)), (update, ("k", "l"))], private, ()) == {}
    assert packs([(update, ("k",)), (update, ("k",))], private, ()) == {update.id: {2: Fraction(1)}}
    assert packs([(update, ()), (update, ())], private, ()) == {}
    assert packs([(update, ("k",)), (update, ("k",))], (), ()) == {}


def test_sites_of_one_operation_add_up() -> None:
    found = count_execution(_updates(*[FUSED] * 7))
    fused = [
        count.evaluate({"n": 128, "m": 64})
        for key, count in found.counts.items()
        if isinstance(key, OperationKey)
        and key.operation.kind == "fma"
        and key.site.placement == "loop"
    ]
    assert sum(fused) == 7 * 128 * 64


def test_a_policy_packs_what_items_do_one_by_one() -> None:
    counts = {
        "site.free.loop_slp4.16x1.flop.fma.f32": 64.0,
        "site.free.loop_slp4.16x1.flop.special.f32.rsqrt": 64.0,
    }
    apart = apply_policy(ExecutionPolicy(width=8, vectorized="flat"), counts)
    assert apart == {
        "issue.scalar.arithmetic.f32.fma": 64,
        "issue.scalar.special.f32.rsqrt": 64,
    }
    packed = apply_policy(ExecutionPolicy(width=8, vectorized="flat", alike="packed"), counts)
    assert packed == {
        "issue.vector.arithmetic.f32.fma": 16,
        "issue.vector.special.f32.rsqrt": 16,
    }
    vectors = apply_policy(ExecutionPolicy(width=8, vectorized="always", alike="packed"), counts)
    assert vectors == {
        "issue.vector.arithmetic.f32.fma": 8,
        "issue.vector.special.f32.rsqrt": 8,
    }


def test_integers_are_not_packed() -> None:
    policy = ExecutionPolicy(width=8, vectorized="flat", alike="packed")
    counts = {"site.free.loop_slp4.16x1.iop.div.i32": 64.0}
    assert apply_policy(policy, counts) == {"issue.scalar.divide.i32.div": 64}


@pytest.mark.device
@pytest.mark.skipif(find_objdump() is None, reason="objdump is not installed")
@pytest.mark.parametrize(
    ("values", "operation", "lanes"),
    [
        ((FUSED,), "fma.f32", {1}),
        ((FUSED,) * 7, "fma.f32", {1, 4}),  # two are in registers of four
        ((FUSED,) * 8, "fma.f32", {8}),
        ((FUSED, FUSED, "{s} + a[i]", "{s} + a[i]"), "fma.f32", {1}),
    ],
)
def test_llvm_packs_them_so(values: tuple[str, ...], operation: str, lanes: set[int]) -> None:
    from countperf.harness.compile.pocl import compile_with_pocl
    from countperf.harness.devices import find_device

    try:
        device = find_device("pocl:0")
    except DeviceError as error:
        pytest.skip(str(error))
    (code,) = compile_with_pocl(_updates(*values), device, {"n": 128, "m": 64}).values()
    found = {
        int(name.rpartition(".")[2])
        for region in code.regions
        if region.depth == max(each.depth for each in code.regions)
        for name in region.counts
        if name.startswith(f"flop.{operation}.")
    }
    assert found == lanes
