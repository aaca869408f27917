"""MWP-CWP: the worked examples, the cases and MWP-CWP*."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from countperf.errors import ParameterError
from countperf.mechanistic.mwp_cwp import MwpCwpCycles, MwpCwpModel, MwpCwpRun
from countperf.mechanistic.profile import KernelProfile, LaunchConfiguration, ProfiledKernel
from countperf.mechanistic.roofline import TwoSubsystems
from tests.mechanistic.builders import example_device

# Hong & Kim (2009), Table 2: tiled matrix multiplication
MODEL = MwpCwpModel(
    device=example_device(
        num_compute_units=16,
        clock_hz=1e9,
        bandwidth_byte_per_s=80e9,
        issue_cycles=4.0,
        mem_ld_cycles=420.0,
        departure_del_uncoal_cycles=10.0,
        departure_del_coal_cycles=4.0,
        max_sub_groups_per_compute_unit=24,
    )
)
PROFILE = KernelProfile(
    name="matmul",
    alpha_comp=27,
    alpha_mem=6,
    alpha_sync=6,
    alpha_mem_coal=0,
    alpha_mem_uncoal=6,
    uncoal_per_mw=32,
    load_bytes_per_sub_group=128,
)
LAUNCH = LaunchConfiguration(work_items_per_group=128, num_groups=80, active_groups=5)
TABLE_2 = MODEL.inputs(ProfiledKernel(PROFILE, LAUNCH))
# 4 computations and 2 memory instructions, 25 cycles alone
EXAMPLE = TwoSubsystems(
    alpha_comp=4, alpha_mem=2, cpi_comp=1, latency_comp=4, cpi_mem=2, latency_mem=6
)
EXACT = 1e-14


def test_every_quantity_of_table_2() -> None:
    result = MwpCwpCycles(TABLE_2)
    assert (result.occupancy, result.mem_l, result.departure_delay) == (20, 730, 320)
    assert result.mwp == result.mwp_without_bw_full == 2.28125
    assert result.bw_per_warp == pytest.approx(128e9 / 730, rel=EXACT)
    assert result.mwp_peak_bw == pytest.approx(28.515625, rel=EXACT)
    assert (result.comp_cycles, result.mem_cycles) == (132, 4380)
    assert result.cwp_full == pytest.approx(4512 / 132, rel=EXACT)
    assert (result.cwp, result.rep, result.case) == (20, 1, "memory")
    assert result.exec_cycles_app == pytest.approx(38428.1875, rel=EXACT)
    assert result.synch_cost == pytest.approx(12300, rel=EXACT)
    assert result.exec_cycles_with_synch == pytest.approx(50728.1875, rel=EXACT)
    assert result.cpi == pytest.approx(38428.1875 / (33 * 4 * 80 / 16), rel=EXACT)
    # the total that is printed has mwp rounded to two digits, which moves it by that share
    assert result.exec_cycles_with_synch == pytest.approx(50738, rel=0.0003)
    rounded_exec, rounded_synch = 4380 * 20 / 2.28 + 22 * 1.28, 320 * 1.28 * 6 * 5
    assert (rounded_exec, rounded_synch) == pytest.approx((38449.2, 12288), abs=0.05)


def test_the_other_cases_of_table_2() -> None:
    coalesced = MwpCwpCycles(replace(TABLE_2, alpha_mem_coal=6, alpha_mem_uncoal=0))
    assert (coalesced.mem_l, coalesced.departure_delay) == (420, 4)
    assert coalesced.mwp_without_bw_full == 105
    assert coalesced.mwp == coalesced.mwp_peak_bw == pytest.approx(16.40625, rel=EXACT)
    assert coalesced.cwp_full == pytest.approx(2652 / 132, rel=EXACT)
    assert coalesced.case == "memory"
    assert coalesced.exec_cycles_app == pytest.approx(3410.9375, rel=EXACT)
    # a kernel that computes takes one memory latency more
    changes = {"alpha_mem_coal": 2, "alpha_mem_uncoal": 0, "alpha_comp": 298, "alpha_sync": 0}
    computing = MwpCwpCycles(replace(TABLE_2, **changes))
    assert (computing.comp_cycles, computing.mem_cycles) == (1200, 840)
    assert computing.cwp == pytest.approx(1.7, rel=EXACT)
    assert (computing.case, computing.exec_cycles_app) == ("compute", 24420)
    # which Eq. (23) as printed takes as bound by memory: 840 * 20 / 16.40625 + 150 * 15.40625
    printed = MwpCwpCycles(replace(TABLE_2, **changes), case_rule="printed")
    assert printed.case == "memory"
    assert printed.exec_cycles_app == pytest.approx(1024 + 2310.9375 * 4, rel=EXACT)
    with pytest.raises(ParameterError, match="case_rule must be one of text, printed"):
        MwpCwpCycles(TABLE_2, case_rule="x")  # pyright: ignore[reportArgumentType] - refused
    # a single sub-group takes its computations and all its latencies
    changes = {"sub_groups_per_group": 1, "num_groups": 16, "active_groups": 1, "alpha_sync": 0}
    alone = MwpCwpCycles(replace(TABLE_2, **changes))
    assert (alone.occupancy, alone.case, alone.exec_cycles_app) == (1, "occupancy", 4512)
    for groups, repetitions in ((40, 5.0), (42, 5.25), (4, 1.0)):
        changes = {"num_groups": groups, "num_active_compute_units": 4, "active_groups": 2}
        assert MwpCwpCycles(replace(TABLE_2, **changes)).rep == repetitions


@pytest.mark.parametrize(
    ("changes", "helps"),
    [
        # Table 2: its departure delay limits MWP; coalesced, the bandwidth does
        ({}, ("memory bounds", "coalesced accesses")),
        ({"alpha_mem_coal": 6, "alpha_mem_uncoal": 0}, ("memory bounds", "fewer accesses help;")),
        # two resident groups: MWP is N = 8, and a computation period is longer than a wait
        ({"alpha_comp": 298, "alpha_mem_coal": 2, "alpha_mem_uncoal": 0}, ("computations bound",)),
        ({"sub_groups_per_group": 1, "active_groups": 1}, ("too few sub-groups", "more of them")),
    ],
)
def test_advice_follows_the_case(changes: dict[str, float], helps: tuple[str, ...]) -> None:
    advice = MwpCwpCycles(replace(TABLE_2, **changes)).advice
    assert all(part in advice for part in helps)


def test_cycles_per_run_of_the_example() -> None:
    published = [MwpCwpRun(EXAMPLE, occupancy) for occupancy in range(1, 10)]
    assert (published[0].mwp, published[0].cwp) == (3, 4)
    assert [run.cpr for run in published] == [16, 18, 20, 22, 26, 30, 34, 38, 42]
    assert [run.case for run in published] == ["occupancy"] * 3 + ["memory"] * 6
    assert published[8].wpc == pytest.approx(9 / 42, rel=EXACT)
    corrected = [MwpCwpRun(EXAMPLE, occupancy, 25) for occupancy in range(1, 13)]
    assert [run.cpr for run in corrected] == [25, 27, 29, 31, 33, 35, 37, 39, 42, 46, 50, 54]
    assert [run.case for run in corrected] == ["occupancy"] * 8 + ["memory"] * 4


@pytest.mark.parametrize(
    ("alpha_comp", "occupancy", "mwp", "cwp", "case", "cycles"),
    [
        pytest.param(16, 10, 3, 1.75, "compute", 166, id="one memory latency more"),
        pytest.param(6, 4, 3, 3, "memory", 25, id="a tie below the occupancy"),
    ],
)
def test_other_cases_of_the_example(
    alpha_comp: float, occupancy: float, mwp: float, cwp: float, case: str, cycles: float
) -> None:
    run = MwpCwpRun(replace(EXAMPLE, alpha_comp=alpha_comp), occupancy)
    assert (run.mwp, run.cwp, run.case, run.cpr) == (mwp, cwp, case, cycles)


_positive = st.floats(0.125, 512)
_systems = st.builds(
    TwoSubsystems,
    alpha_comp=_positive,
    alpha_mem=_positive,
    cpi_comp=_positive,
    latency_comp=_positive,
    cpi_mem=_positive,
    latency_mem=_positive,
)


@given(_systems, st.floats(1, 512), st.floats(0, 1))
def test_below_both_parallelisms_the_correction_changes_only_the_time_alone(
    system: TwoSubsystems, alpha_mem: float, share: float
) -> None:
    # with less than one memory instruction, its latency in the compute case is too much of it
    system = replace(system, alpha_mem=alpha_mem)
    first = MwpCwpRun(system, 1)
    occupancy = min(first.mwp, first.cwp) * share
    assume(occupancy > 0)
    alone = system.alpha_mem * system.latency_mem + system.alpha_comp * system.cpi_comp
    published = MwpCwpRun(system, occupancy)
    corrected = MwpCwpRun(system, occupancy, alone)
    assert published.case == "occupancy"
    # below one sub-group, Eq. (28) takes off nearly what it adds: rounding is that of the terms
    assert corrected.cpr == pytest.approx(published.cpr, rel=1e-12, abs=1e-14 * alone)


@given(_systems, st.floats(1.01, 100))
def test_memory_parallelism_exceeds_the_other_beyond_an_intensity_above_the_ridge(
    system: TwoSubsystems, ratio: float
) -> None:
    system = replace(system, latency_mem=system.cpi_mem * ratio)
    intensity = system.alpha_comp / system.alpha_mem
    turn = system.cpi_mem / (system.cpi_comp * (1 - 1 / ratio))  # Eq. (17)-(20)
    assume(abs(intensity / turn - 1) > 1e-9)
    run = MwpCwpRun(system, 1)
    assert (run.mwp > run.cwp) == (intensity > turn)


@given(_systems, st.floats(1, 64), st.floats(1, 64), st.floats(1, 1e4))
def test_corrected_cycles_never_fall_with_occupancy_nor_below_the_roofline(
    system: TwoSubsystems, first: float, second: float, latency_app: float
) -> None:
    low, high = sorted((first, second))
    fewer, more = (MwpCwpRun(system, omega, latency_app) for omega in (low, high))
    roof = high * max(system.alpha_comp * system.cpi_comp, system.alpha_mem * system.cpi_mem)
    assert fewer.cpr <= more.cpr * (1 + 1e-12)
    assert more.cpr >= roof * (1 - 1e-12)
    assert sum(more.parts.values()) == more.cpr


@given(
    st.floats(0, 1e3), st.floats(0, 50), st.floats(0.01, 50), st.floats(1, 32), st.integers(1, 500)
)
def test_parts_add_up_and_time_grows_with_the_groups(
    alpha_comp: float, coalesced: float, uncoalesced: float, transactions: float, groups: int
) -> None:
    inputs = replace(
        TABLE_2,
        alpha_comp=alpha_comp,
        alpha_mem_coal=coalesced,
        alpha_mem_uncoal=uncoalesced,
        uncoal_per_mw=transactions,
    )
    result, more = (MwpCwpCycles(replace(inputs, num_groups=n)) for n in (groups, groups + 80))
    total = result.exec_cycles_with_synch
    assert sum(result.exec_parts.values()) == pytest.approx(total, rel=1e-12)
    assert more.exec_cycles_with_synch > total
    assert max(result.mwp, result.cwp) <= result.occupancy


def test_the_model_of_a_device_gives_the_time_of_table_2() -> None:
    prediction = MODEL.predict(ProfiledKernel(PROFILE, LAUNCH))
    assert prediction.time_s == pytest.approx(50728.1875e-9, rel=EXACT)
    assert (prediction.bound, prediction.ignored) == ("memory", ())
    assert prediction.breakdown["barrier"] == pytest.approx(12300e-9, rel=EXACT)
    # Table 2 is bound by memory under either rule
    printed = replace(MODEL, case_rule="printed").predict(ProfiledKernel(PROFILE, LAUNCH))
    assert printed.time_s == prediction.time_s
    # fewer groups than compute units keep only those busy
    inputs = MODEL.inputs(ProfiledKernel(PROFILE, replace(LAUNCH, num_groups=3)))
    assert (inputs.num_active_compute_units, inputs.active_groups) == (3, 1)
