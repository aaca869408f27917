"""MERPSYS: the worked examples, calibration, transfers, applications, refused input."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from countperf.errors import DeviceParameterError, ModelNotApplicableError, ParameterError
from countperf.hardware.parameters import (
    DeviceParameters,
    InstructionClass,
    LinkParameters,
    declare_device,
)
from countperf.mechanistic.merpsys import (
    MerpsysModel,
    bytes_per_cycle,
    critical_path,
    resource_use,
    transfer_time,
)
from countperf.mechanistic.profile import (
    InstructionGraph,
    KernelProfile,
    LaunchConfiguration,
    ProfiledKernel,
)

Edge = tuple[int, int, float]

LAMBDA_K = 0.703787
"""Published for Maxwell."""

EXACT = 1e-14
PCIE_3_H2D = LinkParameters(startup_s=3.9687e-6, bandwidth_byte_per_s=15.8e9, lambda_c=0.689)
PCIE_3_D2H = LinkParameters(startup_s=5.1569e-6, bandwidth_byte_per_s=15.8e9, lambda_c=0.653)
BANDWIDTH: dict[str, float] = {
    "mem_clock_hz": 1753e6,
    "bus_width_bits": 256,
    "data_rate": 4,
    "num_compute_units": 13,
    "clock_hz": 1253e6,
}


def _gtx_970(**changes: Any) -> DeviceParameters:
    values: dict[str, Any] = {
        "num_compute_units": 13,
        "clock_hz": 1253e6,
        "sub_group_size": 32,
        "cores_per_compute_unit": 128,
        "schedulers_per_compute_unit": 4,
        "mem_clock_hz": 1753e6,
        "bus_width_bits": 256,
        "data_rate": 4.0,
        "max_sub_groups_per_compute_unit": 64,
        "links": {"h2d": PCIE_3_H2D, "d2h": PCIE_3_D2H},
    }
    return declare_device("gtx-970", **{**values, **changes})


def _saxpy(repeats: int, **changes: Any) -> KernelProfile:
    values: dict[str, Any] = {
        "name": "saxpy2",
        "ins_cuda": 23 + 4 * repeats,
        "ins_issued": 23 + 4 * repeats,
        "gmem_bytes": 3 * 4 * 32,
        "latency_bound": 942 + 24 * repeats,
    }
    return KernelProfile(**{**values, **changes})


LAUNCH = LaunchConfiguration(work_items_per_group=256, num_groups=39063, occupancy=64)
KERNEL = ProfiledKernel(profile=_saxpy(32), launch=LAUNCH)


@pytest.mark.parametrize(
    ("mem_clock_hz", "width", "rate", "units", "clock_hz", "found"),
    [
        (1753e6, 256, 4, 13, 1253e6, 13.775185708146601),
        (1753e6, 384, 4, 24, 1076e6, 13.033457249070633),
        (2002e6, 256, 4, 15, 1923e6, 8.8838966892009),
    ],
    ids=["GTX 970", "Titan X", "GTX 1070"],
)
def test_bytes_per_cycle_of_the_published_devices(
    mem_clock_hz: float, width: int, rate: float, units: int, clock_hz: float, found: float
) -> None:
    assert bytes_per_cycle(
        mem_clock_hz=mem_clock_hz,
        bus_width_bits=width,
        data_rate=rate,
        num_compute_units=units,
        clock_hz=clock_hz,
    ) == pytest.approx(found, rel=EXACT)


def _prologue() -> list[Edge]:
    special: dict[int, float] = {7: 10, 14: 0, 15: 10, 16: 0, 17: 350}
    sequence: list[Edge] = [(i, i + 1, special.get(i, 3.0)) for i in range(18)]
    used = "1,3 1,4 2,4 1,5 3,5 4,5 5,6 6,7 5,9 8,10 5,11 9,12 11,14 12,14 10,15 12,17 14,17"
    pairs = [tuple(map(int, pair.split(","))) for pair in used.split()]
    return [*sequence, *((i, j, 6.0) for i, j in pairs)]


LOOP_BODY: list[Edge] = [(0, 1, 3), (0, 1, 6), (1, 2, 3), (2, 3, 0), (1, 3, 6), (3, 4, 12)]
EPILOGUE: list[Edge] = [
    *((0, 1, 3.0), (1, 2, 3.0), (1, 2, 6.0), (2, 3, 3.0), (2, 3, 6.0), (1, 3, 6.0)),
    *((3, 4, 350.0), (4, 5, 3.0), (4, 5, 6.0), (5, 6, 3.0), (6, 7, 150.0)),
]


def test_the_critical_path_of_saxpy2() -> None:
    paths = (
        critical_path(19, _prologue()),
        critical_path(5, LOOP_BODY),
        critical_path(8, EPILOGUE),
    )

    assert paths == (418, 24, 524)
    assert paths[0] + paths[2] == 942


@pytest.mark.parametrize(
    ("repeats", "cycles", "bound"),
    [
        (1, 27.876212207644045, "memory"),
        (22, 27.876212207644045, "memory"),
        (23, 28.75, "cuda_cores"),
        (32, 37.75, "cuda_cores"),
        (1024, 1029.75, "cuda_cores"),
        (4096, 4101.75, "cuda_cores"),
    ],
)
def test_the_busiest_resource_of_saxpy2(repeats: int, cycles: float, bound: str) -> None:
    found = resource_use(
        ins_cuda=23 + 4 * repeats,
        ins_issued=23 + 4 * repeats,
        gmem_bytes=384,
        sub_group_size=32,
        cores_per_compute_unit=128,
        schedulers_per_compute_unit=4,
        byte_per_cycle=13.775185708146601,
    )

    assert found.bound == bound
    assert 1 / found.wpc == pytest.approx(cycles, rel=EXACT)
    assert found.cycles["cuda_cores"] == found.cycles["schedulers"]


@pytest.mark.parametrize(
    ("occupancy", "repeats", "wpc", "bound"),
    [
        (64, 1, 0.035872879448298436, "memory"),
        (8, 32, 8 / 1710, "latency"),
        (64, 32, 1 / 37.75, "compute"),
    ],
)
def test_throughput_of_saxpy2(occupancy: float, repeats: int, wpc: float, bound: str) -> None:
    model = MerpsysModel(device=_gtx_970())
    estimate = model.estimate(_saxpy(repeats), replace(LAUNCH, occupancy=occupancy))

    assert estimate.results["wpc"] == pytest.approx(wpc, rel=EXACT)
    assert estimate.bound == bound
    assert sum(estimate.breakdown.values()) == pytest.approx(estimate.time_s, rel=EXACT)


def test_the_time_of_saxpy2_with_the_published_factor() -> None:
    prediction = MerpsysModel(device=_gtx_970(lambda_k=LAMBDA_K)).predict(KERNEL)

    assert prediction.time_s == pytest.approx(1.0290509377916576e-3, rel=EXACT)
    assert (prediction.model, prediction.bound) == ("merpsys", "compute")


@pytest.mark.parametrize(
    ("link", "seconds"), [(PCIE_3_H2D, 3.678345433846521e-3), (PCIE_3_D2H, 3.8821026421443387e-3)]
)
def test_the_time_of_a_transfer(link: LinkParameters, seconds: float) -> None:
    assert transfer_time(link, 4e7) == pytest.approx(seconds, rel=EXACT)
    assert transfer_time(link, 0) == link.startup_s


@given(
    st.floats(0.1, 10), st.floats(0.1, 10), st.integers(1, 8), st.floats(1, 64), st.floats(1, 64)
)
def test_time_is_inverse_to_factor_clock_and_compute_units_and_falls_with_occupancy(
    factor: float, speed: float, units: int, first: float, second: float
) -> None:
    low, high = sorted((first, second))
    device = _gtx_970()
    # bytes per cycle stay as they are where the memory clock grows alike
    scaled = device.replaced(
        clock_hz=1253e6 * speed, num_compute_units=13 * units, mem_clock_hz=1753e6 * speed * units
    )

    def time(parameters: DeviceParameters, occupancy: float, lambda_k: float = 1.0) -> float:
        model = MerpsysModel(device=parameters.replaced(lambda_k=lambda_k))
        return model.estimate(_saxpy(8), replace(LAUNCH, occupancy=occupancy)).time_s

    assert time(device, low, factor) == pytest.approx(time(device, low) / factor, rel=1e-12)
    assert time(scaled, low) == pytest.approx(time(device, low) / speed / units, rel=1e-12)
    assert time(device, high) <= time(device, low)


def test_what_a_profile_does_not_state_is_derived_from_its_instructions() -> None:
    classes = {
        "C": InstructionClass(name="C", subsystem="alu", cpi=0.25, latency=6, kind="compute"),
        "M": InstructionClass(name="M", subsystem="mem", cpi=9, latency=350, kind="memory"),
    }
    graph = InstructionGraph("MCCM", [(0, 1), (1, 2), (2, 3)])
    device = _gtx_970(
        classes=classes, mem_clock_hz=None, data_rate=None, bandwidth_byte_per_s=224.384e9
    )
    profile = KernelProfile(name="k", idg=graph, load_bytes_per_sub_group=128)

    results = MerpsysModel(device=device).estimate(profile, LAUNCH).results

    assert results["latency_bound"] == 350 + 6 + 6 + 350
    assert results["cycles[cuda_cores]"] == 2 * 32 / 128
    assert results["cycles[schedulers]"] == 1
    assert results["cycles[memory]"] == pytest.approx(256 / 13.775185708146601, rel=EXACT)


def _use(**changes: float) -> Callable[[], object]:
    values = {
        "ins_cuda": 27.0,
        "ins_issued": 27.0,
        "gmem_bytes": 384.0,
        "sub_group_size": 32.0,
        "cores_per_compute_unit": 128.0,
        "schedulers_per_compute_unit": 4.0,
        "byte_per_cycle": 13.8,
    }
    return lambda: resource_use(**{**values, **changes})


def _model(profile: KernelProfile, occupancy: float = 64, **device: Any) -> Callable[[], object]:
    launch = replace(LAUNCH, occupancy=occupancy)
    return lambda: MerpsysModel(device=_gtx_970(**device)).estimate(profile, launch)


@pytest.mark.parametrize(
    ("call", "parameter"),
    [
        *(
            pytest.param(
                lambda name=name: bytes_per_cycle(**{**BANDWIDTH, name: 0}), name, id=f"no {name}"
            )
            for name in BANDWIDTH
        ),
        *(
            pytest.param(_use(**{name: value}), name, id=f"{name} {value}")
            for name, value in (
                ("ins_cuda", -1),
                ("ins_issued", -1),
                ("gmem_bytes", -1),
                ("sub_group_size", 0),
                ("cores_per_compute_unit", 0),
                ("schedulers_per_compute_unit", 0),
                ("byte_per_cycle", 0),
            )
        ),
        pytest.param(_use(ins_cuda=0, ins_issued=0, gmem_bytes=0), "ins_cuda", id="no work"),
        pytest.param(lambda: _saxpy(1, ins_cuda=-1), "ins_cuda", id="negative count"),
        pytest.param(lambda: _saxpy(1, latency_bound=0), "latency_bound", id="no latency"),
        pytest.param(_model(_saxpy(1), occupancy=65), "occupancy", id="above the limit"),
        pytest.param(lambda: critical_path(2, [(1, 0, 3)]), "edges", id="backwards"),
        pytest.param(lambda: critical_path(2, [(1, 1, 3)]), "edges", id="cycle"),
        pytest.param(lambda: critical_path(2, [(0, 2, 3)]), "edges", id="outside"),
        pytest.param(lambda: critical_path(2, [(0, 1, -3)]), "edges", id="negative weight"),
        pytest.param(lambda: critical_path(0, []), "num_nodes", id="no node"),
        pytest.param(lambda: transfer_time(PCIE_3_H2D, -1), "n_bytes", id="negative bytes"),
    ],
)
def test_refused_input(call: Callable[[], object], parameter: str) -> None:
    with pytest.raises(ParameterError) as caught:
        call()

    assert caught.value.parameter == parameter


@pytest.mark.parametrize(
    ("absent", "parameter"),
    [
        ("ins_cuda", "alpha"),
        ("ins_issued", "alpha"),
        ("gmem_bytes", "gmem_bytes"),
        ("latency_bound", "latency_app"),
    ],
)
def test_a_profile_that_lacks_an_input_is_refused(absent: str, parameter: str) -> None:
    with pytest.raises(ModelNotApplicableError) as caught:
        _model(_saxpy(1, **{absent: None}))()

    assert caught.value.parameter == parameter


@pytest.mark.parametrize(
    "field",
    ["cores_per_compute_unit", "schedulers_per_compute_unit", "mem_clock_hz", "bus_width_bits"],
)
def test_a_constant_that_the_device_lacks_is_named(field: str) -> None:
    with pytest.raises(DeviceParameterError) as caught:
        _model(_saxpy(1), 64, **{field: None})()

    assert caught.value.field == field


@pytest.mark.parametrize(
    ("values", "field"),
    [
        ({"startup_s": -1.0, "bandwidth_byte_per_s": 1.0}, "links.startup_s"),
        ({"startup_s": 0.0, "bandwidth_byte_per_s": 0.0}, "links.bandwidth_byte_per_s"),
        (
            {"startup_s": 0.0, "bandwidth_byte_per_s": 1.0, "lambda_c": 0.0},
            "links.lambda_c",
        ),
    ],
)
def test_an_impossible_link_is_refused(values: dict[str, Any], field: str) -> None:
    with pytest.raises(DeviceParameterError) as caught:
        LinkParameters(**values)

    assert caught.value.field == field
