"""Weights that follow the machine: factors from probes, and where they apply."""

import gzip
import itertools
import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from countperf import load_weights
from countperf.cli import main
from countperf.errors import MeasurementError
from countperf.fitting.fit import Observation, observations_of
from countperf.fitting.probes import follow, probes_of, timed_case
from countperf.measurements import Header, MeasurementSet
from countperf.models.drift import GROUPS, Probe, factors_of, group_of, scatter_of
from countperf.models.weights import WeightSet
from countperf.workflow import probing
from countperf.workflow.prediction import Target

FITS = Path(__file__).parents[2] / "fits"


@pytest.mark.parametrize(
    ("feature", "group"),
    [
        ("launches", None),
        ("code.cycles_operations", "core"),
        ("cycles_loop_in_l2", "core"),
        ("bytes.group.load.dense", "core"),
        ("load_bytes", "core"),
        ("load_segments_beyond_l2", "far"),
        ("store_lines_out_of_reach", "far"),
        ("load_beyond_llc", "memory"),
        ("load_memory_lines_out_of_reach", "memory"),
    ],
)
def test_features_are_core_or_memory(feature: str, group: str | None) -> None:
    assert group_of(feature) == group


def _probes(*shares: tuple[float, float, float]) -> list[Probe]:
    return [
        Probe(
            kernel=f"k{i}",
            parameters={},
            expected_s=1e-3 * (i + 1),
            shares=dict(zip(GROUPS, some, strict=True)),
        )
        for i, some in enumerate(shares)
    ]


@pytest.mark.parametrize("clock", [0.7, 1.0, 1.3])
@pytest.mark.parametrize("memory", [0.4, 1.0, 2.5])
def test_factors_come_back_from_times_that_they_made(clock: float, memory: float) -> None:
    probes = _probes((1.0, 0.0, 0.0), (0.6, 0.4, 0.0), (0.1, 0.1, 0.8))
    true = np.array([1 / clock, memory, memory])
    times = [p.expected_s * float(np.array([*p.shares.values()]) @ true) for p in probes]
    found = factors_of(probes, times)
    assert [found[g] for g in GROUPS] == pytest.approx(true.tolist(), rel=0.05)


@pytest.fixture(scope="module")
def header() -> Header:
    with gzip.open(FITS / "pocl-epyc-zen5" / "measurements.jsonl.gz", "rt") as file:
        return Header.model_validate_json(file.readline())


def _cases(device: str, every: int) -> list[Observation]:
    measured = MeasurementSet.read_file(FITS / device / "measurements.jsonl.gz")
    wanted = ("stride1", "independent-chains")
    numbered = itertools.count()
    return [
        *observations_of(
            measured.select(
                lambda m: (
                    m.purpose == "measurement"
                    and (m.family in wanted or next(numbered) % every == 0)
                )
            )
        )
    ]


@pytest.fixture(scope="module")
def cases() -> list[Observation]:
    return _cases("pocl-epyc-zen5", 20)


def _drifted(
    weights: WeightSet, cases: list[Observation], memory: float, clock: float
) -> tuple[list[Observation], dict[str | None, float]]:
    """Change times by groups of weights; return the factors, too."""
    true = {None: 1.0, "core": 1 / clock, "far": memory, "memory": memory}
    shares = [timed_case(weights, case).shares for case in cases]
    drifted = [
        replace(case, time_s=case.time_s * (1 + sum(s * (true[g] - 1) for g, s in some.items())))
        for case, some in zip(cases, shares, strict=True)
    ]
    return drifted, true


def _mean_factor(weights: WeightSet, cases: list[Observation], times: list[float]) -> float:
    predicted = [timed_case(weights, case).predicted_s for case in cases]
    return float(np.exp(np.mean(np.abs(np.log(np.array(predicted) / times)))))


@pytest.mark.parametrize("model", ["structural", "compiled"])
def test_shipped_probes_are_those_of_the_measurements(model: str, cases: list[Observation]) -> None:
    weights = load_weights("pocl-epyc-zen5", model=model)
    again = probes_of(weights, cases)
    assert [(p.kernel, p.parameters) for p in again] == [
        (p.kernel, p.parameters) for p in weights.probes
    ]
    for probe, other in zip(again, weights.probes, strict=True):
        assert probe.expected_s == pytest.approx(other.expected_s, rel=1e-3)
        assert probe.shares == pytest.approx(other.shares, abs=1e-3)


@pytest.mark.parametrize("model", ["structural", "compiled"])
@pytest.mark.parametrize(("memory", "clock"), [(0.4, 1.3), (2.5, 0.7), (2.0, 1.0)])
def test_predictions_follow_a_drift_that_is_simulated(
    model: str, memory: float, clock: float, cases: list[Observation]
) -> None:
    weights = load_weights("pocl-epyc-zen5", model=model)
    known = [c for c in cases if c.has_code or model == "structural"]
    cases_now, true = _drifted(weights, known, memory, clock)
    drifted = [case.time_s for case in cases_now]
    probed = [
        p.expected_s * (1 + sum(s * (true[g] - 1) for g, s in p.shares.items()))
        for p in weights.probes
    ]
    followed = weights.scaled(factors_of(weights.probes, probed))
    usual = _mean_factor(weights, known, [case.time_s for case in known])
    assert _mean_factor(followed, known, drifted) <= 1.05 * usual
    assert _mean_factor(weights, known, drifted) > 1.05 * usual


@pytest.mark.parametrize("model", ["structural", "compiled"])
@pytest.mark.parametrize(("memory", "clock"), [(0.4, 1.3), (1.0, 1.0), (2.5, 0.7)])
def test_a_calibration_is_not_worse_than_what_ships_for_the_device(
    model: str, memory: float, clock: float, cases: list[Observation], header: Header
) -> None:
    weights = load_weights("pocl-epyc-zen5", model=model)
    known = [c for c in cases if c.has_code or model == "structural"]
    drifted, _ = _drifted(weights, known, memory, clock)
    measured, others = drifted[::4], [case for n, case in enumerate(drifted) if n % 4]
    calibrated = follow(weights, measured, header)
    usual = _mean_factor(weights, known, [case.time_s for case in known])
    reached = _mean_factor(calibrated, others, [case.time_s for case in others])
    assert reached <= 1.05 * usual
    assert reached <= 1.01 * _mean_factor(weights, others, [case.time_s for case in others])
    assert calibrated.correction == weights.correction
    assert calibrated.source is not None
    assert calibrated.source.cases == len(measured)


def test_intervals_of_a_calibration_grow_with_its_errors(
    cases: list[Observation], header: Header
) -> None:
    weights = load_weights("pocl-epyc-zen5", model="structural")
    noisy = [replace(c, time_s=c.time_s * 2.5 ** (n % 2 * 2 - 1)) for n, c in enumerate(cases)]
    usual, wider = (follow(weights, some, header).quality for some in (cases, noisy))
    assert usual is not None
    assert wider is not None
    assert usual.calibration is not None
    assert wider.calibration is not None
    assert wider.calibration.log_errors_90 > 1.5 * usual.calibration.log_errors_90


# --- where weights follow the machine


@pytest.fixture
def at_hand(monkeypatch: pytest.MonkeyPatch) -> WeightSet:
    """Have the device of weights at hand, on which all takes twice the time."""
    weights = load_weights("pocl-epyc-zen5", model="structural")

    here = SimpleNamespace(label="pocl:0", identity=weights.device)
    monkeypatch.delenv(probing.AS_FITTED, raising=False)
    matching = "countperf.workflow.prediction.matching_devices"
    monkeypatch.setattr(matching, lambda one: [here] * weights.device.matches(one))
    twice = tuple(2 * probe.expected_s for probe in weights.probes)
    monkeypatch.setattr(probing, "times_of", lambda *_: twice)
    return weights


def test_named_weights_follow_the_machine_and_say_so(at_hand: WeightSet) -> None:
    found = Target(weights="pocl-epyc-zen5", model="structural").checked()
    charged = {w.feature: w.value_s for w in at_hand.weights}
    now = {w.feature: w.value_s for w in found.weights}
    assert now["launches"] == charged["launches"]
    errors = ({w.feature: w.standard_error_s for w in of.weights} for of in (at_hand, found))
    then, after = ({name: error or 0.0 for name, error in some.items()} for some in errors)
    assert after == pytest.approx({n: then[n] * now[n] / (charged[n] or 1.0) for n in now})
    vector = "issue.vector.chain.f32.add"
    assert now[vector] == pytest.approx(2 * charged[vector], rel=0.1)
    assert found.machine.startswith("this machine was probed; times since the fit: work in the")
    assert found.probes[0].expected_s == pytest.approx(2 * at_hand.probes[0].expected_s, rel=0.1)
    assert "machine" not in found.to_object()


def test_intervals_are_wider_the_more_the_machine_has_changed(at_hand: WeightSet) -> None:
    found = Target(weights="pocl-epyc-zen5", model="structural").checked()
    assert at_hand.quality is not None
    assert found.quality is not None
    then, now = at_hand.quality.calibration, found.quality.calibration
    assert then is not None
    assert now is not None
    scatter = 0.4 * np.log(2)  # all factors are about 2
    for level, normal in ((90, 1.645), (95, 1.960)):
        before, after = (getattr(c, f"log_errors_{level}") for c in (then, now))
        assert after == pytest.approx(np.hypot(before, normal * scatter), rel=0.02)
    assert now.within_kernels > then.within_kernels
    total, before = (c.between_kernels**2 + c.within_kernels**2 for c in (now, then))
    assert total == pytest.approx(before + scatter**2, rel=0.05)
    assert scatter_of(dict.fromkeys(GROUPS, 1.0)) == 0


def test_commands_say_how_weights_follow_the_machine(
    at_hand: WeightSet, capsys: pytest.CaptureFixture[str]
) -> None:
    command = "predict stride1/copy/256x1/f32 n=4096 --weights pocl-epyc-zen5 --model structural"
    line = "this machine was probed; times since the fit: work in the core x 1.98"
    assert main(command.split()) == 0
    assert capsys.readouterr().out.count(line) == 1
    assert main([*command.split(), "--json"]) == 0
    shown = capsys.readouterr()
    assert json.loads(shown.out)["machine"].startswith(line)
    assert f"countperf: {at_hand.device.slug}, structural: {line}" in shown.err
    assert main([*command.split(), "--against-size", "n=8192"]) == 0
    assert line in capsys.readouterr().err


def test_weights_that_are_given_stay(at_hand: WeightSet, monkeypatch: pytest.MonkeyPatch) -> None:
    assert Target(weights=at_hand).loaded() is at_hand
    named = Target(weights="pocl-epyc-zen5", model="structural")
    assert named.loaded().weights != at_hand.weights
    monkeypatch.setenv(probing.AS_FITTED, "0")
    assert named.loaded().weights != at_hand.weights
    monkeypatch.setenv(probing.AS_FITTED, "1")
    assert named.loaded().weights == at_hand.weights
    assert Target(weights="pocl-epyc-zen4", model="structural").loaded().machine == ""


def test_a_probe_that_says_nothing_leaves_weights_alone(
    at_hand: WeightSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probing, "times_of", lambda *_: "other programs use it")
    found = Target(weights="pocl-epyc-zen5", model="structural").checked()
    assert found.weights == at_hand.weights
    assert found.machine == "weights as they were fitted: other programs use it"


def test_a_device_that_fails_is_not_probed(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(_: object) -> object:
        raise MeasurementError("no memory")

    monkeypatch.setattr(probing, "find_device", lambda _: None)
    monkeypatch.setattr(probing.KernelRunner, "open", fails)
    reason = probing.times_of("pocl:fails", (("stride1/copy/256x1/f32", (("n", 4096),)),))
    assert reason == "the machine was not probed (no memory)"
