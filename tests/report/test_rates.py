"""Rates that weights imply."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from countperf.hardware.parameters import InstructionClass, declare_device
from rental.rates import implied_rates, implied_rates_text


@dataclass(frozen=True)
class Weight:
    feature: str
    value_s: float


def _class(name: str, cpi: float) -> InstructionClass:
    return InstructionClass(name=name, subsystem="alu", cpi=cpi, latency=4.0, kind="compute")


DEVICE = declare_device(
    clock_hz=1e9,
    num_compute_units=10,
    sub_group_size=32,
    bandwidth_byte_per_s=1e12,
    classes={
        name: _class(name, cpi)
        for name, cpi in (("add.f32", 0.5), ("rsqrt.f64", 8.0), ("ld.local.s32", 1.0))
    },
)


@pytest.mark.parametrize(
    ("feature", "value_s", "rate", "measured"),
    [
        ("flop.add.f32", 1e-12, 1e12, 32 * 10 * 1e9 / 0.5),
        ("flop.special.f64", 1e-10, 1e10, 32 * 10 * 1e9 / 8),
        ("flop.mul.f32", 1e-12, 1e12, None),
        ("gmem.load.32.stride1", 8e-12, 5e11, 1e12),
        ("gmem.store.64.4ofn", 8e-12, 1e12, 1e12),
        ("lmem.load.32", 4e-12, 1e12, 32 * 10 * 1e9 * 4),
        ("barrier.local", 1e-11, 1e11, None),
    ],
)
def test_a_weight_and_what_was_measured(
    feature: str, value_s: float, rate: float, measured: float | None
) -> None:
    (found,) = implied_rates([Weight(feature, value_s)], DEVICE)

    assert found.rate == pytest.approx(rate)
    assert found.measured == (None if measured is None else pytest.approx(measured))


def test_launches_and_zeros_imply_no_rate() -> None:
    assert implied_rates([Weight("launches", 1e-6), Weight("flop.add.f32", 0.0)], DEVICE) == ()


def test_what_cannot_be_is_marked() -> None:
    weights = [Weight("gmem.load.32.stride1", 1e-12), Weight("flop.add.f32", -1e-12)]

    lines = implied_rates_text(implied_rates(weights, DEVICE)).splitlines()

    assert "faster than measured" in lines[1]
    assert "negative" in lines[2]
