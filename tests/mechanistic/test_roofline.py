"""Roofline: worked examples, scaling, refusals."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from countperf.errors import DeviceParameterError, ModelNotApplicableError, ParameterError
from countperf.hardware.parameters import declare_device
from countperf.mechanistic.profile import KernelProfile, ProfiledKernel
from countperf.mechanistic.roofline import (
    ByteRooflineModel,
    RooflineModel,
    byte_roof,
    roof,
)
from tests.mechanistic.builders import example_device, example_profile, launch_at, make_class

POSITIVE = st.floats(0.01, 100)


def test_example_kernel_is_exactly_at_the_ridge() -> None:
    found = roof({"C": 4, "M": 2}, example_device())

    assert (found.wpc, found.bound, found.kind) == (0.25, "compute", "compute")
    assert dict(found.busy) == {"compute": 4, "memory": 4}


def test_issue_limit() -> None:
    found = roof({"C": 4, "M": 2}, example_device(), issue_limit=1, instructions_per_sub_group=6)

    assert (found.wpc, found.bound) == (1 / 6, "issue")


def test_mix_of_three_subsystems() -> None:
    classes = {
        "a": make_class("a", "alu", 0.25, 6),
        "s": make_class("s", "sfu", 1, 15),
        "d": make_class("d", "dp", 7.5, 42),
    }

    found = roof({"a": 3, "s": 2, "d": 1.5}, declare_device(classes=classes))

    assert (found.wpc, found.bound, found.kind) == (1 / 11.25, "dp", "compute")
    assert dict(found.busy) == {"alu": 0.75, "sfu": 2, "dp": 11.25}


def test_byte_form() -> None:
    found = byte_roof(
        total_flops=2e9, total_bytes=1.2e10, peak_flops=1e12, bandwidth_byte_per_s=1e11
    )

    assert found.time_s == pytest.approx(0.12)
    assert (found.bound, found.ridge) == ("memory", 10)
    assert found.intensity == pytest.approx(1 / 6)


@given(c=POSITIVE, m=POSITIVE, cpi_c=POSITIVE, cpi_m=POSITIVE, scale=st.floats(0.1, 10))
@settings(max_examples=60, deadline=None)
def test_scaling_and_the_two_subsystem_form(
    c: float, m: float, cpi_c: float, cpi_m: float, scale: float
) -> None:
    device = declare_device(
        classes={
            "C": make_class("C", "compute", cpi_c, 4),
            "M": make_class("M", "memory", cpi_m, 6, "memory"),
        }
    )
    found = roof({"C": c, "M": m}, device)

    assert roof({"C": scale * c, "M": scale * m}, device).wpc == pytest.approx(found.wpc / scale)
    assert roof({"C": c + 1, "M": m}, device).wpc <= found.wpc
    limited = roof({"C": c, "M": m}, device, issue_limit=1, instructions_per_sub_group=c + m)
    assert limited.wpc <= found.wpc
    # Lemeire et al., Eq. (1), computations per cycle over computations
    assert min(1 / cpi_c, c / m / cpi_m) / c == pytest.approx(found.wpc)


@given(flops=POSITIVE, bytes_=POSITIVE, peak=POSITIVE, bandwidth=POSITIVE, scale=st.floats(0.1, 10))
@settings(max_examples=40, deadline=None)
def test_a_faster_device_takes_that_much_less(
    flops: float, bytes_: float, peak: float, bandwidth: float, scale: float
) -> None:
    slow, fast = (
        byte_roof(
            total_flops=flops,
            total_bytes=bytes_,
            peak_flops=peak * factor,
            bandwidth_byte_per_s=bandwidth * factor,
        ).time_s
        for factor in (1, scale)
    )

    assert fast == pytest.approx(slow / scale)


@pytest.mark.parametrize(
    ("subsystems", "limit", "bound"),
    [
        pytest.param(("zeta", "memory"), None, "memory", id="memory before others"),
        pytest.param(("zeta", "eta"), None, "eta", id="others by name"),
        pytest.param(("zeta", "compute"), None, "compute", id="compute first"),
        pytest.param(("zeta", "eta"), 1.0, "eta", id="issue last"),
    ],
)
def test_ties(subsystems: tuple[str, str], limit: float | None, bound: str) -> None:
    classes = {name: make_class(name, name, 2, 4) for name in subsystems}
    counts = dict.fromkeys(subsystems, 1.0)

    found = roof(
        counts, declare_device(classes=classes), issue_limit=limit, instructions_per_sub_group=2
    )

    assert found.bound == bound


def test_prediction_of_the_model() -> None:
    device = example_device()
    kernel = ProfiledKernel(profile=example_profile(), launch=launch_at(1))

    prediction = RooflineModel(device=device).predict(kernel)

    assert prediction.time_s == pytest.approx(1300 * 4 / (13 * 1.253e9))
    assert (prediction.bound, prediction.model) == ("compute", "roofline")
    assert prediction.breakdown == {"compute": prediction.time_s}


def test_prediction_in_bytes_with_a_launch_overhead() -> None:
    device = declare_device(peak_flops=1e12, bandwidth_byte_per_s=1e11, launch_overhead_s=1.0)
    profile = KernelProfile(name="k", total_flops=2e9, total_bytes=1.2e10)

    prediction = ByteRooflineModel(device=device).predict(
        ProfiledKernel(profile=profile, launch=launch_at(1))
    )

    assert prediction.time_s == pytest.approx(1.12)
    assert prediction.bound == "launch"
    assert prediction.breakdown == pytest.approx({"launch": 1.0, "memory": 0.12})


@pytest.mark.parametrize(
    ("counts", "options", "error", "parameter"),
    [
        pytest.param({"C": -1}, {}, ParameterError, "alpha[C]", id="negative count"),
        pytest.param({"C": float("nan")}, {}, ParameterError, "alpha[C]", id="NaN"),
        pytest.param({"C": 0, "M": 0}, {}, ParameterError, "alpha", id="no work"),
        pytest.param({"C": 1}, {"issue_limit": 0}, ParameterError, "issue_limit", id="no issue"),
        pytest.param(
            {"C": 1},
            {"issue_limit": 1},
            ModelNotApplicableError,
            "instructions_per_sub_group",
            id="issue limit without a count",
        ),
    ],
)
def test_bad_counts_are_refused(
    counts: dict[str, float], options: dict[str, Any], error: type[ParameterError], parameter: str
) -> None:
    with pytest.raises(error) as caught:
        roof(counts, example_device(), **options)

    assert caught.value.parameter == parameter


def test_an_unknown_class_is_named() -> None:
    with pytest.raises(DeviceParameterError) as caught:
        roof({"X": 1}, example_device())

    assert caught.value.field == "classes.X"


@pytest.mark.parametrize(
    ("name", "value", "parameter"),
    [
        pytest.param("bandwidth_byte_per_s", 0, "bandwidth_byte_per_s", id="zero bandwidth"),
        pytest.param("peak_flops", -1, "peak_flops", id="negative peak"),
        pytest.param("total_bytes", -1, "total_bytes", id="negative bytes"),
        pytest.param("total_flops", 0, "total_flops", id="no work"),
    ],
)
def test_bad_bytes_are_refused(name: str, value: float, parameter: str) -> None:
    values = {"total_flops": 1, "total_bytes": 0, "peak_flops": 1, "bandwidth_byte_per_s": 1}

    with pytest.raises(ParameterError) as caught:
        byte_roof(**{**values, name: value})

    assert caught.value.parameter == parameter


@pytest.mark.parametrize(
    ("model", "field"),
    [
        pytest.param(RooflineModel, "alpha", id="counts"),
        pytest.param(ByteRooflineModel, "total_flops", id="flop"),
    ],
)
def test_what_the_kernel_lacks_is_named(
    model: type[RooflineModel | ByteRooflineModel], field: str
) -> None:
    kernel = ProfiledKernel(profile=KernelProfile(name="empty"), launch=launch_at(1))

    with pytest.raises(ModelNotApplicableError) as caught:
        model(device=example_device()).predict(kernel)

    assert caught.value.parameter == field
