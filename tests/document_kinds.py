"""A valid document of every kind that countperf reads, small, and what reads and uses it."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import countperf
from countperf.api import kernels
from countperf.counting.vector import PropertyVector
from countperf.devices.identity import DeviceIdentity
from countperf.devices.parameters import load_device
from countperf.measuring import (
    Environment,
    FailedCase,
    Header,
    Measurement,
    MeasurementSet,
    Resumption,
    TimedSize,
    Timing,
)
from countperf.measuring.cases import case_fields
from countperf.measuring.characterization import Characterization
from countperf.measuring.size_choice import SizeCalibration, SizeChoice, SizeLimits
from countperf.mechanistic.comparison import Comparison
from countperf.models.library import fits_folders, load_weights
from countperf.models.metrics import Evaluation, RankingEvaluation
from countperf.models.shipped import load_fitted_model
from rental.summary import Progress
from tests.devices.fakes import IDENTITY, PROTOCOL, make_case
from tests.models.builders import make_weights
from tests.mutations import Kind
from tests.tuning.test_search import scripted, search

_MODEL = """
format = "countperf-model"
version = 3
name = "mine"
ignored = ["iop.*"]

[terms]
launch = ["launches"]
global_memory = ["bytes", "gmem.load.*.4ofn"]
on_chip = { charged = ["flop.*.*", "groups"], scale = "waves" }

[derived]
bytes = "4*gmem_load_32_stride1 + 8*gmem_load_64_stride1"
waves = "ceil(groups/2)"
"""
_VECTOR = PropertyVector.from_mapping(
    {"flop.add.f32": "[n] -> { n^2 : n > 0 }", "groups": "[n] -> { floor((n + 15)/16) : n > 0 }"}
).to_document()
_ENVIRONMENT = Environment(
    recorded_at="2026-01-01T00:00:00+00:00", operating_system="Linux", processor="A", cores=2
)
_CATALOG = Path(countperf.__file__).parent / "devices" / "catalog"


def kinds() -> tuple[Kind, ...]:
    """Return a document of every kind."""
    weights = make_weights({"launches": 1e-5, "gmem.load.32.stride1": 1e-10, "groups": 1e-8})
    parameters = load_device("nvidia-gtx-970")
    measured = _measured()
    progress = {
        "finished": ["devices", "check"],
        "log": [{"stage": "check", "outcome": "done", "seconds": 1.5, "said": "right"}],
    }
    described = (_CATALOG / "nvidia-gtx-970.toml").read_bytes()
    of: Any = {"family": "fake", "variant": "plain", "element_type": "f32"}
    choice = SizeChoice(**of, exponents=(4, 5), run_s=(1.0, 2.0))
    limits = SizeLimits(launch_overhead_s=1e-5, memory_bytes=2**30)
    sizes = SizeCalibration(device=IDENTITY, limits=limits, choices=(choice,))
    with tempfile.TemporaryDirectory() as folder:
        lines, journal = Path(folder) / "set.jsonl", Path(folder) / "search.jsonl"
        measured.write_file(lines)
        search(scripted(), store=journal)
        measurements, searched = lines.read_bytes(), journal.read_bytes()
    return (
        Kind("measurements", measurements, _use_measurements, ".jsonl"),
        Kind("search", searched, lambda path: search(scripted(), store=path), ".jsonl"),
        Kind("weights", weights.write_text().encode(), _use_weights),
        Kind("shipped weights", _shipped("linear.json").read_bytes(), _use_weights),
        Kind("evaluation", _short("evaluation.json", 3, "cases"), _use_evaluation),
        Kind("ranking", _short("ranking.json", 1, "sets"), RankingEvaluation.read_file),
        Kind("comparison", _short("comparison.json", 1, "models"), Comparison.read_file),
        Kind("timing", _timing(measured).write_text().encode(), _use_timing),
        Kind("sizes", sizes.write_text().encode(), SizeCalibration.read_file),
        Kind("identity", _shipped("identity.json").read_bytes(), DeviceIdentity.read_file),
        Kind("device parameters", parameters.write_text().encode(), load_device),
        Kind("device description", described, load_device, ".toml"),
        Kind("characterization", _characterization(), Characterization.read_file),
        Kind("property vector", json.dumps(_VECTOR).encode(), _use_vector),
        Kind("model", _MODEL.encode(), _use_model, ".toml"),
        Kind("campaign's progress", json.dumps(progress).encode(), _use_progress),
    )


def _shipped(name: str) -> Path:
    return next(p for f in fits_folders() if (p := f / "pocl-epyc-zen5" / name).is_file())


def _short(name: str, kept: int, field: str) -> bytes:
    """Return a shipped document with fewer entries in one of its lists."""
    content = json.loads(_shipped(name).read_text())
    return json.dumps({**content, field: content[field][:kept]}).encode()


def _measured() -> MeasurementSet:
    samples = [[9.0, 1.0, 1.5, 2.0], [9.0, 1.25, 1.5, 1.5]]
    more: Any = {"dropped": 1, "properties": _VECTOR, "host_overhead_s": 1e-5}
    more["code"] = {"code.load_vector": 12}
    cases = (make_case(n=n) for n in (16, 32))
    failed: Any = {**case_fields(make_case(n=64)), "recorded_at": "", "stage": "build"}
    return MeasurementSet(
        header=Header(device=IDENTITY, protocol=PROTOCOL, environment=_ENVIRONMENT),
        measurements=tuple(Measurement.from_samples(case, samples, **more) for case in cases),
        failures=(FailedCase(**failed, reason="no"),),
        resumptions=(Resumption(environment=_ENVIRONMENT, again={"fake/n=16": 1.5}),),
    )


def _timing(measured: MeasurementSet) -> Timing:
    first, second = measured
    return Timing(
        kernel="fake",
        device=IDENTITY,
        protocol=PROTOCOL,
        environment=_ENVIRONMENT,
        weights="fake-abacus",
        model="linear",
        sizes=(
            TimedSize(measurement=first, counts={"source": "a"}, reason="no weight"),
            TimedSize(measurement=second, predicted_s=2.0, interval_s=(0.5, 3.0)),
        ),
        failures=measured.failures,
    )


def _characterization() -> bytes:
    clock = {"name": "clock", "value": 1e9, "spread": 0.1, "unit": "Hz", "kernel": "fma"}
    content = {
        "format": "countperf-characterization",
        "version": 1,
        "device": IDENTITY.to_object(),
        "environment": _ENVIRONMENT.model_dump(mode="json"),
        "findings": [clock],
        "left_out": {"barriers": "a CPU"},
        "parameters": load_device("nvidia-gtx-970").to_object(),
    }
    return Characterization.from_object(content).write_text().encode()


def _use_weights(path: Path) -> object:
    weights = load_weights(path)
    vector = PropertyVector.from_mapping({"groups": "[n] -> { n : n > 0 }", "launches": 1})
    prediction = weights.predict(vector, n=1024)
    return weights.to_object(), prediction.breakdown, prediction.interval_s


def _use_model(path: Path) -> object:
    return load_fitted_model(str(path)).to_object()


def _use_evaluation(path: Path) -> object:
    return Evaluation.read_file(path).lay_out().text()


def _use_timing(path: Path) -> object:
    timing = Timing.read_file(path)
    return repr(timing), timing.to_frame(), timing.lay_out().object(), timing.runs


def _use_measurements(path: Path) -> object:
    measured = MeasurementSet.read_file(path)
    vectors = [(case, case.property_vector()) for case in measured]
    return [v.evaluate(case.parameters) for case, v in vectors if v], measured.to_frame()


def _use_vector(path: Path) -> object:
    vector = kernels.load_kernel(str(path))
    assert isinstance(vector, PropertyVector)
    return vector.evaluate(n=1024), vector.to_document(), str(vector["flop.add.f32"])


def _use_progress(path: Path) -> object:
    path.with_name("campaign.json").write_bytes(path.read_bytes())
    progress = Progress.read(path.parent)
    return [name.upper() for name in progress.finished], [row["outcome"] for row in progress.log]
