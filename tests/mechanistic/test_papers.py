"""Printed numbers of the papers that follow from other printed numbers, and those that do not.

`docs/evidence/papers.md` lists which numbers are tested where, and which cannot be recomputed.
"""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from countperf.devices.parameters import load_device
from countperf.mechanistic.merpsys import transfer_time
from countperf.mechanistic.occupancy import resident_groups
from tests.mechanistic.builders import implied_bandwidth

GOLDEN = Path(__file__).parents[1] / "golden"

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


def test_lemeire_ratios_of_double_to_single_precision_and_of_divisions() -> None:
    printed = {"Fermi": 2, "Kepler": 16, "Maxwell": 20, "Pascal": 32, "Turing": 38, "Tonga": 8}
    for gpu, ratio in printed.items():
        classes = load_device(GPUS[gpu]).classes
        assert classes["mul.f64"].cpi / classes["mul.f32"].cpi == ratio
        division = 2.25 if gpu == "Tonga" else 3
        assert classes["div.f32"].cpi / classes["mul.f32"].cpi == division


@pytest.mark.parametrize(
    ("gpu", "clock_hz", "printed", "rounding"),
    [
        ("Fermi", None, 89.6, 0.05),
        ("Maxwell", None, 22.6, 0.05),
        ("Pascal", None, 160.6, 0.05),
        ("Kepler", 1.033e9, 70.5, 0.05),
        ("Tonga", 1.008e9, 172, 0.5),
        ("Turing", None, 361, 0.5),  # printed as the bandwidth
        ("Turing", 1.125e9, 288, 0.5),
        # at the clocks of the boards that are named: 10 and 4 % below what is printed
        ("Kepler", None, 63.35, 0.005),
        ("Tonga", None, 165.5, 0.05),
    ],
)
def test_lemeire_table_6(gpu: str, clock_hz: float | None, printed: float, rounding: float) -> None:
    rate = implied_bandwidth(load_device(GPUS[gpu]), clock_hz)
    assert rate / 1e9 == pytest.approx(printed, abs=rounding)


def test_lemeire_table_6_efficiencies() -> None:
    for throughput, bandwidth, printed in (
        (89.6, 144, 62.2),
        (70.5, 86.4, 81.5),
        (22.57, 29, 77.8),
        (160.64, 192, 83.7),
        (172, 176, 97.7),
    ):
        assert 100 * throughput / bandwidth == pytest.approx(printed, abs=0.11)
    # that of Turing is not that of its numbers; printed: 80.5
    assert pytest.approx(79.8, abs=0.05) == 100 * 288 / 361
    assert pytest.approx(80.6, abs=0.05) == 100 * 360.96 / 448  # of the board's bandwidth


def test_lemeire_table_9_ranges_of_occupancy() -> None:
    for group, most in ((1, 32), (2, 64), (6, 60), (8, 64)):
        resident = resident_groups(load_device("nvidia-k620"), work_items_per_group=32 * group)
        assert resident.occupancy_max == most


AVERAGES = {
    "10": (22, 36, 40, 88, 30, 29, 104, 65),
    "11": (23, 44, 47, 88, 38, 27, 136, 86),
    "12": (27.8, 78.7, 90.2, 69.7, 83.3, 41.0, 104.0, 88.2),
}
"""Last rows of Tables 10 to 12, the first of each pair."""


def test_lemeire_averages_of_tables_10_to_12() -> None:
    lines = (GOLDEN / "lemeire_tables_10_to_12.csv").read_text(encoding="utf-8").splitlines()
    for table, printed in AVERAGES.items():
        rows = [line.split(",")[2:] for line in lines if line.startswith(f"{table},")]
        means = [sum(map(float, column)) / 14 for column in zip(*rows, strict=True)]
        # cells and averages are rounded
        assert means == pytest.approx(printed, abs=1.0 if table != "12" else 0.1)
    # the conclusion's 24 % of the pipeline model and 52.9 % of Volkov's
    assert [sum(row[i] for row in AVERAGES.values()) / 3 for i in (0, 1)] == pytest.approx(
        [24, 52.9], abs=0.5
    )


def test_lemeire_table_9_has_214_experiments() -> None:
    groups = [(2, 64), (1, 32), (8, 64), (2, 64), (1, 32), *[(8, 64)] * 6, *[(6, 60)] * 3]
    assert sum(most // group for group, most in groups) == 214  # section 6.3 prints 226


@pytest.mark.parametrize(
    ("slug", "throughput", "rate", "links"),
    [
        ("nvidia-gtx-970", 13.78, 15.8e9, {"h2d": (0.00397, 0.689), "d2h": (0.00516, 0.653)}),
        ("nvidia-titan-x", 13.03, 2e9, {"h2d": (0.00733, 0.844), "d2h": (0.01168, 0.842)}),
        ("nvidia-gtx-1070", 8.88, 15.8e9, {"h2d": (0.0244, 0.452), "d2h": (0.0283, 0.447)}),
    ],
)
def test_gajger_tables_4_1_6_1_and_6_2(
    slug: str, throughput: float, rate: float, links: dict[str, tuple[float, float]]
) -> None:
    device = load_device(slug)
    for name in ("add.f32", "fma.f32", "add.s32", "shift.s32"):
        assert (device.classes[name].cpi, device.classes[name].latency) == (0.25, 6)
    assert device.classes["ld.global.s32"].latency == 350
    assert 128 / device.classes["ld.global.s32"].cpi == pytest.approx(throughput, abs=0.005)
    assert device.lambda_k == 0.703787
    assert (device.cores_per_compute_unit, device.schedulers_per_compute_unit) == (128, 4)
    for direction, (startup_ms, share) in links.items():
        link = device.links[direction]  # pyright: ignore[reportArgumentType] - one of two
        assert 1e3 * link.startup_s == pytest.approx(startup_ms, abs=5e-6)
        assert (link.lambda_c, link.bandwidth_byte_per_s) == (share, rate)
        assert transfer_time(link, 1e9) == pytest.approx(link.startup_s + 1e9 / (rate * share))


@pytest.mark.parametrize(
    ("slug", "cores", "clock_hz", "operations", "peak", "latency", "uncoalesced"),
    [
        ("nvidia-8800-gtx", 128, 1.35e9, 2, 345.6, 420, 10),
        ("nvidia-8800-gt", 112, 1.5e9, 2, 336, 420, 10),
        ("nvidia-fx-5600", 128, 1.5e9, 2, 384, 420, 10),  # at a clock that is not printed for it
        ("nvidia-gtx-280", 240, 1.296e9, 3, 933, 450, 40),  # printed clock: 1.3 GHz
    ],
)
def test_hong_kim_tables_3_and_6(
    slug: str,
    cores: int,
    clock_hz: float,
    operations: int,
    peak: float,
    latency: float,
    uncoalesced: float,
) -> None:
    device = load_device(slug)
    assert cores * clock_hz * operations / 1e9 == pytest.approx(peak, abs=0.5)
    assert device.require_int("num_compute_units") * 8 == cores
    # the catalogue counts two operations at the clock that is printed
    expected = 2 * cores * device.require("clock_hz")
    assert device.peak_flops == pytest.approx(expected, rel=1e-12)
    assert (device.mem_ld_cycles, device.departure_del_uncoal_cycles) == (latency, uncoalesced)
    assert device.departure_del_coal_cycles == 4


def test_hong_kim_table_5_intensities() -> None:
    for computations, memory, printed in (
        *((71, 6, 11.8), (111, 30, 3.7), (10871, 819, 13.3), (12043, 4001, 3), (9780, 201, 48.7)),
        (137, 7, 19.57),  # printed: 19, cut off
    ):
        assert computations / memory == pytest.approx(printed, abs=0.05)


def test_ma_figure_3_and_the_example() -> None:
    # section V prints 105 s for B_r = 65,536 and T = 4, with these coefficients of Eq. (15)
    assert 0.957 * math.sqrt(65536) / 4 + 53.9 == pytest.approx(115.1, abs=0.05)
    # figure 3 becomes flat at these work items per core, by Eq. (13), (14): L/C = T S_D
    device = load_device("nvidia-gtx-480")
    threshold = device.require("latency_steps") / device.require("chunk")
    assert [threshold / rows for rows in (64, 32, 16)] == [8, 16, 32]
    resident = resident_groups(
        device, work_items_per_group=32, local_bytes_per_group=3 * 32 * 32 * 4
    )
    assert resident.active_groups == 4
