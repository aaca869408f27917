"""Printed numbers of the papers that follow from other printed numbers, and those that do not.

`docs/papers.md` lists which numbers are tested where, and which cannot be recomputed.
"""

from __future__ import annotations

import math

import pytest

from countperf.hardware.library import load_device
from countperf.mechanistic.merpsys import resource_use, transfer_time
from countperf.mechanistic.occupancy import resident_groups
from countperf.mechanistic.tmm import scheduling_factor
from tests.mechanistic.builders import implied_bandwidth

# {{{ Lemeire, Cornelis & Konstantinidis

GPUS = {
    "Fermi": "nvidia-c2050",
    "Kepler": "nvidia-gtx-650-ti",
    "Maxwell": "nvidia-k620",
    "Pascal": "nvidia-gtx-1060",
    "Turing": "nvidia-rtx-2070",
    "Tonga": "amd-r9-380",
}


def test_lemeire_table_4_has_the_cost_of_maxwell_with_instruction_parallelism() -> None:
    # the text says that 0.375, Table 5, is what is measured without it
    device = load_device("nvidia-k620")

    assert device.classes["mul.f32"].cpi == 0.375
    assert device.cores_per_compute_unit is not None
    assert 32 / device.cores_per_compute_unit == 0.25


@pytest.mark.parametrize(
    ("gpu", "ratio"),
    [("Fermi", 2), ("Kepler", 16), ("Maxwell", 20), ("Pascal", 32), ("Turing", 38), ("Tonga", 8)],
)
def test_lemeire_ratios_of_double_to_single_precision(gpu: str, ratio: float) -> None:
    classes = load_device(GPUS[gpu]).classes

    assert classes["mul.f64"].cpi / classes["mul.f32"].cpi == ratio
    division = 2.25 if gpu == "Tonga" else 3
    assert classes["div.f32"].cpi / classes["mul.f32"].cpi == division


@pytest.mark.parametrize(
    ("gpu", "clock_hz", "printed"),
    [
        pytest.param("Fermi", None, 89.6, id="Fermi"),
        pytest.param("Maxwell", None, 22.6, id="Maxwell"),
        pytest.param("Pascal", None, 160.6, id="Pascal"),
        pytest.param("Kepler", 1.033e9, 70.5, id="Kepler-at-1033-MHz"),
        pytest.param("Tonga", 1.008e9, 172, id="Tonga-at-1008-MHz"),
        pytest.param("Turing", None, 361, id="Turing-printed-as-bandwidth"),
        pytest.param("Turing", 1.125e9, 288, id="Turing-at-1125-MHz"),
    ],
)
def test_lemeire_table_6(gpu: str, clock_hz: float | None, printed: float) -> None:
    # rounded to the digits that are printed
    device = load_device(GPUS[gpu])
    rate = implied_bandwidth(device, clock_hz)

    assert rate / 1e9 == pytest.approx(printed, abs=0.5 if printed > 161 else 0.05)


def test_lemeire_table_6_at_the_clocks_of_the_boards_that_are_named() -> None:
    rates = {}
    for gpu in ("Kepler", "Tonga"):
        device = load_device(GPUS[gpu])
        rates[gpu] = implied_bandwidth(device)

    # 928 and 970 MHz: 10 and 4 % below what is printed
    assert rates["Kepler"] / 1e9 == pytest.approx(63.35, abs=0.005)
    assert rates["Tonga"] / 1e9 == pytest.approx(165.5, abs=0.05)


@pytest.mark.parametrize(
    ("throughput", "bandwidth", "printed"),
    [
        (89.6, 144, 62.2),
        (70.5, 86.4, 81.5),
        (22.57, 29, 77.8),
        (160.64, 192, 83.7),
        (172, 176, 97.7),
    ],
)
def test_lemeire_table_6_efficiencies(throughput: float, bandwidth: float, printed: float) -> None:
    assert 100 * throughput / bandwidth == pytest.approx(printed, abs=0.11)


def test_lemeire_table_6_efficiency_of_turing_is_not_that_of_its_numbers() -> None:
    assert pytest.approx(79.8, abs=0.05) == 100 * 288 / 361  # printed: 80.5
    assert pytest.approx(80.6, abs=0.05) == 100 * 360.96 / 448  # of the board's bandwidth


@pytest.mark.parametrize(("group", "most"), [(1, 32), (2, 64), (6, 60), (8, 64)])
def test_lemeire_table_9_ranges_of_occupancy(group: int, most: int) -> None:
    found = resident_groups(load_device("nvidia-k620"), work_items_per_group=32 * group)

    assert found.occupancy_max == most


# }}}

# {{{ Gajger & Czarnul


@pytest.mark.parametrize("slug", ["nvidia-gtx-970", "nvidia-titan-x", "nvidia-gtx-1070"])
def test_gajger_tables_4_1_and_6_1_are_in_the_catalogue(slug: str) -> None:
    device = load_device(slug)

    for name in ("add.f32", "fma.f32", "add.s32", "shift.s32"):
        assert (device.classes[name].cpi, device.classes[name].latency) == (0.25, 6)
    assert device.classes["ld.global.s32"].latency == 350
    assert device.lambda_k == 0.703787
    assert device.cores_per_compute_unit == 128
    assert device.schedulers_per_compute_unit == 4


@pytest.mark.parametrize(
    ("slug", "direction", "startup_ms", "share", "rate"),
    [
        ("nvidia-gtx-970", "h2d", 0.00397, 0.689, 15.8e9),
        ("nvidia-gtx-970", "d2h", 0.00516, 0.653, 15.8e9),
        ("nvidia-titan-x", "h2d", 0.00733, 0.844, 2e9),
        ("nvidia-titan-x", "d2h", 0.01168, 0.842, 2e9),
        ("nvidia-gtx-1070", "h2d", 0.0244, 0.452, 15.8e9),
        ("nvidia-gtx-1070", "d2h", 0.0283, 0.447, 15.8e9),
    ],
)
def test_gajger_table_6_2_links(
    slug: str, direction: str, startup_ms: float, share: float, rate: float
) -> None:
    link = load_device(slug).links[direction]  # pyright: ignore[reportArgumentType] - one of two

    assert 1e3 * link.startup_s == pytest.approx(startup_ms, abs=5e-6)
    assert (link.lambda_c, link.bandwidth_byte_per_s) == (share, rate)
    assert transfer_time(link, 1e9) == pytest.approx(link.startup_s + 1e9 / (rate * share))


@pytest.mark.parametrize(
    ("slug", "printed"),
    [("nvidia-gtx-970", 13.78), ("nvidia-titan-x", 13.03), ("nvidia-gtx-1070", 8.88)],
)
def test_gajger_table_6_1_throughput_is_that_of_the_memory_class(slug: str, printed: float) -> None:
    classes = load_device(slug).classes

    assert 128 / classes["ld.global.s32"].cpi == pytest.approx(printed, abs=0.005)


def test_gajger_saxpy2_is_bound_by_cores_from_an_intensity_of_32_on() -> None:
    # section 6.3, of powers of two from 1 to 4096 (the bound changes between 22 and 23)
    def bound(intensity: int) -> str:
        return resource_use(
            ins_cuda=23 + 4 * intensity,
            ins_issued=23 + 4 * intensity,
            gmem_bytes=384,
            sub_group_size=32,
            cores_per_compute_unit=128,
            schedulers_per_compute_unit=4,
            byte_per_cycle=13.78,
        ).bound

    assert [bound(2**k) for k in range(13)] == ["memory"] * 5 + ["cuda_cores"] * 8


# }}}

# {{{ Hong & Kim


@pytest.mark.parametrize(
    ("slug", "cores", "clock_hz", "operations", "printed"),
    [
        ("nvidia-8800-gtx", 128, 1.35e9, 2, 345.6),
        ("nvidia-8800-gt", 112, 1.5e9, 2, 336),
        ("nvidia-fx-5600", 128, 1.5e9, 2, 384),  # at a clock that is not printed for it
        ("nvidia-gtx-280", 240, 1.296e9, 3, 933),  # printed clock: 1.3 GHz
    ],
)
def test_hong_kim_table_3_peaks(
    slug: str, cores: int, clock_hz: float, operations: int, printed: float
) -> None:
    device = load_device(slug)

    assert cores * clock_hz * operations / 1e9 == pytest.approx(printed, abs=0.5)
    assert device.require_int("num_compute_units") * 8 == cores
    # the catalogue counts two operations at the clock that is printed
    expected = 2 * cores * device.require("clock_hz")
    assert device.peak_flops == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(
    ("computations", "memory", "printed"),
    [(71, 6, 11.8), (111, 30, 3.7), (10871, 819, 13.3), (12043, 4001, 3), (9780, 201, 48.7)],
)
def test_hong_kim_table_5_intensities(computations: int, memory: int, printed: float) -> None:
    assert computations / memory == pytest.approx(printed, abs=0.05)


def test_hong_kim_table_5_intensity_of_blackscholes_is_cut_off() -> None:
    assert pytest.approx(19.57, abs=0.005) == 137 / 7  # printed: 19


def test_hong_kim_table_6_is_in_the_catalogue() -> None:
    for slug, latency, uncoalesced in (
        ("nvidia-fx-5600", 420, 10),
        ("nvidia-8800-gtx", 420, 10),
        ("nvidia-8800-gt", 420, 10),
        ("nvidia-gtx-280", 450, 40),
    ):
        device = load_device(slug)
        assert device.mem_ld_cycles == latency
        assert device.departure_del_uncoal_cycles == uncoalesced
        assert device.departure_del_coal_cycles == 4


# }}}

# {{{ Ma, Chamberlain & Agrawal


def test_ma_example_takes_115_s_by_the_printed_equation() -> None:
    # section V prints 105 s for B_r = 65,536 and T = 4, with these coefficients of Eq. (15)
    assert 0.957 * math.sqrt(65536) / 4 + 53.9 == pytest.approx(115.1, abs=0.05)


def test_ma_figure_1_zigzag() -> None:
    assert scheduling_factor(15, 1, 15) == 1
    assert scheduling_factor(16, 1, 15) == 1.875
    assert scheduling_factor(31, 1, 15) == pytest.approx(45 / 31)


@pytest.mark.parametrize(("rows", "flat_from"), [(64, 8), (32, 16), (16, 32)])
def test_ma_figure_3_becomes_flat_where_the_step_latency_says(rows: int, flat_from: int) -> None:
    device = load_device("nvidia-gtx-480")

    # Eq. (13), (14): L/C = T S_D at the transition
    threshold = device.require("latency_steps") / device.require("chunk")
    assert flat_from * rows == threshold


def test_ma_example_has_four_active_groups() -> None:
    found = resident_groups(
        load_device("nvidia-gtx-480"),
        work_items_per_group=32,
        local_bytes_per_group=3 * 32 * 32 * 4,
    )

    assert found.active_groups == 4


# }}}
