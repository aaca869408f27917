from __future__ import annotations

from collections.abc import Mapping

import pytest

from countperf.machine_code.code import CompiledCode, CompiledRegion, Listed, code_of


def _region(
    name: str, *, is_innermost: bool = True, trips: float | None = None, **counts: int
) -> CompiledRegion:
    return CompiledRegion(
        name=name,
        depth=0 if name == "body" else 1 + name.count("."),
        is_innermost=is_innermost,
        trips=trips,
        counts={key.replace("_", "."): count for key, count in counts.items()},
    )


CODE = CompiledCode(
    kernel="k",
    source="by hand",
    group_shape=(16, 1, 1),
    regions=(
        _region("body", is_innermost=False, trips=1, flop_div_f64_1=3, load_integer=7),
        _region("1", is_innermost=False, trips=2, flop_add_f32_1=2, load_scalar_32=4),
        _region("1.1", flop_fma_f32_8=1, load_vector_256=2, gather=1, spill_load_256=3),
        _region("2", flop_mul_f32_1=1, spill_store_integer=1),
    ),
)


def test_totals_count_each_instruction_once() -> None:
    assert CODE.totals() == {
        "flop.add.f32.1": 2,
        "flop.div.f64.1": 3,
        "flop.fma.f32.8": 1,
        "flop.mul.f32.1": 1,
        "gather": 1,
        "load.integer": 7,
        "load.scalar.32": 4,
        "load.vector.256": 2,
        "spill.load.256": 3,
        "spill.store.integer": 1,
    }


def test_shares_of_all_code() -> None:
    # loop 1 runs twice, others are taken to run 10 times: divisions 3, additions 4, fused 20,
    # multiplications 10
    shares = CODE.shares()

    assert shares.packed == pytest.approx(160 / 177)
    assert shares.mean_lanes == pytest.approx(177 / 37)
    assert shares.fused == pytest.approx(20 / 37)
    assert shares.vector_accesses == pytest.approx(40 * 256 / (40 * 256 + 8 * 32))
    assert shares.lane_moves == pytest.approx(20 / 37)
    assert shares.spills == pytest.approx(60 / 37)
    assert shares.divisions == pytest.approx(3 / 37)


def test_shares_of_innermost_loops() -> None:
    # the multiplications of loop 2 run 10 times, the fused ones of 1.1 twice 10 times
    shares = CODE.shares(innermost=True)

    assert shares.packed == pytest.approx(160 / 170)
    assert shares.mean_lanes == pytest.approx(170 / 30)


def test_code_without_arithmetic_has_no_shares_of_it() -> None:
    code = CompiledCode(
        kernel="copy",
        source="by hand",
        group_shape=(1,),
        regions=(_region("body", load_scalar_32=1, store_vector_128=1),),
    )

    shares = code.shares()

    assert shares.packed is shares.mean_lanes is shares.fused is shares.spills is None
    assert shares.vector_accesses == pytest.approx(128 / 160)


FMA = ("flop.fma.f32.8", "load.vector.256")
SCALAR = ("flop.fma.f32.1", "load.scalar.32")
BRANCH = ("branch",)


def _code(*listed: Listed, executed: Mapping[int, int] | None = None) -> CompiledCode:
    return code_of(listed, executed, kernel="k", source="by hand", group_shape=(8, 1, 1))


def test_loops_have_the_iterations_that_a_group_executes() -> None:
    listed: list[Listed] = [
        (BRANCH, 6),  # arrays may overlap: not here
        (("move",), None),  # the outer loop begins
        (FMA, None),  # the inner one
        (BRANCH, 2),
        (BRANCH, 1),
        (BRANCH, 8),
        (SCALAR, None),  # the other version
        (BRANCH, 6),
        (("store.vector.256",), None),
        (BRANCH, 8),  # no iteration is repeated
    ]
    code = _code(*listed, executed={0: 1, 1: 5, 2: 35, 3: 35, 4: 5, 5: 1, 8: 1, 9: 1})
    assert [(each.name, each.trips, each.is_innermost) for each in code.regions] == [
        ("body", 1, False),
        ("1", 5, False),
        ("1.1", 7, True),
    ]
    assert code.regions[1].counts == {"branch": 1, "move": 1}
    assert code.regions[2].counts == {"branch": 1, "flop.fma.f32.8": 1, "load.vector.256": 1}
    assert code.aside == {"branch": 1, "flop.fma.f32.1": 1, "load.scalar.32": 1}
    assert code.shares().packed == 1


def test_without_a_group_all_code_is_counted() -> None:
    code = _code((("move",), None), (SCALAR, None), (BRANCH, 2), (FMA, None), (BRANCH, 1))
    assert [(each.name, each.trips) for each in code.regions] == [
        ("body", 1),
        ("1", None),
        ("1.1", None),
    ]
    assert code.totals()["branch"] == 2
    assert code.aside == {}
    assert _code().totals() == {}


def test_loops_that_cross_are_nested() -> None:
    code = _code(*[(("move",), None)] * 3, (BRANCH, 0), (("move",), None), (BRANCH, 2))
    assert [(each.name, each.counts) for each in code.regions] == [
        ("body", {}),
        ("1", {"move": 2}),
        ("1.1", {"branch": 2, "move": 2}),
    ]
