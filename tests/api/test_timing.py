"""Timing a kernel of the user's: on a fake clock, and on a device."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import countperf
from countperf import errors
from countperf.api.prediction import COMPILED_CHOICE
from countperf.api.timing import time_kernel
from countperf.cli import main
from countperf.counting.count_properties import count_kernel
from countperf.counting.vector import PropertyVector
from countperf.devices.device import Device
from countperf.figures import draw
from countperf.measuring import KernelCase, Measurement, TimedSize
from countperf.measuring import Timing as Timing
from countperf.measuring.runner import ApartRunner, KernelRunner
from countperf.models.predictions import Prediction
from countperf.models.weights import WeightSet
from tests.devices.fakes import IDENTITY, PROTOCOL, FakeRunner, make_case
from tests.kernels import made
from tests.models.builders import calibrated, make_device, make_weights
from tests.patience import LONGEST_S

ARGUMENTS = "x,y,z f32 n; n i32"
AXPY = made("i<n", "z[i] = 2*x[i] + y[i]", ARGUMENTS, name="axpy", split="i:64")


def linear(**changes: Any) -> WeightSet:
    """Weights of the fake device: 1 us a launch and 2 ns an addition; nothing else costs."""
    free = (
        "flop.mul.f32",
        "groups",
        *(f"gmem.{way}.32.stride1" for way in ("load", "store", "min")),
    )
    values = {"launches": 1e-6, "flop.add.f32": 2e-9, **dict.fromkeys(free, 0.0)}
    fields: dict[str, Any] = {"quality": calibrated(0.5, 0.1), "device": IDENTITY}
    return make_weights(values, **(fields | changes))


def at_times(times_s: Mapping[int, float], spread: float = 0.0) -> FakeRunner:
    """Return a runner whose runs at size n take a time; later rounds are slower by spread."""

    def duration(case: str, turn: int, run: int) -> float:
        del run
        return times_s[int(case.rpartition("=")[2])] * (1 + spread * (0, 1, 0.5)[turn % 3])

    return FakeRunner(duration)


USUAL: dict[str, Any] = {"weights": linear(), "protocol": PROTOCOL}


def timed(times_s: Mapping[int, float], spread: float = 0.0, **options: Any) -> Timing:
    given = {**USUAL, **options}
    return time_kernel(AXPY, n=list(times_s), runner=at_times(times_s, spread), **given)


def test_measured_times_stand_beside_predicted_ones() -> None:
    # predicted: 1 us + 2 ns * n
    timing = timed({1000: 3.3e-6, 4000: 9e-6})
    assert (timing.kernel, timing.device) == ("axpy", IDENTITY)
    assert (timing.weights, timing.model) == ("", "linear")  # made by hand, they have no name
    assert timing.runs == (({"n": 1000}, 3.3e-6), ({"n": 4000}, 9e-6))
    frame = timing.to_frame()
    assert list(frame["n"]) == [1000, 4000]
    assert list(frame["measured_s"]) == [3.3e-6, 9e-6]
    assert list(frame["predicted_s"]) == pytest.approx([3e-6, 9e-6])
    # e^0.7 is the interval's factor
    assert list(frame["high_s"] / frame["predicted_s"]) == pytest.approx([math.exp(0.7)] * 2, 0.1)
    # two rounds of the protocol, of four runs, all kept
    samples = [size.measurement.samples_s for size in timing.sizes]
    assert [[*map(len, rounds)] for rounds in samples] == [[4, 4], [4, 4]]


def _size(
    time_s: float, noise: float, interval: tuple[float, float] | None, **more: Any
) -> TimedSize:
    measurement = Measurement.from_samples(make_case(), [[time_s]], dropped=0)
    noisy = measurement.model_copy(update={"noise": noise, "settling": "settled", **more})
    return TimedSize(measurement=noisy, predicted_s=2.0, interval_s=interval)


@pytest.mark.parametrize(
    ("time_s", "noise", "interval", "verdict"),
    [
        (3.0, 0.0, (1.0, 4.0), "inside"),
        (4.0, 0.0, (1.0, 4.0), "inside"),
        (3.0, 0.9, (1.0, 4.0), "inside"),
        (4.4, 0.01, (1.0, 4.0), "outside"),  # log(1.1) = 0.095 is more than 2 * 0.01
        (4.4, 0.05, (1.0, 4.0), "noise"),  # and less than 2 * 0.05
        (0.9, 0.01, (1.0, 4.0), "outside"),  # log(0.9) = -0.105
        (0.9, 0.06, (1.0, 4.0), "noise"),
        (2.1, 0.03, None, "noise"),  # log(1.05) = 0.049
        (2.1, 0.02, None, "no interval"),
        (9.0, 0.01, (1.0, 4.0), "outside"),
        (9.0, 0.01, None, "no interval"),
    ],
)
def test_one_word_says_what_a_time_says(
    time_s: float, noise: float, interval: tuple[float, float] | None, verdict: str
) -> None:
    busy = {"remarks": ("other programs kept cores busy in 2 of 3 rounds",)}
    for more in ({}, busy, {"settling": "unsettled"}):  # the noise says how much they disturbed
        assert _size(time_s, noise, interval, **more).verdict == verdict


def test_what_has_no_weight_can_be_left_out() -> None:
    weights = linear(weights=tuple(w for w in linear().weights if not w.feature.startswith("flop")))
    (refused,) = timed({1000: 3e-6}, weights=weights).sizes
    (only,) = timed({1000: 3e-6}, weights=weights, incomplete_ok=True).sizes
    assert refused.verdict == "no prediction"
    assert "flop.add.f32" in refused.reason
    # what is left is the launch
    assert only.predicted_s == pytest.approx(1e-6)
    assert only.verdict == "no interval"
    assert only.reason == "incomplete: without the cost of flop.add.f32, flop.mul.f32"


@pytest.mark.extra("plot")
def test_a_kernel_without_sizes_is_timed() -> None:
    kernel = made("i<64", "z[i] = x[i] + 1", "x,z f32 64")
    timing = time_kernel(kernel, runner=FakeRunner(lambda *_: 1e-6), **USUAL)
    assert timing.runs == (({}, 1e-6),)
    assert "1.00 µs" in repr(timing)
    assert draw(timing).axes[0].get_xlabel() == "number of the size in the table, from 1"


def test_one_size_outside_the_assumptions_leaves_the_others_predicted() -> None:
    timing = timed({0: 1e-6, 1000: 3e-6})
    assert [size.verdict for size in timing.sizes] == ["no prediction", "inside"]
    assert "assum" in timing.sizes[0].reason


def test_disagreeing_rounds_get_more_and_are_told() -> None:
    (only,) = timed({1000: 3e-6}, spread=0.5).sizes
    assert len(only.measurement.samples_s) == PROTOCOL.rounds + PROTOCOL.extra_rounds
    assert not only.measurement.stable


def test_a_size_that_fails_alone_is_among_the_failures() -> None:
    class Small(FakeRunner):
        def load_case(self, case: Any) -> Any:
            if case.parameters["n"] > 2000:
                raise errors.MeasurementError("no memory", case=case.name)
            return super().load_case(case)

    runner = Small(lambda *_: 3e-6)
    timing = time_kernel(AXPY, n=[1000, 4000], runner=runner, **USUAL)
    assert "no memory" in repr(timing)
    frame = timing.to_frame()
    assert list(frame["n"]) == [1000, 4000]
    assert list(frame["verdict"]) == ["inside", "failed"]
    assert list(frame["measured_s"].isna()) == [False, True]


@pytest.mark.parametrize(
    "error", [errors.KernelBuildError("bad code"), errors.WrongResultError("wrong")]
)
def test_if_all_sizes_fail_the_error_is_raised(error: Exception) -> None:
    runner = FakeRunner(broken={"axpy": error})
    with pytest.raises(type(error), match=str(error)):
        time_kernel(AXPY, n=[1, 2], runner=runner, **USUAL)


@pytest.mark.parametrize(
    ("kernel", "sizes", "error", "said"),
    [
        (AXPY, {"n": 4, "m": 5}, errors.ParameterError, "no parameter m .it has: n"),
        (AXPY, {"n": [4, 4]}, errors.ParameterError, "n=4 is there twice"),
        (AXPY, {"n": []}, errors.ParameterError, "no value"),
        (PropertyVector.from_mapping({"groups": 1}), {}, errors.CountingError, "no code to run"),
        (3, {}, errors.CountingError, "not int"),
    ],
)
def test_what_cannot_be_timed_is_refused(
    kernel: Any, sizes: dict[str, Any], error: type[Exception], said: str
) -> None:
    with pytest.raises(error, match=said):
        time_kernel(kernel, sizes, runner=FakeRunner(), weights=linear())


def test_named_weights_of_another_device_are_refused_before_a_launch() -> None:
    runner = FakeRunner()
    other = linear(device=make_device())
    with pytest.raises(errors.DeviceMismatchError):
        time_kernel(AXPY, n=1000, runner=runner, weights=other)
    assert runner.rounds == []
    timing = time_kernel(AXPY, n=1000, runner=runner, weights=other, force=True, protocol=PROTOCOL)
    assert timing.sizes[0].predicted_s == pytest.approx(3e-6)


@pytest.mark.parametrize("reads", [True, False])
def test_the_model_is_chosen_as_for_a_prediction(
    monkeypatch: pytest.MonkeyPatch, *, reads: bool
) -> None:
    # stands for weights that read code: with another time, or of old counting rules
    values = {weight.feature: weight.value_s for weight in linear().weights} | {"launches": 5e-6}
    older = {} if reads else {"counting_rules": 1}
    reading = make_weights(values, device=IDENTITY, model="compiled", **older)
    monkeypatch.setattr("countperf.api.prediction.default_weights", lambda *_, **__: linear())
    monkeypatch.setattr("countperf.api.prediction.reading_weights", lambda *_: reading)
    timing = timed({1000: 3.3e-6}, weights=None)
    predicted_s = timing.sizes[0].predicted_s
    if reads:
        assert predicted_s == pytest.approx(7e-6)
        assert timing.model_choice == COMPILED_CHOICE
    else:
        assert predicted_s == pytest.approx(3e-6)
        start = "model linear: the one that reads compiled code fails: "
        assert timing.model_choice.startswith(start)
        assert "counting rules" in timing.model_choice
    assert Timing.from_object(timing.to_object()) == timing


def test_no_code_is_read_where_a_model_or_weights_are_given(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fails(*_: object) -> WeightSet:
        raise AssertionError("asked for weights that read code")

    monkeypatch.setattr("countperf.api.prediction.reading_weights", fails)
    monkeypatch.setattr("countperf.api.prediction.default_weights", lambda *_, **__: linear())
    assert timed({1000: 3.3e-6}).model_choice == ""
    assert timed({1000: 3.3e-6}, weights=None, model="linear").model_choice == ""


@pytest.mark.extra("plot")
def test_the_figure_has_points_line_band_and_plain_ticks() -> None:
    times = {n: 1e-6 + 2e-9 * n for n in (100, 1000, 10000)}
    figure = draw(timed(times))
    (axes,) = figure.axes
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")
    for name in ("measured", "predicted"):
        (line,) = [line for line in axes.lines if line.get_gid() == name]
        assert np.asarray(line.get_xdata()).tolist() == list(times)
        assert np.asarray(line.get_ydata()) == pytest.approx([1.2, 3.0, 21.0])
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("size n", "time of one launch, µs")
    assert figure.get_suptitle().startswith("axpy on fake-abacus")
    figure.canvas.draw()
    ticks = [label.get_text() for label in (*axes.get_xticklabels(), *axes.get_yticklabels())]
    assert {"100", "1000", "10000"} <= set(ticks)
    assert not [text for text in ticks if "$" in text or "10^" in text]
    assert [len(legend.get_texts()) for legend in figure.legends] == [2]


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"interval_s": [2.0, 3.0]}, "$.sizes[0]"),
        ({"predicted_s": -1.0}, "$.sizes[0].predicted_s"),
        ({"predicted_s": None}, "$.sizes[0]"),
    ],
)
def test_a_bad_timing_is_refused_with_its_field(change: dict[str, Any], field: str) -> None:
    content = timed({1000: 3.3e-6}).to_object()
    content["sizes"][0] |= change
    with pytest.raises(errors.DocumentError) as caught:
        Timing.from_object(content)
    assert caught.value.field == field


def test_a_timing_anchors_like_its_runs() -> None:
    timing = timed({1000: 6e-6, 4000: 18e-6})
    prediction = countperf.predict(AXPY, n=777, weights=linear())
    anchored = prediction.anchor(timing)
    # both times are twice the predicted ones: 0.25 / (0.25 + 0.01 / 2) of log(2)
    factor = 2 ** (0.25 / 0.255)
    assert anchored.time_s == pytest.approx(factor * float(prediction.time_s))
    assert anchored.anchor(timing).time_s == anchored.time_s
    by_runs = prediction.anchor(*timing.runs)
    assert (by_runs.time_s, by_runs.interval_s) == (anchored.time_s, anchored.interval_s)


_SCALE = made("i<n", "z[i] = 2*x[i]", ARGUMENTS, name="scale", split="i:64")


def _anchor(timing: Timing, kernel: Any = AXPY, weights: WeightSet | None = None) -> Prediction:
    return countperf.predict(kernel, n=1000, weights=weights or linear(), anchors=[timing])


def _anchor_otherwise(timing: Timing) -> Prediction:
    return replace(countperf.predict(AXPY, n=5, weights=linear()), origin=None).anchor(timing)


_OTHER: Mapping[str, Callable[[Timing], object]] = {
    "is of 'axpy', and kernel 'scale' has other counts": lambda timing: _anchor(timing, _SCALE),
    "is of fake-abacus": lambda timing: _anchor(timing, weights=linear(device=make_device())),
    "counting rules 0": lambda timing: _anchor(timing.model_copy(update={"counting_rules": 0})),
    "could not be counted in the source view": lambda timing: _anchor(_uncounted(timing)),
    "was not made with fitted weights": _anchor_otherwise,
}


@pytest.mark.parametrize("said", _OTHER)
def test_a_timing_of_something_else_is_no_anchor(said: str) -> None:
    timing = timed({1000: 6e-6})
    assert "after 1 measured run of" in str(
        _anchor(timing, count_kernel(AXPY, view="structure")).verdicts
    )
    error = errors.DeviceMismatchError if said == "is of fake-abacus" else errors.PredictionError
    with pytest.raises(error, match=said):
        _OTHER[said](timing)


def _uncounted(timing: Timing) -> Timing:
    (size,) = timing.sizes
    return timing.model_copy(update={"sizes": (size.model_copy(update={"counts": {}}),)})


def test_a_timing_with_other_statistics_is_refused() -> None:
    body = "for i\n<> m = length[i]\nz[i] = sum(j, x[j])\nend"
    kernel = made(["i<n", "j<m"], body, f"length i32 n; {ARGUMENTS}")
    runner = FakeRunner(lambda *_: 1e-6)
    timing = time_kernel(kernel, n=64, runner=runner, statistics={"j": 5}, **USUAL)
    same, other = (count_kernel(kernel, statistics={"j": trips}) for trips in (5, 6))
    assert len(timing.runs_of(same)) == 1
    with pytest.raises(errors.PredictionError, match="the statistics that its prediction gets"):
        timing.runs_of(other)


def test_counts_and_predictions_are_the_same_in_every_process() -> None:
    command = [sys.executable, "-c", f"{_DIGEST}\nprint(digests)"]
    environment = {**os.environ, "PYTHONHASHSEED": "1"}
    other = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    here: dict[str, Any] = {}
    exec(_DIGEST, here)
    assert other.stdout.strip() == str(here["digests"])
    assert here["digests"][-1] == here["digests"][-2]  # by name and as an object


_DIGEST = """
import json
from countperf import load_weights, predict
from countperf.api.kernels import Kernel
from countperf.measuring import counts_digest
views = ("source", "structure")
kernel = Kernel.of("matmul-tiled/square/16x16/f32")
digests = [counts_digest(kernel.count(view)) for view in views]
weights = load_weights("pocl-epyc-zen5", model="structural")
for by in ({"weights": "pocl-epyc-zen5", "model": "structural"}, {"weights": weights}):
    digests.append(json.dumps(predict("stride1/copy/256x1/f32", n=4096, **by).lay_out().object()))
"""


FAST = PROTOCOL.with_values(separation_s=0.0, extra_rounds=0)
FORCED: dict[str, Any] = {"weights": linear(), "force": True, "protocol": FAST}


def _wrong(inputs: Mapping[str, Any], sizes: Mapping[str, int]) -> dict[str, Any]:
    del sizes
    return {"z": 3 * (2 * inputs["x"] + inputs["y"])}


@pytest.mark.device
def test_wrong_numbers_are_noticed_before_a_timing(device: Device) -> None:
    with pytest.raises(errors.WrongResultError, match="wrong numbers: z"):
        time_kernel(AXPY, n=64, runner=KernelRunner.open(device), reference=_wrong, **FORCED)


def _make_identity_indices(rng: np.random.Generator, sizes: Mapping[str, int]) -> dict[str, Any]:
    del rng
    n = sizes["n"]
    return {"x": np.ones(n, np.float32), "k": np.arange(n, dtype=np.int32)}


@pytest.mark.device
def test_a_computed_subscript_is_launched_if_the_user_says_so(device: Device) -> None:
    swapping = made("i<n", "z[i] = x[k[i] ^ 1]", "x,z f32 n; k i32 n; n i32", split="i:16")
    options: dict[str, Any] = {"make_arguments": _make_identity_indices, **FORCED}
    options |= {"runner": KernelRunner.open(device), "statistics": {"x": "stride1"}}
    with pytest.raises(errors.KernelBuildError, match=r"nothing was launched.*unchecked=True"):
        time_kernel(swapping, n=64, **options)
    assert time_kernel(swapping, n=64, unchecked=True, **options).sizes


def _crashing(rng: np.random.Generator, sizes: Mapping[str, int]) -> dict[str, Any]:
    del rng
    if sizes["n"] == 64:
        os.kill(os.getpid(), signal.SIGKILL)
    return {name: np.ones(sizes["n"], np.float32) for name in ("x", "y")}


def _never_ending(rng: np.random.Generator, sizes: Mapping[str, int]) -> dict[str, Any]:
    time.sleep(1000)
    return _crashing(rng, sizes)


@pytest.mark.device
@pytest.mark.skipif(os.name != "posix", reason="needs signals of POSIX")
@pytest.mark.parametrize(
    ("make", "longest_s", "said"),
    [
        (_crashing, 60.0, "kernel 'axpy' .*: it was ended by SIGKILL"),
        (_never_ending, 5.0, "kernel 'axpy' .*: it took longer than 5 s; longest_s="),
    ],
)
def test_a_crash_and_a_kernel_that_never_ends_are_errors_that_name_it(
    device: Device, make: Any, longest_s: float, said: str
) -> None:
    how: dict[str, Any] = {"make_arguments": make, "longest_s": longest_s, **FORCED}
    with pytest.raises(errors.MeasurementError, match=said):
        time_kernel(AXPY, n=64, device=device, **how)


@pytest.mark.device
@pytest.mark.skipif(os.name != "posix", reason="needs signals of POSIX")
def test_a_crash_costs_one_case_alone(device: Device) -> None:
    crashing = KernelCase(name="first", kernel=AXPY, parameters={"n": 64}, make_arguments=_crashing)
    other = replace(crashing, name="second", parameters={"n": 128}, check_parameters={"n": 128})
    with ApartRunner(device) as runner:
        with pytest.raises(
            errors.MeasurementError, match=r"first: .*the process of its own was lost"
        ):
            runner.check(crashing)
        runner.check(other)
        assert len(runner.time_round(other, FAST).samples_s) == FAST.runs


@pytest.mark.long
@pytest.mark.device
@pytest.mark.skipif(not Path("/proc").exists(), reason="looks at processes")
def test_an_interrupt_ends_the_process_that_launches(
    device: Device, kernel_file: Path, tmp_path: Path
) -> None:
    command = ["time", f"{kernel_file}:axpy", "n=64", "--device", device.label]
    command += ["--arguments", f"{kernel_file}:endless"]
    number = tmp_path / "number"
    with subprocess.Popen(
        [sys.executable, "-m", "countperf", *command], cwd=tmp_path, start_new_session=True
    ) as timing:
        until_s = time.monotonic() + LONGEST_S
        while not (number.exists() and number.read_text()) and time.monotonic() < until_s:
            time.sleep(0.1)
        os.killpg(timing.pid, signal.SIGINT)  # as a terminal does
        assert timing.wait(LONGEST_S) == 130
    assert not Path("/proc", number.read_text()).exists()


@pytest.mark.device
def test_a_kernel_of_the_catalogue_brings_inputs_and_reference(device: Device) -> None:
    timing = time_kernel("n-body", n=256, device=device, protocol=FAST, model="linear")
    assert timing.kernel == "n-body"


@pytest.mark.device
def test_the_command_times_saves_and_anchors(
    device: Device, kernel_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    saved = tmp_path / "axpy.json"
    command = ["time", f"{kernel_file}:axpy", "n=1024,4096", "--device", device.label]
    command += ["--model", "linear"]  # no code is compiled to be read
    command += ["--arguments", f"{kernel_file}:inputs", "--output", str(saved), "--json"]
    assert main(command) == 0
    captured = capsys.readouterr()
    printed = json.loads(captured.out)
    runs = tuple((size["parameters"], size["measured_s"]) for size in printed["sizes"])
    assert [sizes for sizes, _ in runs] == [{"n": 1024}, {"n": 4096}]
    assert "making inputs" in captured.err
    assert Timing.read_file(saved).runs == runs
    slug = device.identity.slug
    if printed["weights"]:
        anchor = ["--weights", slug, "--model", "linear", "--anchor", str(saved)]
        assert main(["predict", f"{kernel_file}:axpy", "n=2048", *anchor]) == 0
        assert "anchored model" in capsys.readouterr().out
        assert main(["predict", "n-body", "n=256", *anchor]) == 1
        assert "kernel 'n_body' has other counts" in capsys.readouterr().err


@pytest.mark.device
@pytest.mark.parametrize(
    ("function", "said"),
    [
        ("exits", "it ends the program"),
        ("nothing", "return a dictionary"),
        ("absent", "no function"),
    ],
)
def test_arguments_that_are_none_are_refused(
    device: Device, kernel_file: Path, function: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["time", f"{kernel_file}:axpy", "n=64", "--device", device.label]
    assert main([*command, "--arguments", f"{kernel_file}:{function}"]) == 1
    assert said in capsys.readouterr().err


@pytest.mark.device
def test_a_kernel_whose_sizes_are_not_declared_is_timed(device: Device) -> None:
    unit = made("i<n", "z[i] = 2*x[i]", "x,z f32 n", "...", assumptions="n >= 1", split="i:64")
    timing = time_kernel(unit, n=256, runner=KernelRunner.open(device), **FORCED)
    assert timing.sizes[0].measurement.time_s > 0
