from __future__ import annotations

import pytest

from countperf.machine_code.code import CompiledCode, CompiledRegion, code_of
from countperf.machine_code.flow import Instruction


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


BRANCH = ("branch",)


def _code(*instructions: Instruction) -> CompiledCode:
    return code_of(instructions, kernel="k", source="by hand", group_shape=(8, 1, 1))


def test_of_two_versions_of_the_same_work_the_one_in_vectors_counts() -> None:
    scalar = [Instruction(("flop.fma.f32.1", "load.scalar.32"))] * 8
    vector = [Instruction(("flop.fma.f32.8", "load.vector.256"))]

    code = _code(
        Instruction(BRANCH, target=10),  # arrays may overlap
        *vector,
        Instruction(BRANCH, target=18, goes_on=False),
        *[Instruction(("move",))] * 7,
        *scalar,
        Instruction(("other",), goes_on=False),
    )

    assert code.totals() == {
        "branch": 2,
        "flop.fma.f32.8": 1,
        "load.vector.256": 1,
        "other": 1,
    }
    assert code.aside == {"flop.fma.f32.1": 8, "load.scalar.32": 8, "move": 7}
    assert code.shares().packed == 1


def test_loops_are_not_left_out_for_what_is_done_in_vectors_without_them() -> None:
    code = _code(
        Instruction(BRANCH, target=3),  # no iterations: a sum is zero
        Instruction(("flop.add.f32.1", "load.scalar.32")),
        Instruction(BRANCH, target=1),
        Instruction(("store.vector.256",)),
    )
    longer = _code(
        Instruction(BRANCH, target=4),
        Instruction(("flop.add.f32.1", "load.scalar.32")),
        Instruction(BRANCH, target=1),
        Instruction(BRANCH, target=5, goes_on=False),
        Instruction(("store.vector.256",)),
        Instruction(("other",), goes_on=False),
    )

    for each in (code, longer):
        assert [region.name for region in each.regions] == ["body", "1"]
        assert each.regions[1].counts["flop.add.f32.1"] == 1
    assert code.aside == {}
    assert longer.aside == {"store.vector.256": 1}
