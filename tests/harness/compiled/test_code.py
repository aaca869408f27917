from __future__ import annotations

import pytest

from countperf.harness.compiled.code import CompiledCode, CompiledRegion


def _region(name: str, *, is_innermost: bool = True, **counts: int) -> CompiledRegion:
    return CompiledRegion(
        name=name,
        depth=0 if name == "body" else 1 + name.count("."),
        is_innermost=is_innermost,
        counts={key.replace("_", "."): count for key, count in counts.items()},
    )


CODE = CompiledCode(
    kernel="k",
    source="by hand",
    group_shape=(16, 1, 1),
    regions=(
        _region("body", is_innermost=False, flop_div_f64_1=3, load_integer=7),
        _region("1", is_innermost=False, flop_add_f32_1=2, load_scalar_32=4),
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
    # by 10 iterations of each loop: divisions 3, additions 20, fused 100, multiplications 10
    shares = CODE.shares()

    assert shares.packed == pytest.approx(800 / 833)
    assert shares.mean_lanes == pytest.approx(833 / 133)
    assert shares.fused == pytest.approx(100 / 133)
    assert shares.vector_accesses == pytest.approx(200 * 256 / (200 * 256 + 40 * 32))
    assert shares.lane_moves == pytest.approx(100 / 133)
    assert shares.spills == pytest.approx(300 / 133)
    assert shares.divisions == pytest.approx(3 / 133)


def test_shares_of_innermost_loops_at_given_trips() -> None:
    # the multiplications of loop 2 run 10 times, the fused ones of 1.1 3 times 4 times
    shares = CODE.shares(innermost=True, trips={"1": 3, "1.1": 4})

    assert shares.packed == pytest.approx(96 / 106)
    assert shares.mean_lanes == pytest.approx(106 / 22)
    assert CODE.shares(innermost=True, trips=1).packed == pytest.approx(8 / 9)


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
