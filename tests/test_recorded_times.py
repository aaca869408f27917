"""Times read from files of other tuners."""

from __future__ import annotations

import gzip
import json
import math
from pathlib import Path
from typing import Any

import pytest

from countperf.cli import main
from countperf.errors import DocumentError
from countperf.measurements.recorded import read_times
from countperf.tuning.recorded_space import RecordedSpace, replay


def kernel_tuner_cache() -> dict[str, Any]:
    """A cache of 32 configurations, one of which failed."""
    others = {"compile_time": 100.0, "benchmark_time": 50.0}
    cache: dict[str, dict[str, Any]] = {
        f"{x},{y}": {"x": x, "y": y, "time": 2.0 * (1 + abs(x - 4) + abs(y - 3)), **others}
        for x in (1, 2, 4, 8)
        for y in range(8)
    }
    cache["1,0"]["time"] = "CompilationFailedConfig"
    header = {"device_name": "gpu", "kernel_name": "toy", "tune_params_keys": ["x", "y"]}
    return {**header, "cache": cache}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "toy.json"
    path.write_text(json.dumps(kernel_tuner_cache()).replace("}, ", "},\n"))
    return path


def t4_row(block: Any, value: Any, unit: Any, **fields: Any) -> dict[str, Any]:
    """Return a result with a measurement ``time``."""
    measured = {"name": "time", "value": value, "unit": unit}
    row = {"configuration": {"block": block}, "invalidity": "correct", "measurements": [measured]}
    return {**row, **fields}


def ktt_row(block: int, duration: Any, status: str = "Ok") -> dict[str, Any]:
    """Return a result of KTT."""
    pairs = [{"Name": "block", "Value": block, "ValueType": "UnsignedInt"}]
    taken = {"TotalDuration": duration, "TotalOverhead": 95.0}
    return {"KernelName": "k", "Configuration": pairs, "Status": status, **taken}


MICRO = {"timeunit": "microseconds", "device": "gpu"}
KTT = {"Device": "RTX", "TimeUnit": "Microseconds"}
RUNS = {"measurements": [], "times": {"compilation_time": 7.0, "runtimes": [2.0, 4.0]}}
FAILED = {"times": {"runtimes": []}, "invalidity": "compile", "correctness": 0}
OTHER = {"measurements": [{"name": "Total", "value": 9, "unit": "Microseconds"}]}


_FAILING = [ktt_row(8, 5.0), ktt_row(16, 0.0, "ValidationFailed")]
_REPEATED: list[Any] = [(8, 5.0), (16, 4.0), (8, 7.0), (8, 0.0, "DeviceLimitsExceeded")]


@pytest.mark.parametrize(
    ("content", "times_s"),
    [  # the file's unit, unless the measurement has its own; the mean of runs without one
        ({"metadata": MICRO, "results": [t4_row(1, 60.0, "")]}, [60e-6]),
        ({"metadata": MICRO, "results": [t4_row("1", "60.0", None)]}, [60e-6]),
        ({"metadata": MICRO, "results": [t4_row(1, 2.0, "ms")]}, [2e-3]),
        ({"metadata": {"timeunit": "miliseconds"}, "results": [t4_row(1, 2, "")]}, [2e-3]),
        ({"metadata": MICRO, "results": [t4_row(1, 0, "", **RUNS)]}, [3e-6]),
        ({"results": [t4_row(1, 0, "", objectives=["Total"], **OTHER)]}, [9e-6]),
        # what failed is left out
        ({"metadata": MICRO, "results": [t4_row(1, 2, ""), t4_row(2, 1, "", **FAILED)]}, [2e-6]),
        ({"metadata": MICRO, "results": [t4_row(1, 2, ""), t4_row(2, math.nan, "")]}, [2e-6]),
        ({"Metadata": KTT, "Results": _FAILING}, [5e-6]),
        ({"Metadata": KTT, "Results": [ktt_row(*row) for row in _REPEATED]}, [6e-6, 4e-6]),
    ],
)
def test_times_of_t4_and_ktt_have_their_units(
    tmp_path: Path, content: Any, times_s: list[float]
) -> None:
    (tmp_path / "file.json").write_text(json.dumps(content))

    table = read_times(tmp_path / "file.json")

    assert table["seconds"].tolist() == pytest.approx(times_s)
    assert table["block"].tolist()[0] == (8 if "Metadata" in content else 1)


def test_kernel_tuner_cache_is_read_in_seconds(path: Path) -> None:
    table = read_times(path)

    assert list(table.columns) == ["x", "y", "seconds"]
    assert len(table) == 31  # one of 32 failed
    assert table.iloc[0].tolist() == pytest.approx([1, 1, 2e-3 * (1 + 3 + 2)])
    assert min(table["seconds"].tolist()) == pytest.approx(2e-3)


@pytest.mark.parametrize("end", [",", ",\n", ',\n"8,7": {"x": 8, "y"', ',\n"8,7": {"x": 8, "y": ['])
def test_cache_that_a_killed_run_left_open_is_read(path: Path, end: str) -> None:
    whole = read_times(path)
    text = path.read_text()
    path.write_text(text[: text.index(',\n"8,7"')] + end)

    assert read_times(path).to_numpy().tolist() == whole.to_numpy().tolist()[:-1]


@pytest.mark.parametrize(
    "failure",
    [
        {"time": "InvalidConfig"},
        {"__error__": "RuntimeFailedConfig"},
        {"time": 1.0, "__error__": "RuntimeFailedConfig"},
        {"time": 1e20},
        {"time": None},
        {"time": math.inf},
        {"GFLOP/s": "CompilationFailedConfig"},
    ],
)
def test_failures_of_kernel_tuner(tmp_path: Path, failure: dict[str, Any]) -> None:
    content = {"tune_params_keys": ["x"], "objective": ["GFLOP/s"], "cache": {}}
    content["cache"] = {"1": {"x": 1, **failure}, "2": {"x": 2, "time": 3.0, "GFLOP/s": 1.0}}
    path = tmp_path / "cache.json.gz"
    path.write_bytes(gzip.compress(json.dumps(content).encode()))

    assert read_times(path).to_dict("list") == {"x": [2], "seconds": [3e-3]}


def _cache(entry: Any, **more: Any) -> dict[str, Any]:
    return {"cache": {"1": entry}, "tune_params_keys": ["x"], **more}


def _t4(*rows: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"results": [*rows], **more}


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ([], "is no object; read are: a table"),
        ({"times": []}, "none of the formats that are read"),
        ({"cache": {}}, r"\$.tune_params_keys is no list"),
        (_cache({}, tune_params_keys=[1]), "is no list of names"),
        (_cache(3), r'\$.cache\["1"\] is no object'),
        (_cache({}, cache={}), "no configuration that ran"),
        (_cache({"time": 1.0}), r'\$.cache\["1"\].x is missing'),
        (_cache({"x": 1, "time": -1}), "time is negative"),
        (_cache({"x": 1, "time": 0}), "time is no time: 0"),
        (_cache({"x": 1, "time": [1]}), "time is no number"),
        (_cache({"x": [1], "time": 1}), "x is no number"),
        (_cache({"x": 1e308, "time": 1}), "x is no number"),
        (_cache({"x": 1, "score": 2}, objective="score"), "objective is score, which is no run"),
        ({"results": 3}, r"\$.results is no list"),
        (_t4(), r"\$.results is an empty list"),
        ({"results": [3]}, r"\$.results\[0\] is no object"),
        (_t4({"invalidity": "correct"}), "configuration is no object"),
        (_t4({"configuration": {"x": 1}}), "a correct result without a time"),
        (_t4(t4_row(1, 2, "")), "a time without a unit: add timeunit to"),
        (_t4(t4_row(1, 2, "GFLOP/s")), "is no unit of time: 'GFLOP/s'"),
        (_t4(t4_row(1, [2], "ms")), r"measurements\[0\].value is no number"),
        (_t4(t4_row(1, 2, "ms", times={"runtimes": 3})), "runtimes is no list"),
        (_t4(t4_row(1, 2, "ms", times=3)), "times is no object"),
        (_t4(t4_row(1, 2, "ms", measurements=3)), "measurements is no list"),
        (_t4(t4_row(1, 2, "ms", objectives=3)), "is no list"),
        (_t4(t4_row(1, 2, "ms"), metadata={"timeunit": "h"}), "no unit of time: 'h'"),
        (
            _t4(t4_row(1, 2, "ms"), {**t4_row(1, 2, "ms"), "configuration": {"y": 1}}),
            r"\$.results\[1\] has the parameters y; the first has block",
        ),
        ({"Metadata": 3, "Results": [ktt_row(1, 2)]}, r"\$.Metadata is no object"),
        ({"Metadata": {}, "Results": [ktt_row(1, 2)]}, "TimeUnit is no unit of time: None"),
        ({"Metadata": KTT, "Results": [3]}, r"\$.Results\[0\] is no object"),
        ({"Metadata": KTT, "Results": [{"Configuration": 3}]}, "Configuration is no list"),
        ({"Metadata": KTT, "Results": [ktt_row(1, [2])]}, "is no number"),
    ],
)
def test_damage_is_named(content: Any, said: str, tmp_path: Path) -> None:
    (tmp_path / "bad.json").write_text(json.dumps(content))
    with pytest.raises(DocumentError, match=said):
        read_times(tmp_path / "bad.json")


def test_replay_finds_the_optimum(path: Path) -> None:
    space = RecordedSpace.read_file(path)
    assert (space.name, space.device, len(space.configurations)) == ("toy", "gpu", 32)

    result = replay(space, 20)

    assert result["over_optimum"] == pytest.approx(1.0)
    assert result["best"]["configuration"] == {"x": 4, "y": 3}
    assert result["measured"] == 20
    assert replay(space, 1, space.times_of(space.configurations))["over_optimum"] == 1.0


def test_command_replays(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tune", "--replay", str(path)]) == 0
    assert "1 times the optimum of 2.00 ms" in capsys.readouterr().out

    command = ["tune", "--replay", str(path), "--measurements", "3", "--json"]
    assert main([*command, "--where", "x=8", "--prior", str(path)]) == 0
    assert json.loads(capsys.readouterr().out)["best"]["configuration"] == {"x": 8, "y": 3}


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--where", "x=3"], "no configuration of 'toy' with"),
        (["--where", "x=1", "--where", "x=2"], "x is given twice"),
        (["--where", "x"], "is no name=value"),
        (["--prior", "OTHER"], "is common with those asked for"),
        (["--budget", "3"], "takes the place of the space"),
        (["matmul"], "takes the place of the space"),
    ],
)
def test_what_cannot_be_replayed_is_said(
    path: Path, tmp_path: Path, more: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "other.json"
    other.write_text(json.dumps({"results": [t4_row(7, 2, "ms")]}))

    assert main(["tune", "--replay", str(path), *(m.replace("OTHER", str(other)) for m in more)])
    assert said in capsys.readouterr().err
