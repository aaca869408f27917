"""A valid document of every kind that countperf reads, small, and what reads and uses it."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import countperf
from countperf.fitting.comparison import Comparison
from countperf.fitting.judging import RankingEvaluation
from countperf.hardware.identity import DeviceIdentity
from countperf.hardware.library import load_device
from countperf.harness.characterization.bench import Characterization
from countperf.harness.sizes import Calibration, SizeChoice, SizeLimits
from countperf.measurements import (
    Environment,
    FailedCase,
    Header,
    Measurement,
    MeasurementSet,
    Resumption,
    TimedSize,
)
from countperf.measurements import TimingDocument as KernelTiming
from countperf.measurements.lines import case_fields
from countperf.metrics import Evaluation
from countperf.models.library import fits_folders, load_weights
from countperf.models.shipped import fitted_model
from countperf.properties.vector import PropertyVector
from countperf.report.printing import printed
from countperf.workflow import kernels
from rental.summary import Progress
from tests.harness.fakes import IDENTITY, PROTOCOL, make_case
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
on_chip = { charged = ["flop.*.*", "groups"], upper = 1e-6, scale = "waves" }

[derived]
bytes = "4*gmem_load_32_stride1 + 8*gmem_load_64_stride1"
waves = "ceil(groups/2)"
"""


def kinds() -> tuple[Kind, ...]:
    """Return a document of every kind."""
    return (
        *_fits(),
        *_measured(),
        *_devices(),
        *_searches(),
        Kind(name="property vector", suffix=".json", content=_vector(), read=_use_vector),
        Kind(name="model", suffix=".toml", content=_MODEL.encode(), read=_use_model),
        Kind(
            name="campaign's progress",
            suffix=".json",
            content=json.dumps(
                {
                    "finished": ["devices", "check"],
                    "log": [{"stage": "check", "outcome": "done", "seconds": 1.5, "said": "right"}],
                }
            ).encode(),
            read=_use_progress,
        ),
    )


def _shipped(name: str) -> Path:
    return next(p for f in fits_folders() if (p := f / "pocl-epyc-zen5" / name).is_file())


def _short(name: str, keep: int, *fields: str) -> bytes:
    """Return a shipped document with fewer entries in some of its lists."""
    content = json.loads(_shipped(name).read_text())
    for field in fields:
        content[field] = content[field][:keep]
    return json.dumps(content).encode()


# {{{ fits


def _fits() -> tuple[Kind, ...]:
    weights = make_weights({"launches": 1e-5, "gmem.load.32.stride1": 1e-10, "groups": 1e-8})
    return (
        Kind(
            name="weights",
            suffix=".json",
            content=weights.write_text().encode(),
            read=_use_weights,
        ),
        Kind(
            name="shipped weights",
            suffix=".json",
            content=_shipped("linear.json").read_bytes(),
            read=_use_weights,
        ),
        Kind(
            name="evaluation",
            suffix=".json",
            content=_short("evaluation.json", 3, "cases"),
            read=_use_evaluation,
        ),
        Kind(
            name="ranking",
            suffix=".json",
            content=_short("ranking.json", 1, "sets"),
            read=RankingEvaluation.read_file,
        ),
        Kind(
            name="comparison",
            suffix=".json",
            content=_short("comparison.json", 1, "models"),
            read=Comparison.read_file,
        ),
    )


def _use_weights(path: Path) -> object:
    weights = load_weights(path)
    vector = PropertyVector.from_mapping({"groups": "[n] -> { n : n > 0 }", "launches": 1})
    prediction = weights.predict(vector, n=1024)
    return weights.to_object(), prediction.breakdown, prediction.interval_s


def _use_evaluation(path: Path) -> object:
    return printed(Evaluation.read_file(path)).text()


# }}}

# {{{ measurements


def _measured() -> tuple[Kind, ...]:
    environment = Environment(
        recorded_at="2026-01-01T00:00:00+00:00", operating_system="Linux", processor="A", cores=2
    )
    samples = [[9.0, 1.0, 1.5, 2.0], [9.0, 1.25, 1.5, 1.5]]
    properties = json.loads(_vector())
    content = MeasurementSet(
        header=Header(device=IDENTITY, protocol=PROTOCOL, environment=environment),
        measurements=tuple(
            Measurement.from_samples(
                make_case(n=n),
                samples,
                dropped=1,
                properties=properties,
                host_overhead_s=1e-5,
                code={"code.load_vector": 12},
            )
            for n in (16, 32)
        ),
        failures=(
            FailedCase(**case_fields(make_case(n=64)), recorded_at="", stage="build", reason="no"),
        ),
        resumptions=(Resumption(environment=environment, again={"fake/n=16": 1.5}),),
    )
    sizes = Calibration(
        device=IDENTITY,
        limits=SizeLimits(launch_overhead_s=1e-5, memory_bytes=2**30),
        choices=(
            SizeChoice(
                family="fake",
                variant="plain",
                element_type="f32",
                exponents=(4, 5),
                run_s=(1.0, 2.0),
            ),
        ),
    )
    text = _written(content)
    return (
        Kind(
            name="measurements",
            suffix=".jsonl",
            content=text.encode(),
            read=_use_measurements,
            lines=True,
        ),
        Kind(
            name="timing",
            suffix=".json",
            content=_timing(content).write_text().encode(),
            read=_use_timing,
        ),
        Kind(
            name="sizes",
            suffix=".json",
            content=sizes.write_text().encode(),
            read=Calibration.read_file,
        ),
    )


def _written(content: MeasurementSet) -> str:
    with tempfile.TemporaryDirectory() as folder:
        content.write_file(Path(folder) / "set.jsonl")
        return (Path(folder) / "set.jsonl").read_text()


def _timing(content: MeasurementSet) -> KernelTiming:
    first, second = content
    return KernelTiming(
        kernel="fake",
        device=content.header.device,
        protocol=content.header.protocol,
        environment=content.header.environment,
        weights="fake-abacus",
        model="linear",
        sizes=(
            TimedSize(measurement=first, counts={"source": "a"}, reason="no weight"),
            TimedSize(measurement=second, predicted_s=2.0, interval_s=(0.5, 3.0)),
        ),
        failures=content.failures,
    )


def _use_timing(path: Path) -> object:
    found = KernelTiming.read_file(path)
    return repr(found), found.to_frame(), found._repr_html_(), found.runs  # pyright: ignore[reportPrivateUsage]


def _use_measurements(path: Path) -> object:
    found = MeasurementSet.read_file(path)
    vectors = [each.property_vector() for each in found]
    return [
        vector.evaluate(each.parameters)
        for each, vector in zip(found, vectors, strict=True)
        if vector is not None
    ], found.to_frame()


def _vector() -> bytes:
    vector = PropertyVector.from_mapping(
        {
            "flop.add.f32": "[n] -> { n^2 : n > 0 }",
            "groups": "[n] -> { floor((n + 15)/16) : n > 0 }",
        }
    )
    document = vector.to_document()
    return json.dumps(document).encode()


def _use_vector(path: Path) -> object:
    vector = kernels.load_kernel(str(path))
    assert isinstance(vector, PropertyVector)
    return vector.evaluate(n=1024), vector.to_document(), str(vector["flop.add.f32"])


# }}}

# {{{ devices


def _devices() -> tuple[Kind, ...]:
    catalog = Path(countperf.__file__).parent / "hardware" / "catalog"
    parameters = load_device("nvidia-gtx-970")
    characterization = Characterization.from_object(
        {
            "format": "countperf-characterization",
            "version": 1,
            "device": IDENTITY.to_object(),
            "environment": {
                "recorded_at": "2026",
                "operating_system": "Linux",
                "processor": "A",
                "cores": 2,
            },
            "findings": [
                {"name": "clock", "value": 1e9, "spread": 0.1, "unit": "Hz", "kernel": "fma"}
            ],
            "left_out": {"barriers": "a CPU"},
            "parameters": parameters.to_object(),
            "finished": ["clock"],
        }
    )
    return (
        Kind(
            name="identity",
            suffix=".json",
            content=_shipped("identity.json").read_bytes(),
            read=DeviceIdentity.read_file,
        ),
        Kind(
            name="device parameters",
            suffix=".json",
            content=parameters.write_text().encode(),
            read=load_device,
        ),
        Kind(
            name="device description",
            suffix=".toml",
            content=(catalog / "nvidia-gtx-970.toml").read_bytes(),
            read=load_device,
        ),
        Kind(
            name="characterization",
            suffix=".json",
            content=characterization.write_text().encode(),
            read=Characterization.read_file,
        ),
    )


# }}}

# {{{ searches


def _searches() -> tuple[Kind, ...]:
    with tempfile.TemporaryDirectory() as folder:
        journal = Path(folder) / "search.jsonl"
        search(scripted(), store=journal)
        return (
            Kind(
                name="search",
                suffix=".jsonl",
                content=journal.read_bytes(),
                read=lambda path: search(scripted(), store=path),
                lines=True,
            ),
        )


# }}}


def _use_model(path: Path) -> object:
    return fitted_model(str(path)).to_object()


def _use_progress(path: Path) -> object:
    target = path.with_name("campaign.json")
    target.write_bytes(path.read_bytes())
    found = Progress.read(path.parent)
    return [name.upper() for name in found.finished], [entry["outcome"] for entry in found.log]
