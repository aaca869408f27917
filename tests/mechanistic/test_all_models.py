"""Rules for every mechanistic model: worked times, parts that add up, inputs that lack."""

from __future__ import annotations

from dataclasses import replace

import pytest

from countperf.devices.parameters import DeviceParameters
from countperf.errors import DeviceParameterError, ModelNotApplicableError, ParameterError
from countperf.mechanistic import profile as base
from countperf.mechanistic.predict_all import ALL, build_models, model_names
from tests.mechanistic.builders import (
    EXAMPLE_GRAPH,
    example_profile,
    full_device,
    full_profile,
    launch_at,
)


def models(device: DeviceParameters) -> dict[str, base.MechanisticModel]:
    """Return every model in every variant, by name."""
    return {model.model: model for model in build_models(ALL, device)}


NAMES = model_names()
KERNEL = base.ProfiledKernel(profile=full_profile(), launch=launch_at(4))


@pytest.mark.parametrize(
    ("name", "alpha", "occupancy", "cycles", "bound"),
    [
        ("roofline", None, 1, 4, "compute"),
        ("volkov", None, 20, 80, "compute"),
        ("transit", None, 5, 28, "latency"),
        ("transit", {"C": 1, "M": 2}, 20, 80, "memory"),
        ("gpumech-gto", None, 3, 16, "latency"),
        ("gpumech-gto", None, 5, 20, "issue"),
        ("gpumech-rr_corrected", None, 4, 22, "latency"),
        ("wfg-original", None, 2, 76 / 3, "latency"),
        ("wfg-corrected", None, 2, 24, "latency"),
        ("mwp-cwp-restated", None, 5, 26, "memory"),
        ("mwp-cwp-corrected", None, 5, 33, "latency"),
    ],
)
def test_time_of_the_example(
    name: str, alpha: dict[str, float] | None, occupancy: float, cycles: float, bound: str
) -> None:
    """`cycles` are those of as many sub-groups as are resident, by hand."""
    profile = example_profile(**({"alpha": alpha} if alpha else {}))
    kernel = base.ProfiledKernel(profile=profile, launch=launch_at(occupancy))
    prediction = models(full_device())[name].predict(kernel)
    time_s = 1300 * cycles / occupancy / (13 * 1.253e9)
    assert prediction.time_s == pytest.approx(time_s, rel=1e-12)
    assert (prediction.model, prediction.bound) == (name, bound)


def test_shares_of_the_example() -> None:
    def predicted(name: str, occupancy: float) -> base.MechanisticPrediction:
        kernel = base.ProfiledKernel(profile=example_profile(), launch=launch_at(occupancy))
        return models(full_device())[name].predict(kernel)

    volkov = predicted("volkov", 5)
    assert volkov.results["ridge_occupancy"] == 6.25
    assert volkov.breakdown == pytest.approx(
        {"compute": float(volkov.time_s) * 0.8, "latency": float(volkov.time_s) * 0.2}
    )
    transit = predicted("transit", 5).results
    assert (transit["waiting"], transit["computing"]) == pytest.approx((15 / 7, 20 / 7))


@pytest.mark.parametrize(
    ("name", "occupancy", "shares"),
    [
        # C at 0 and 4, M at 8, C at 14 and 15, M at 19 until 25
        ("pipeline-rr", 1, {"C": 12 / 25, "M": 12 / 25}),
        # two intervals with two instructions and six cycles of stall, of 16 cycles
        ("gpumech-gto", 3, {"M": 12 / 16}),
        # of 38/3 cycles: blocks of 4 and 2 for 2 each; 10/3 twice for a memory instruction of 1
        ("wfg-original", 2, {"results of computations": 6 / 38, "results of memory": 14 / 38}),
        ("volkov", 1, {}),
    ],
)
def test_stalls_of_the_example_by_cause(
    name: str, occupancy: float, shares: dict[str, float]
) -> None:
    kernel = base.ProfiledKernel(profile=example_profile(), launch=launch_at(occupancy))
    prediction = models(full_device())[name].predict(kernel)
    stalls = {cause: part / float(prediction.time_s) for cause, part in prediction.stalls.items()}
    assert stalls == pytest.approx(shares)


@pytest.mark.parametrize("name", NAMES)
def test_time_is_the_sum_of_its_parts_and_limits_are_kept(name: str) -> None:
    model = models(full_device(launch_overhead_s=1e-6))[name]
    prediction = model.predict(KERNEL)
    assert float(prediction.time_s) > 1e-6
    parts = sum(map(float, prediction.breakdown.values()))
    assert parts == pytest.approx(float(prediction.time_s), rel=1e-12)
    assert prediction.breakdown["launch"] == 1e-6
    crowded = [launch_at(65)]
    if "roofline" not in name:
        crowded.append(replace(launch_at(None), active_groups=65))
    for launch in crowded:
        with pytest.raises(ParameterError) as caught:
            model.estimate(base.ProfiledKernel(full_profile(), launch))
        assert caught.value.parameter == "occupancy"


@pytest.mark.parametrize("name", NAMES)
def test_what_kernel_or_device_lack_is_named(name: str) -> None:
    with pytest.raises(ModelNotApplicableError, match="empty") as caught:
        models(full_device())[name].estimate(
            base.ProfiledKernel(base.KernelProfile(name="empty"), launch_at(4))
        )
    assert caught.value.parameter is not None
    assert name in str(caught.value)
    empty = DeviceParameters(slug="empty", name="empty")
    with pytest.raises(DeviceParameterError) as lacking:
        models(empty)[name].estimate(base.ProfiledKernel(full_profile(), launch_at(4)))
    assert lacking.value.field is not None
    zeros = dict.fromkeys(("total_flops", "total_bytes", "work", "span", "transactions"), 0)
    nothing = full_profile(
        alpha={"C": 0, "M": 0}, idg=None, alpha_mem_coal=0, gmem_bytes=0, **zeros
    )
    with pytest.raises(ParameterError):
        models(full_device())[name].estimate(base.ProfiledKernel(nothing, launch_at(4)))


@pytest.mark.parametrize("name", NAMES)
def test_a_kernel_without_memory_instructions(name: str) -> None:
    absent = dict.fromkeys(("alpha_mem_coal", "gmem_bytes", "total_bytes", "transactions"), 0)
    profile = full_profile(alpha={"C": 4}, idg=base.InstructionGraph("CCCC"), **absent)
    model = models(full_device())[name]
    if "mwp" in name or name == "transit":  # they divide by their number
        with pytest.raises(ModelNotApplicableError) as caught:
            model.estimate(base.ProfiledKernel(profile, launch_at(4)))
        assert caught.value.parameter == "alpha_mem"
        return
    estimate = model.estimate(base.ProfiledKernel(profile, launch_at(4)))
    assert estimate.time_s > 0
    assert "memory" not in {part for part, seconds in estimate.breakdown.items() if seconds}


def test_a_prediction_says_what_the_model_ignores() -> None:
    apart = (EXAMPLE_GRAPH, base.InstructionGraph("C"))
    profile = example_profile(alpha={"C": 4, "B": 1}, sub_group_idgs=apart)
    kernel = base.ProfiledKernel(profile=profile, launch=launch_at(1))
    assert models(full_device())["roofline"].predict(kernel).ignored == ("barriers", "divergence")
    profile = base.KernelProfile(name="k", idg=base.InstructionGraph("CBC"))
    kernel = base.ProfiledKernel(profile=profile, launch=launch_at(4))
    assert models(full_device())["gpumech-gto"].predict(kernel).ignored == ("barriers",)


def test_counts_of_a_profile() -> None:
    device = full_device()
    assert example_profile().counts() == {"C": 4, "M": 2}
    assert example_profile(alpha={}).counts() == {"C": 4, "M": 2}
    assert example_profile().count_of("compute", device) == 4
    assert example_profile().count_of("barrier", device) == 0
    assert example_profile(alpha_mem=7.0).count_of("memory", device) == 7
    assert base.KernelProfile(name="k", alpha_comp=1).count_of("barrier", device) == 0
